package bolt

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// BenchmarkRuns is what it takes to accept a run, to claim it and to end it, for many callers at once.
func BenchmarkRuns(b *testing.B) {
	s := newBolt(b, filepath.Join(b.TempDir(), "hooks.db"))
	defer s.Close()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		callers.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				run := testRun(fmt.Sprint("chat ", n), "look at the disk of web-3")
				err := s.Runs().Add(b.Context(), run, engine.Terms{})
				claims, _, claimErr := s.Runs().Claim(b.Context(), engine.Batch{Max: 1, Lease: time.Minute})
				if err != nil || claimErr != nil {
					b.Error(err, claimErr)
					return
				}
				for _, claim := range claims {
					end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true}}
					if _, err := s.Runs().End(b.Context(), claim, end, engine.Batch{}); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	callers.Wait()
}
