package observe

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// benchMeters are those of an instance with so many hooks.
func benchMeters(hooks int) *Meters {
	m := NewMeters("default")
	names := make(map[string]struct{})
	for i := range hooks {
		names[fmt.Sprint("hook-", i)] = struct{}{}
	}
	m.Keep(NewMeteredNames(maps.Keys(names), maps.Keys(map[string]struct{}{})), false)
	return m
}

// BenchmarkMeters is what is counted for one request that becomes a run, by one goroutine and by all.
func BenchmarkMeters(b *testing.B) {
	m := benchMeters(100)
	run := &engine.Run{Hook: "hook-7"}
	outcome := engine.Outcome{Status: engine.Completed}
	count := func() {
		m.Endpoint("hook-7").Answered(200)
		m.Accepted(run, time.Millisecond)
		m.RunTakenOn(run, time.Millisecond)
		m.RunEnded(run, outcome, time.Second)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			count()
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				count()
			}
		})
	})
}

// BenchmarkCollect is what a scrape takes that asks no store, by the number of hooks that were called.
func BenchmarkCollect(b *testing.B) {
	for _, hooks := range []int{10, 100} {
		b.Run(fmt.Sprint(hooks), func(b *testing.B) {
			registry := prometheus.NewPedanticRegistry()
			for _, family := range benchMeters(hooks).Families.All() {
				registry.MustRegister(family)
			}
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Whoever counts must not leave work to the garbage collector.
func TestCountingMakesNoGarbage(t *testing.T) {
	m := benchMeters(3)
	run := &engine.Run{Hook: "hook-1"}
	delivery := &engine.Delivery{Callback: "https://example.com", Status: engine.Delivered}
	var outcome engine.Outcome
	outcome.Status, outcome.Failure = engine.Failed, engine.RunnerFailed
	count := func() {
		m.Endpoint("hook-1").Answered(202)
		m.Endpoint("runs/1").Answered(200)
		m.Endpoint("nothing").Answered(404)
		m.Endpoint("hook-1").Refused(BadToken)
		m.Accepted(run, time.Millisecond)
		m.RunTakenOn(run, time.Millisecond)
		m.TurnEnded(run, "default", 1, time.Second, nil, nil)
		m.RunEnded(run, outcome, time.Second)
		m.DeliveryAttempted(delivery, time.Second, nil)
		m.StoreCommitted(3, time.Millisecond)
	}
	count()
	if n := testing.AllocsPerRun(100, count); n > 0 {
		t.Errorf("counting allocates %v times", n)
	}
}
