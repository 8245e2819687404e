package bolt

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// BenchmarkChats carries out runs when as many chats wait for theirs. It tells what opening the file takes, in time and in
// memory.
func BenchmarkChats(b *testing.B) {
	for _, chats := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(chats), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "hooks.db")
			veteran{queued: chats}.write(b, path)
			before := heapInUse()
			start := time.Now()
			s := newBolt(b, path)
			defer s.Close()
			opened, each := time.Since(start), float64(heapInUse()-before)/float64(chats)
			var workers sync.WaitGroup
			b.ResetTimer()
			for range 16 {
				workers.Go(func() {
					for range b.N / 16 {
						addAndCarryOut(b, s)
					}
				})
			}
			workers.Wait()
			b.ReportMetric(opened.Seconds(), "s-to-open")
			b.ReportMetric(each, "bytes-each")
		})
	}
}

// addAndCarryOut carries out the next run, and puts one of a new chat in its place.
func addAndCarryOut(t testing.TB, s *store) {
	claims, _, err := s.Runs().Claim(context.Background(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Errorf("claimed %d runs, %v", len(claims), err)
		return
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true}}
	if _, err := s.Runs().End(context.Background(), claims[0], end, engine.Batch{}); err != nil {
		t.Error(err)
	}
	if err := s.Runs().Add(context.Background(), testRun("new "+claims[0].Run.ID, "hello"), engine.Terms{}); err != nil {
		t.Error(err)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what finalizers kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Chats that have had their run leave nothing behind.
func TestManyChatsAreForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	const chats = 4_000
	path := filepath.Join(t.TempDir(), "hooks.db")
	veteran{queued: chats}.write(t, path)
	s := newBolt(t, path)
	defer s.Close()
	if got := finishAll(t, s); got != chats {
		t.Errorf("finished %d runs", got)
	}
	if size := s.queue.Size(); size != (local.QueueSize{}) {
		t.Errorf("the queue still holds %+v", size)
	}
	if size := s.outbox.Size(); size != (local.OutboxSize{}) {
		t.Errorf("the outbox still holds %+v", size)
	}
	if len(s.ending) > 0 {
		t.Errorf("%d runs are still about to end", len(s.ending))
	}
}

// An end is in the file a moment before memory knows of it.
func TestARunWhoseEndIsBeingWrittenCountsOnce(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "store.db"))
	claims, err := s.Runs().(engine.ClaimingRuns).AddAndClaim(t.Context(), []*engine.Run{testRun("chat", "hello")}, engine.Terms{},
		engine.Batch{Max: 1, Lease: time.Hour})
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	id, before := uuid.MustParse(claims[0].Run.ID), engine.Record{Run: claims[0].Run}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	if _, err := s.Runs().End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.ending[id] = before
	s.mu.Unlock()
	chats, _, err := s.Runs().Chats(t.Context(), engine.ChatQuery{Limit: 10})
	if err != nil || len(chats) != 1 || chats[0].Runs != 1 {
		t.Errorf("got %+v, %v", chats, err)
	}
	s.mu.Lock()
	delete(s.ending, id)
	s.mu.Unlock()
}
