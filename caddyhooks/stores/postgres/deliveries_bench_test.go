//go:build real

package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Deliveries to 100 hosts are claimed and settled as an engine does it, with attempts that take no time. 100,000 more wait for a host that is
// blocked.
func BenchmarkDeliveries(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			nodes := []*store{newDeliveryStore(b)}
			for range n - 1 {
				nodes = append(nodes, joinTestStore(b, nodes[0]))
			}
			addMany(b, nodes[0], "blocked", 1, 100_000)
			if err := nodes[0].exec(b.Context(), "INSERT INTO @.host (host, until, next_at) SELECT host, '2100-01-01', '2100-01-01' FROM (SELECT DISTINCT host FROM @.delivery_news) n"); err != nil {
				b.Fatal(err)
			}
			addMany(b, nodes[0], "host", 100, b.N)
			for _, statement := range []string{"ANALYZE @.delivery", "ANALYZE @.host"} {
				if err := nodes[0].exec(b.Context(), statement); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var left atomic.Int64
			left.Store(int64(b.N))
			var work sync.WaitGroup
			for _, node := range nodes {
				work.Go(func() { sendAll(ctx, b, node, &left, cancel) })
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// addMany adds deliveries to some hosts whose names begin alike, a thousand at a time.
func addMany(b *testing.B, s *store, name string, hosts, n int) {
	b.Helper()
	for from := 0; from < n; from += 1000 {
		var all []engine.Delivery
		for i := from; i < min(from+1000, n); i++ {
			all = append(all, callbacks(1, fmt.Sprintf("%s%d.example", name, i%hosts))...)
		}
		addDeliveries(b, s, all...)
	}
}

// sendAll claims and settles on a node until none is left.
func sendAll(ctx context.Context, b *testing.B, s *store, left *atomic.Int64, done func()) {
	more := make(chan struct{}, 1)
	var sending atomic.Int64
	var attempts sync.WaitGroup
	defer attempts.Wait()
	for ctx.Err() == nil {
		wait := time.Duration(-1)
		if room := 256 - int(sending.Load()); room > 0 {
			due, until, err := s.deliveries.Claim(ctx, engine.DeliveryBatch{Max: room, Lease: time.Minute})
			if err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
			wait = until
			for _, d := range due {
				sending.Add(1)
				attempts.Go(func() {
					d.Status, d.Attempt = engine.Delivered, 1
					sending.Add(-1)
					signal(more)
					if err := s.deliveries.Settle(context.WithoutCancel(ctx), d, 0); err != nil {
						b.Error(err)
					}
					signal(more)
					if left.Add(-1) == 0 {
						done()
					}
				})
			}
		}
		timer := time.After(max(wait, 0))
		if wait < 0 {
			timer = nil
		}
		select {
		case <-timer:
		case <-more:
		case <-s.watch.Due():
		case <-ctx.Done():
		}
	}
}
