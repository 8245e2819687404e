//go:build real

package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// BenchmarkPlainEnd compares ends by end_plain_2 with those by end_runs_1, in turns, so many in a call. Nothing else is ready: each ask for the
// next run finds nothing. cpu-ratio is the median for the processor time of PostgreSQL, ratio for the time. Run it with -benchtime 1x.
func BenchmarkPlainEnd(b *testing.B) {
	for _, together := range []int{1, 25} {
		b.Run(fmt.Sprint(together), func(b *testing.B) { benchmarkPlainEnd(b, together) })
	}
}

func benchmarkPlainEnd(b *testing.B, together int) {
	const rounds = 11
	calls := 600 / (together + 5)
	server := pgtest.New(b, pgtest.Config{Settings: "fsync = off\nsynchronous_commit = off\n"}) // the disk takes the same for both
	s := openBench(b, server)
	batch := engine.Batch{Max: 1, Lease: time.Hour}
	number := 0
	turn := func(plain bool) (took, used time.Duration) {
		care := careOfAny
		if plain {
			care = careOfPlain
		}
		var claims []*engine.Claim
		for range calls {
			var runs []*engine.Run
			for range together {
				number++
				runs = append(runs, newAdded(fmt.Sprint("own ", number), ""))
			}
			more, err := s.runs.AddAndClaim(b.Context(), runs, engine.Terms{}, engine.Batch{Max: together, Lease: time.Hour})
			if err != nil || len(more) != together {
				b.Fatalf("claimed %d runs: %v", len(more), err)
			}
			claims = append(claims, more...)
		}
		before, began := server.ProcessorTime(b), time.Now()
		for some := range slices.Chunk(claims, together) {
			var ends []*turnover
			for _, claim := range some {
				e, err := newEnding(claim, engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "done"}})
				if err != nil {
					b.Fatal(err)
				}
				ends = append(ends, &turnover{end: e, next: batch})
			}
			answer, err := s.runs.claiming.ask(b.Context(), ends, newAsks(ends), care)
			if err != nil || slices.ContainsFunc(answer.ends, func(state string) bool { return state != "ended" }) {
				b.Fatal(answer, err)
			}
		}
		return time.Since(began), server.ProcessorTime(b) - before
	}
	_, used := inTurns(b, rounds, turn)
	for way, name := range []string{"other", "plain"} {
		b.ReportMetric(float64(used[way].Microseconds())/float64(rounds*calls*together), name+"-us-of-postgres")
	}
	b.ReportMetric(0, "ns/op")
}
