//go:build real

package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// BenchmarkAddAndClaim compares runs that are claimed in the step that accepts them with those that are claimed in a step of their own, in
// turns, on a server that syncs every commit: by one caller and by 64. Each run is then ended. ratio is the median for the time, cpu-ratio for the
// processor time of PostgreSQL. Run it with -benchtime 1x.
func BenchmarkAddAndClaim(b *testing.B) {
	for name, share := range map[string]int{"lone": 100, "64 callers": 1500} {
		b.Run(name, func(b *testing.B) { benchmarkAddAndClaim(b, name == "lone", share) })
	}
}

func benchmarkAddAndClaim(b *testing.B, lone bool, share int) {
	const rounds = 11
	server := pgtest.NewDurable(b)
	s := openBench(b, server)
	var number atomic.Int64
	batch := engine.Batch{Max: 1, Lease: time.Minute}
	terms := engine.Terms{Limits: engine.Limits{Queue: 10_000_000, Chat: 100}}
	run := func(atOnce bool) error {
		ctx := context.Background()
		added := []*engine.Run{newAdded(fmt.Sprint("own ", number.Add(1)), "")}
		var claims []*engine.Claim
		var err error
		if atOnce {
			claims, err = s.runs.AddAndClaim(ctx, added, terms, batch)
		} else if err = s.runs.AddAll(ctx, added, terms); err == nil {
			claims, _, err = s.runs.Claim(ctx, batch)
		}
		for err == nil && len(claims) == 0 { // another caller had its run first
			claims, _, err = s.runs.Claim(ctx, batch)
		}
		if err != nil || len(claims) != 1 {
			return fmt.Errorf("claimed %d runs: %w", len(claims), err)
		}
		_, err = s.runs.End(ctx, claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "done"}}, engine.Batch{})
		return err
	}
	turn := func(atOnce bool) (took, used time.Duration) {
		before := server.ProcessorTime(b)
		if lone {
			began := time.Now()
			for range share {
				if err := run(atOnce); err != nil {
					b.Fatal(err)
				}
			}
			took = time.Since(began)
		} else {
			took = timeCalls(b, share, func() error { return run(atOnce) })
		}
		return took, server.ProcessorTime(b) - before
	}
	took, used := inTurns(b, rounds, turn)
	for way, name := range []string{"apart", "at-once"} {
		b.ReportMetric(float64(rounds*share)/took[way].Seconds(), name+"-runs/s")
		b.ReportMetric(float64(used[way].Microseconds())/float64(rounds*share), name+"-us-of-postgres")
	}
	b.ReportMetric(0, "ns/op")
}

// inTurns measures two ways of doing the same, and reports the medians of the second in units of the first. It returns how long each took in
// all, and how much of the database's processor.
func inTurns(b *testing.B, rounds int, turn func(second bool) (took, used time.Duration)) (took, used [2]time.Duration) {
	turn(false)
	turn(true)
	var ratios, uses []float64
	for round := range rounds {
		var now, cpu [2]time.Duration
		for i := range 2 { // each is the first in every other round
			way := (round + i) % 2
			now[way], cpu[way] = turn(way == 1)
			took[way] += now[way]
			used[way] += cpu[way]
		}
		ratios = append(ratios, now[1].Seconds()/now[0].Seconds())
		uses = append(uses, cpu[1].Seconds()/max(cpu[0].Seconds(), 0.01))
	}
	slices.Sort(ratios)
	slices.Sort(uses)
	b.ReportMetric(ratios[rounds/2], "ratio")
	b.ReportMetric(uses[rounds/2], "cpu-ratio")
	return took, used
}
