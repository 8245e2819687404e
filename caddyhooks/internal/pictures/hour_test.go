package main

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// The engine reads a duration back from the bucket that it was put in.
func TestDurationsAreInTheBucketsOfTheEngine(t *testing.T) {
	t.Parallel()
	for took := time.Millisecond; took < 3*time.Hour; took += took/7 + time.Millisecond {
		m := engine.Minute{Longest: took}
		m.Durations[bucketOf(took)]++
		hook := engine.HookMinute{Longest: took}
		hook.Durations[bucketOf(took)/2]++
		for _, of := range []interface {
			Quantile(share float64) (time.Duration, bool)
		}{&m, &hook} {
			if got, _ := of.Quantile(1); (got - took).Abs() > 2*time.Millisecond {
				t.Errorf("%T has a run of %v, and tells %v", of, took, got)
			}
		}
	}
}

func TestTheLastHourIsWorthAPicture(t *testing.T) {
	t.Parallel()
	var sum engine.Minute
	minutes := lastHour()
	for i := range minutes {
		sum.Add(&minutes[i])
		if slow, _ := minutes[i].Quantile(0.95); slow > 20*time.Second {
			t.Errorf("95 %% of the runs of minute %d took %v; the axis would end at 40 s", i, slow)
		}
	}
	if sum.Accepted < 1000 || sum.Hooks["invoices"].Failed*20 < sum.Hooks["invoices"].Accepted || sum.Dead > 0 {
		t.Errorf("%d runs were accepted, %d of %d invoices failed, and %d deliveries were given up", sum.Accepted,
			sum.Hooks["invoices"].Failed, sum.Hooks["invoices"].Accepted, sum.Dead)
	}
}
