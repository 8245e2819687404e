//go:build real

package postgres

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

var benchWorkers = flag.Int("bench-workers", 64, "how many workers a node has in benchmarks")

// BenchmarkClaimAndEnd ends runs and claims others in the same step.
func BenchmarkClaimAndEnd(b *testing.B) {
	for _, chats := range []string{"n", "n % 1000", "0"} {
		for _, nodes := range []int{1, 3} {
			name := map[string]string{"n": "a chat each", "n % 1000": "1,000 chats", "0": "one chat"}[chats]
			b.Run(fmt.Sprintf("%s/%d nodes", name, nodes), func(b *testing.B) { claimAndEnd(b, chats, nodes) })
		}
	}
}

func claimAndEnd(b *testing.B, chats string, nodes int) {
	s := newTestStore(b)
	for _, statement := range []string{
		"INSERT INTO @.kind (runner, hook) VALUES ('', 'agent')",
		fmt.Sprintf(`INSERT INTO @.queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, size, named, run)
			SELECT gen_random_uuid(), nextval('@.run_seq'), 'chat ' || r.chat, r.head, CASE WHEN r.head THEN nextval('@.turn_seq') END,
				1, 'agent', '', now(), 300, true, json_build_object('action', 'agent', 'message', repeat('x', 300))
			FROM (SELECT %[1]s AS chat, row_number() OVER (PARTITION BY %[1]s ORDER BY n) = 1 AS head FROM generate_series(0, %[2]d) n ORDER BY n) r`, chats, b.N+1000*nodes),
		"ANALYZE @.queue",
	} {
		if err := s.exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	all := []*store{s}
	for len(all) < nodes {
		all = append(all, joinTestStore(b, s))
	}
	var over atomic.Int64
	var workers sync.WaitGroup
	before := serverCPU(b, pgtest.Shared(b))
	b.ResetTimer()
	for _, node := range all {
		for range *benchWorkers {
			workers.Go(func() {
				var claims []*engine.Claim
				batch := engine.Batch{Max: 1, Lease: time.Minute}
				for over.Load() < int64(b.N) {
					var err error
					if len(claims) == 0 {
						claims, _, err = node.Runs().Claim(b.Context(), batch)
						if len(claims) == 0 && err == nil {
							select {
							case <-node.Watch().Claimable():
							case <-time.After(10 * time.Millisecond):
							}
						}
					} else {
						claims, err = node.Runs().End(b.Context(), claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "an answer"}}, batch)
						over.Add(1)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	workers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	b.ReportMetric(float64((serverCPU(b, pgtest.Shared(b))-before).Microseconds())/float64(b.N), "server-µs/run")
}
