//go:build real

package postgres

import (
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

var (
	benchQueued = flag.Int("queued", 10_000, "how many runs the long queue of BenchmarkLongQueue has")
	benchAdded  = flag.Int("added", 2000, "how many runs BenchmarkLongQueue adds to each queue")
)

// BenchmarkLongQueue compares adding runs when -queued runs are queued with adding them when a thousand are, in turns, without HTTP, on a
// server that syncs every commit. Each added run has a chat of its own. cost-ratio is the median for the time, cpu-ratio for the processor time of
// PostgreSQL. Run it with -benchtime 1x -queued 1000000 -added 100000.
func BenchmarkLongQueue(b *testing.B) {
	const rounds = 10
	server := pgtest.NewDurable(b)
	stores := make(map[string]*store)
	for name, queued := range map[string]int{"short": 1000, "long": *benchQueued} {
		d, err := connect(b.Context(), server.DSN("postgres"), name)
		if err != nil {
			b.Fatal(err)
		}
		s := newStore(d)
		b.Cleanup(func() { _ = s.Close() })
		fillTables(b, s, 0, queued)
		execForLong(b, s, "VACUUM ANALYZE @.queue") // what PostgreSQL would do by itself, while we measure
		stores[name] = s
	}
	server.Exec(b, "postgres", "CHECKPOINT")
	share := max(*benchAdded/rounds, 1)
	var number atomic.Int64 // of chats
	turn := func(s *store) (took, used time.Duration) {
		before := server.ProcessorTime(b)
		took = timeCalls(b, share, func() error {
			run := newAdded(fmt.Sprint("new ", number.Add(1)), "")
			return s.Runs().Add(b.Context(), run, engine.Terms{Limits: engine.Limits{Queue: 100_000_000}})
		})
		return took, server.ProcessorTime(b) - before
	}
	var ratios []float64
	took, used := make(map[string]time.Duration), make(map[string]time.Duration)
	for round := range rounds {
		now := make(map[string]time.Duration)
		for i := range 2 { // each is the first in every other round
			name := []string{"short", "long"}[(round+i)%2]
			t, u := turn(stores[name])
			now[name] = t
			took[name] += t
			used[name] += u
		}
		ratios = append(ratios, now["long"].Seconds()/now["short"].Seconds())
	}
	slices.Sort(ratios)
	b.Run("add", func(b *testing.B) {
		b.ReportMetric(ratios[rounds/2], "cost-ratio")
		b.ReportMetric(used["long"].Seconds()/max(used["short"].Seconds(), 0.01), "cpu-ratio")
		for _, name := range []string{"short", "long"} {
			b.ReportMetric(float64(rounds*share)/took[name].Seconds(), name+"-runs/s")
			b.ReportMetric(float64(used[name].Microseconds())/float64(rounds*share), name+"-us-of-postgres")
		}
		b.ReportMetric(0, "ns/op")
	})
}
