package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var concurrencyChecks = []check{
	{"every run ends once and in order, whatever happens at the same time", everyRunEndsOnce},
	{"callers are told the truth although some go away", answersAreTrue},
}

// random is a source of chance that is the same in every run of the test.
func random(seed int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // nothing here is secret
}

func everyRunEndsOnce(_ *testing.T, s *store) { carryOutAtRandom(s, longLease) }

// carryOutAtRandom has runs added, claimed, ended, requeued, neglected and looked at by many goroutines at once, on the
// given node and on others, while the clock is advanced now and then. Claims that are not neglected are for a lease.
func carryOutAtRandom(s *store, lease time.Duration, others ...*store) {
	const adders, each, chats, workers = 4, 50, 9, 6
	t, l := s.t, newLedger(s.t)
	nodes := append([]*store{s}, others...)
	node := func(i int) engine.Store { return nodes[i%len(nodes)].Store }
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var all, onlookers sync.WaitGroup
	for i := range adders {
		all.Go(func() {
			chance := random(i)
			for range each {
				l.add(ctx, node(i), newRun(fmt.Sprint("chat ", chance.IntN(chats))))
			}
		})
	}
	for i := range workers {
		all.Go(func() {
			w := &worker{node: node(i), ledger: l, chance: random(100 + i), name: fmt.Sprint("worker ", i), lease: lease}
			for l.count() < adders*each && ctx.Err() == nil {
				if err := w.work(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	over := make(chan struct{})
	look := func(pause time.Duration, look func() error) {
		onlookers.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				if err := look(); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 2 {
		chance := random(200 + i)
		look(time.Millisecond, func() error { return l.meddle(ctx, node(i), chance) })
	}
	look(5*time.Millisecond, func() error {
		l.advance(s, shortLease/4)
		return nil
	})
	if len(others) > 0 {
		look(20*time.Millisecond, func() error { return claimAndDie(ctx, s, l) })
	}
	all.Wait()
	close(over)
	onlookers.Wait()
	if n := l.count(); n != adders*each || len(l.runs) != n {
		t.Fatalf("%d of %d runs have ended, and it took too long or failed", n, adders*each)
	}
	l.check(s)
}

// claimAndDie opens the data as another node, which claims a run and is closed. If the others seem to be gone, since the clock
// runs ahead of them, it puts the run back.
func claimAndDie(ctx context.Context, s *store, l *ledger) error {
	node := s.options.Join(s.t, s.Store)
	from := l.now()
	claims, _, err := node.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: shortLease})
	for _, claim := range claims {
		l.began(claim, from, shortLease)
		l.letGo(claim)
	}
	return errors.Join(err, node.Close())
}

// answersAreTrue adds runs for callers of whom many go away meanwhile. A run is there if its caller was told so, and only
// then.
func answersAreTrue(t *testing.T, s *store) {
	var mu sync.Mutex
	stored := map[string]bool{}
	var adders sync.WaitGroup
	for i := range 8 {
		adders.Go(func() {
			chance := random(i)
			for range 15 {
				ctx, cancel := context.WithCancel(t.Context())
				gone := time.AfterFunc(time.Duration(chance.IntN(3000))*time.Microsecond, cancel)
				run := newRun(fmt.Sprint("chat ", i))
				if err := s.Runs().Add(ctx, run, engine.Terms{}); err == nil {
					mu.Lock()
					stored[run.ID] = true
					mu.Unlock()
				} else if ctx.Err() == nil {
					t.Error(err)
				}
				gone.Stop()
				cancel()
			}
		})
	}
	adders.Wait()
	for _, record := range s.list(engine.Query{}) {
		if !stored[record.Run.ID] {
			t.Errorf("run %s is there, and its caller was told that it is not", record.Run.ID)
		}
		delete(stored, record.Run.ID)
	}
	for id := range stored {
		t.Errorf("run %s is not there, and its caller was told that it is", id)
	}
}
