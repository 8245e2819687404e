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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// BenchmarkBesideRunsPutAside accepts runs, claims them and ends them, in turn in a store that has nothing else and in one with 100,000 runs
// that are put aside, on a server that syncs every commit. The ratios are medians of how much longer that takes in the second one. Run it with
// -benchtime 20x.
func BenchmarkBesideRunsPutAside(b *testing.B) {
	const waiting, together, share = 100_000, 64, 1280
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
	accept := func(s *store) error {
		return s.Runs().Add(b.Context(), newAdded(fmt.Sprint("new ", number.Add(1)), ""), engine.Terms{Limits: engine.Limits{Queue: 10_000_000}})
	}
	carryOut := func(s *store) error {
		claims, _, err := s.Runs().Claim(b.Context(), engine.Batch{Max: 1, Lease: time.Minute})
		if err != nil || len(claims) != 1 {
			return fmt.Errorf("claimed %d runs: %w", len(claims), err)
		}
		_, err = s.Runs().End(b.Context(), claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{})
		return err
	}
	ratios, took := make(map[string][]float64), make(map[string]time.Duration)
	for first := 0; b.Loop(); first = 1 - first { // each comes first as often as the other
		var accepting, claiming [2]time.Duration
		for _, i := range []int{first, 1 - first} {
			accepting[i] = timeCalls(b, together, share, func() error { return accept(stores[i]) })
			claiming[i] = timeCalls(b, together, share, func() error { return carryOut(stores[i]) })
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

// timeCalls calls f so many times, from several callers at once, and returns how long that took.
func timeCalls(b *testing.B, callers, calls int, f func() error) time.Duration {
	b.Helper()
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(calls))
	var group sync.WaitGroup
	for range callers {
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
