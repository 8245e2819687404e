package bolt

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
)

// BenchmarkGates is what it takes to accept a run with gates, as a ratio to one without, in a file that remembers few values and in one that
// remembers as many as it ever does, since it was told of more.
func BenchmarkGates(b *testing.B) {
	for _, values := range []int{0, gate.MaxGates + gate.MaxGates/20} {
		b.Run(fmt.Sprint(values), func(b *testing.B) {
			s := newBolt(b, filepath.Join(b.TempDir(), "hooks.db"))
			defer s.Close()
			fillGates(b, s.Database, values)
			var took [2]time.Duration
			for gated := range took { // in turns, so that both see the same machine
				took[gated] = addMany(b, s, gated == 1)
			}
			for gated := range took {
				took[gated] += addMany(b, s, gated == 1)
			}
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "x/without")
			if n := countGates(b, s.Database); n > gate.MaxGates || n < min(values, gate.MaxGates) {
				b.Errorf("the file remembers %d values", n)
			}
			size, _ := s.Size(b.Context())
			b.ReportMetric(float64(size)/1e6, "MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fillGates has the file remember so many values.
func fillGates(b *testing.B, d *Database, values int) {
	b.Helper()
	until := time.Now().Add(24 * time.Hour)
	for i := 0; i < values; {
		err := d.committer.do(b.Context(), &change{apply: func(t *transaction) error {
			for end := min(i+10_000, values); i < end; i++ {
				id := gate.NewID(gate.Once, "hook", fmt.Sprint(i))
				state := gate.State{Until: until.Add(time.Duration(i)), First: gate.First{RunID: "01890a5d-ac96-774b-bcce-b302099a8057", ChatID: "chat", Action: "agent"}}
				t.note(gates.Put(t.tx, id, state, t.now, gate.MaxGates))
			}
			return nil
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// countGates is how many values the file remembers.
func countGates(b *testing.B, d *Database) (n int) {
	b.Helper()
	err := d.db.View(func(tx *bbolt.Tx) error {
		n = tx.Bucket(gates.Bucket).Stats().KeyN
		if ages := tx.Bucket(gates.AgesBucket).Stats().KeyN; ages != n {
			b.Errorf("the file remembers the ages of %d values, and %d values", ages, n)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

var gatedRuns atomic.Uint64

// addMany has many callers add b.N runs at once.
func addMany(b *testing.B, s *store, gated bool) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	began := time.Now()
	for range 64 {
		callers.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				run := testRun(fmt.Sprint("chat ", n), "look at the disk of web-3")
				if gated {
					value := string(binary.BigEndian.AppendUint64(nil, gatedRuns.Add(1)))
					run.Gates = []gate.Gate{
						{ID: gate.NewID(gate.Once, "new", value), Kind: gate.Once, Per: 24 * time.Hour},
						{ID: gate.NewID(gate.Rate, "new", value), Kind: gate.Rate, Most: 3, Per: time.Hour},
					}
				}
				if err := s.Runs().Add(b.Context(), run, engine.Terms{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	return time.Since(began)
}
