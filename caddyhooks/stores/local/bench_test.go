package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// BenchmarkQueue is what it takes to queue a run, to claim it and to end it while many others are queued, each in a chat of its
// own. In all cases but the first two these may not start, and must not be in the way.
func BenchmarkQueue(b *testing.B) {
	for _, bench := range []struct {
		name    string
		others  int
		bounds  []engine.Bound
		without []string
		aside   bool
	}{
		{"alone", 0, nil, nil, false},
		{"among-100000", 100_000, nil, nil, false},
		{"beside-100000-of-a-full-runner", 100_000, []engine.Bound{{Runners: []string{"storm"}}}, nil, false},
		{"beside-100000-of-a-full-hook", 100_000, []engine.Bound{{Hooks: []string{"storm"}}}, nil, false},
		{"beside-100000-of-a-paused-chat", 100_000, nil, []string{"paused"}, false},
		{"beside-100000-put-aside", 100_000, nil, nil, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var nodes Nodes
			var ids IDs
			now := time.Now()
			q, node := NewQueue(&nodes), nodes.Join(now)
			push := func(chat, hook string) uuid.UUID {
				id, err := ids.Next(now)
				if err != nil {
					b.Fatal(err)
				}
				q.Push(EntryOf(id, &engine.Run{ChatID: chat, Hook: hook, Runner: hook, QueueTime: time.Hour}, now))
				return id
			}
			for i := range bench.others {
				chat := fmt.Sprint("chat ", i)
				if bench.without != nil {
					chat = bench.without[0]
				}
				id := push(chat, "storm")
				if bench.aside {
					q.SetAsked(id)
					q.SetAside(id, Aside{Asked: now, Due: now.Add(time.Hour)})
				}
			}
			batch := engine.Batch{Max: 1, Lease: time.Minute, Bounds: bench.bounds, Without: bench.without}
			b.ReportAllocs()
			for b.Loop() {
				push("a chat", "calm")
				claims, _ := q.Claim(node, batch, now, now)
				q.Remove(claims[0].ID)
			}
		})
	}
}
