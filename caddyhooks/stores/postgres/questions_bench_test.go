//go:build real

package postgres

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// BenchmarkBesideRunsPutAside accepts runs, claims them and ends them, in turn in a store that has nothing else and in one with 100,000 runs
// that are put aside, on a server that syncs every commit. The ratios are medians of how much longer that takes in the second one. Run it with
// -benchtime 20x.
func BenchmarkBesideRunsPutAside(b *testing.B) {
	const waiting, share = 100_000, 1280
	server := pgtest.NewDurable(b)
	stores := []*store{openBench(b, server), openBench(b, server)}
	for i, s := range stores {
		execForLong(b, s, "INSERT INTO @.kind (runner, hook) VALUES ('', 'agent')")
		fillOnlyAside(b, s, 0, waiting*i)
		execForLong(b, s, "VACUUM ANALYZE @.queue, @.question") // what PostgreSQL would do by itself, while we measure
		if backlog, err := s.Runs().Backlog(b.Context()); err != nil || backlog != (engine.Backlog{Waiting: waiting * i}) {
			b.Fatalf("the backlog is %+v, %v", backlog, err)
		}
	}
	server.Exec(b, "postgres", "CHECKPOINT")
	var number atomic.Int64 // of chats
	completed := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	ratios, took := make(map[string][]float64), make(map[string]time.Duration)
	for first := 0; b.Loop(); first = 1 - first { // each comes first as often as the other
		var accepting, claiming [2]time.Duration
		for _, i := range []int{first, 1 - first} {
			accepting[i] = timeCalls(b, share, func() error { return acceptNew(b, stores[i], &number) })
			claiming[i] = timeCalls(b, share, func() error { return carryOut(b, stores[i], completed) })
		}
		for name, of := range map[string][2]time.Duration{"accept": accepting, "claim": claiming} {
			ratios[name] = append(ratios[name], of[1].Seconds()/of[0].Seconds())
			took[name] += of[1]
		}
	}
	for name, all := range ratios {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-ratio")
		b.ReportMetric(float64(took[name].Microseconds())/float64(b.N*share), "µs/"+name)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSpending claims runs and ends them, in turn without a word on what they cost and with it, on a server that syncs every commit.
// The ratio is how much longer the latter takes. Run it with -benchtime 300x.
func BenchmarkSpending(b *testing.B) {
	const together = 64
	s := openBench(b, pgtest.NewDurable(b))
	use := engine.Use{Model: "gpt-5", HasTokens: true, Input: 1200, Output: 340, HasCost: true, Cost: 4_900_000}
	spent := engine.LedgerEntry{Account: usage.NewAccount("cost", "agent", "default", "gpt-5"), Span: time.Hour, Keep: 24 * time.Hour,
		Runs: 1, Use: use}
	ends := []engine.End{
		{Outcome: engine.Outcome{Status: engine.Completed}},
		{Outcome: engine.Outcome{Status: engine.Completed, Usage: []engine.Use{use}}, Spent: []engine.LedgerEntry{spent}},
	}
	var number atomic.Int64 // of chats
	var took [2]time.Duration
	for first := 0; b.Loop(); first = 1 - first { // each comes first as often as the other
		for _, i := range []int{first, 1 - first} {
			timeCalls(b, together, func() error { return acceptNew(b, s, &number) })
			took[i] += timeCalls(b, together, func() error { return carryOut(b, s, ends[i]) })
		}
	}
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "end-ratio")
	b.ReportMetric(float64(took[1].Microseconds())/float64(b.N*together), "µs/end")
	b.ReportMetric(0, "ns/op")
}

// acceptNew adds a run to a chat of its own.
func acceptNew(b *testing.B, s *store, number *atomic.Int64) error {
	return s.Runs().Add(b.Context(), newAdded(fmt.Sprint("new ", number.Add(1)), ""), engine.Terms{Limits: engine.Limits{Queue: 10_000_000}})
}

// carryOut claims a run and ends it.
func carryOut(b *testing.B, s *store, end engine.End) error {
	claims, _, err := s.Runs().Claim(b.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		return fmt.Errorf("claimed %d runs: %w", len(claims), err)
	}
	_, err = s.Runs().End(b.Context(), claims[0], end, engine.Batch{})
	return err
}

// timeCalls calls f so many times, from 64 callers at once, and returns how long that took.
func timeCalls(b *testing.B, calls int, f func() error) time.Duration {
	b.Helper()
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(calls))
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(began)
}
