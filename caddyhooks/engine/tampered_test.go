package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// tampered is a store that tests interfere with. A hook that is nil does nothing.
type tampered struct {
	engine.Store
	silent  *atomic.Bool                               // no call is answered while it is true; calls end with their context
	gate    *gate                                      // holds up all calls while it is shut
	claim   func() error                               // an error is returned instead of claiming runs
	idle    func() bool                                // whether nothing is handed out for now
	claimed func([]*engine.Claim)                      // sees claims before they are handed out
	renewed func([]*engine.Claim) []*engine.Claim      // returns those that are really renewed
	renew   func(ctx context.Context) error            // an error is returned instead of renewing
	end     func(*engine.Claim, engine.End) error      // an error is returned instead of ending the run
	settle  func(*engine.Delivery) error               // an error is returned instead of settling the delivery
	prune   func(engine.Limits) (more bool, err error) // takes the store's place
	due     func([]*engine.Delivery)                   // sees deliveries before they are handed out
}

type (
	tamperedRuns struct {
		engine.Runs
		*tampered
	}
	tamperedDeliveries struct {
		engine.Deliveries
		*tampered
	}
)

func (s *tampered) Runs() engine.Runs             { return tamperedRuns{s.Store.Runs(), s} }
func (s *tampered) Deliveries() engine.Deliveries { return tamperedDeliveries{s.Store.Deliveries(), s} }

// before is called first in every call.
func (s *tampered) before(ctx context.Context) error {
	s.gate.pass()
	if s.silent == nil || !s.silent.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *tampered) Prune(ctx context.Context, limits engine.Limits) (bool, error) {
	if err := s.before(ctx); err != nil {
		return false, err
	}
	if s.prune != nil {
		return s.prune(limits)
	}
	return s.Store.Prune(ctx, limits)
}

func (s tamperedRuns) AddAll(ctx context.Context, runs []*engine.Run, terms engine.Terms) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	return s.Runs.AddAll(ctx, runs, terms)
}

func (s tamperedRuns) Claim(ctx context.Context, batch engine.Batch) ([]*engine.Claim, time.Duration, error) {
	if err := s.before(ctx); err != nil {
		return nil, 0, err
	}
	if s.claim != nil {
		if err := s.claim(); err != nil {
			return nil, 0, err
		}
	}
	if s.idle != nil && s.idle() {
		return nil, -1, nil
	}
	claims, wait, err := s.Runs.Claim(ctx, batch)
	if s.claimed != nil {
		s.claimed(claims)
	}
	s.gate.pass()
	return claims, wait, err
}

func (s tamperedRuns) Renew(ctx context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim, cancelled []engine.Cancellation, err error) {
	if err := s.before(ctx); err != nil {
		return nil, nil, err
	}
	if s.renew != nil {
		if err := s.renew(ctx); err != nil {
			return nil, nil, err
		}
	}
	if s.renewed != nil {
		claims = s.renewed(claims)
	}
	return s.Runs.Renew(ctx, claims, lease)
}

func (s tamperedRuns) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	if s.end != nil {
		if err := s.end(claim, end); err != nil {
			return nil, err
		}
	}
	if s.idle != nil && s.idle() {
		next = engine.Batch{}
	}
	return s.Runs.End(ctx, claim, end, next)
}

func (s tamperedRuns) Cancel(ctx context.Context, id, by string) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	return s.Runs.Cancel(ctx, id, by)
}

func (s tamperedRuns) Get(ctx context.Context, id string) (*engine.Record, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.Runs.Get(ctx, id)
}

func (s tamperedDeliveries) Claim(ctx context.Context, batch engine.DeliveryBatch) ([]*engine.Delivery, time.Duration, error) {
	if err := s.before(ctx); err != nil {
		return nil, 0, err
	}
	due, wait, err := s.Deliveries.Claim(ctx, batch)
	if s.due != nil {
		s.due(due)
	}
	s.gate.pass()
	return due, wait, err
}

func (s tamperedDeliveries) Renew(ctx context.Context, held []*engine.Delivery, lease time.Duration) ([]*engine.Delivery, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.Deliveries.Renew(ctx, held, lease)
}

func (s tamperedDeliveries) Settle(ctx context.Context, d *engine.Delivery, pause time.Duration, throttles ...engine.Throttle) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	if s.settle != nil {
		if err := s.settle(d); err != nil {
			return err
		}
	}
	return s.Deliveries.Settle(ctx, d, pause, throttles...)
}

// gate holds up whoever passes while it is shut. To a node whose store is behind a shut gate it is as if it stood still.
// No gate at all is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil if it is open
}

func (g *gate) pass() {
	if g == nil {
		return
	}
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

var errNoRoom = errors.New("no space left on device")

// startOn runs an engine on a store until the end of the test.
func startOn(t *testing.T, store engine.Store, c engine.Config) *engine.Engine {
	t.Helper()
	e := engine.New(store)
	e.Attach(c)
	t.Cleanup(e.Stop)
	return e
}

// add stores a run as an engine that is gone did.
func add(t *testing.T, store engine.Store, run *engine.Run) {
	t.Helper()
	if err := store.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
}

// crash has the first run in the queue started n times by engines that die of it.
func crash(t *testing.T, store engine.Store, n int) {
	t.Helper()
	for range n {
		claims, _, err := store.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Second})
		if err != nil || len(claims) != 1 {
			t.Fatalf("claimed %v, %v", claims, err)
		}
		time.Sleep(2 * time.Second)
	}
}

func get(t *testing.T, store engine.Store, id string) *engine.Record {
	t.Helper()
	record, err := store.Runs().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return record
}
