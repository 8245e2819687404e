package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// BenchmarkFolds is what a run of a fold takes, however many stand behind it in the chat.
func BenchmarkFolds(b *testing.B) {
	for _, behind := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprint(behind, "-behind"), func(b *testing.B) {
			var nodes Nodes
			var ids IDs
			now := time.Now()
			q, node := NewQueue(&nodes), nodes.Join(now)
			run := &engine.Run{ChatID: "a chat", Hook: "storm", Fold: engine.Fold{Window: time.Hour, Max: 50}}
			push := func() {
				id, err := ids.Next(now)
				if err != nil {
					b.Fatal(err)
				}
				q.Push(EntryOf(id, run, now))
			}
			for range behind {
				push()
			}
			var last []uuid.UUID
			claimed := 0
			for b.Loop() {
				push()
				if claims, _ := q.Claim(node, engine.Batch{Max: 1, Lease: time.Minute}, now, now); len(claims) > 0 {
					last = claims[0].Folded
					q.Remove(claims[0].ID)
					for _, id := range last {
						q.Remove(id)
					}
					claimed++
				}
			}
			if behind > 0 && claimed == 0 {
				b.Error("nothing was claimed")
			}
		})
	}
}
