package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// BenchmarkPast asks for the last 20 turns of a chat, in a file that has as many runs of this chat and of others.
func BenchmarkPast(b *testing.B) {
	for _, size := range []struct{ chat, others int }{{10, 0}, {10, 100_000}, {1000, 0}, {100_000, 0}} {
		b.Run(fmt.Sprintf("chat=%d/others=%d", size.chat, size.others), func(b *testing.B) {
			database, err := bolt.Open(filepath.Join(b.TempDir(), "hooks.db"))
			if err != nil {
				b.Fatal(err)
			}
			store := database.Store()
			fillTogether(b, store, size.chat, func(int) string { return "chat" })
			fillTogether(b, store, size.others, func(i int) string { return fmt.Sprint("another ", i%1000) })
			done := make(chan struct{})
			e := engine.New(store)
			e.Attach(config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
				defer close(done)
				b.ResetTimer()
				for range b.N {
					past, err := turn.Chat.Past(ctx, 20, 64<<10)
					if err != nil || len(past) != min(size.chat, 20) {
						b.Errorf("%d turns were told, %v", len(past), err)
						break
					}
				}
				b.StopTimer()
				return engine.Reply{Text: "yes"}, nil
			})))
			run := remembering("chat", "last")
			run.Timeout = time.Hour
			if err := e.Submit(b.Context(), run, 0); err != nil {
				b.Fatal(err)
			}
			<-done
			e.Stop()
		})
	}
}

// BenchmarkTurns carries out runs of a hundred chats: without memory, with a memory of which the runner asks nothing, with a
// session that is asked for and named with every turn, and with the last 20 turns.
func BenchmarkTurns(b *testing.B) {
	yes := engine.Reply{Text: strings.Repeat("y", 200)}
	for _, kind := range []struct {
		name string
		run  func(chat, message string) *engine.Run
		turn func(ctx context.Context, turn engine.Turn) (engine.Reply, error)
	}{
		{"without memory", keeping, func(context.Context, engine.Turn) (engine.Reply, error) { return yes, nil }},
		{"with memory", remembering, func(context.Context, engine.Turn) (engine.Reply, error) { return yes, nil }},
		{"with a session", remembering, func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			_, err := turn.Chat.Session(ctx)
			return engine.Reply{Text: yes.Text, Session: "session of " + turn.ChatID}, err
		}},
		{"with 20 turns", remembering, func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			_, err := turn.Chat.Past(ctx, 20, 64<<10)
			return yes, err
		}},
	} {
		b.Run(strings.ReplaceAll(kind.name, " ", "-"), func(b *testing.B) {
			database, err := bolt.Open(filepath.Join(b.TempDir(), "hooks.db"))
			if err != nil {
				b.Fatal(err)
			}
			store := database.Store()
			fillTogether(b, store, 3000, func(i int) string { return fmt.Sprint("chat ", i%100) })
			var left sync.WaitGroup
			left.Add(b.N)
			e := engine.New(store)
			c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
				defer left.Done()
				return kind.turn(ctx, turn)
			}))
			c.Workers = 100
			e.Attach(c)
			b.ResetTimer()
			var senders sync.WaitGroup
			for g := range 100 {
				senders.Go(func() {
					for i := g; i < b.N; i += 100 {
						if err := e.Submit(context.Background(), kind.run(fmt.Sprint("chat ", g), strings.Repeat("m", 200)), 0); err != nil {
							b.Error(err)
						}
					}
				})
			}
			senders.Wait()
			left.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
			b.StopTimer()
			e.Stop()
		})
	}
}

// fillTogether adds runs that have ended, many at once.
func fillTogether(b *testing.B, s engine.Store, n int, chat func(i int) string) {
	b.Helper()
	var group sync.WaitGroup
	for g := range 200 {
		group.Go(func() {
			for i := g; i < n; i += 200 {
				run := remembering(chat(i), strings.Repeat("m", 200))
				err := s.Runs().Add(context.Background(), run, engine.Terms{})
				if err == nil {
					_, err = s.Runs().End(context.Background(), &engine.Claim{Run: run}, completed(strings.Repeat("t", 200)), engine.Batch{})
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}
