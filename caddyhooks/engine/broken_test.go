package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// breakable is a store that can break, as one does whose file is damaged.
type breakable struct {
	engine.Store
	broken atomic.Bool
	calls  atomic.Int32 // that failed
}

type (
	breakableRuns struct {
		engine.Runs
		*breakable
	}
	breakableDeliveries struct {
		engine.Deliveries
		*breakable
	}
)

func (s *breakable) Runs() engine.Runs { return breakableRuns{s.Store.Runs(), s} }
func (s *breakable) Deliveries() engine.Deliveries {
	return breakableDeliveries{s.Store.Deliveries(), s}
}

func (s *breakable) check() error {
	if s.broken.Load() {
		s.calls.Add(1)
		return &engine.StoreBrokenError{Reason: "page 5 is torn"}
	}
	return nil
}

func (s *breakable) Prune(ctx context.Context, limits engine.Limits) (bool, error) {
	if err := s.check(); err != nil {
		return false, err
	}
	return s.Store.Prune(ctx, limits)
}

func (s *breakable) Close() error { return errors.Join(s.Store.Close(), s.check()) }

func (s breakableRuns) AddAll(ctx context.Context, runs []*engine.Run, terms engine.Terms) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.Runs.AddAll(ctx, runs, terms)
}

func (s breakableRuns) Claim(ctx context.Context, batch engine.Batch) ([]*engine.Claim, time.Duration, error) {
	if err := s.check(); err != nil {
		return nil, 0, err
	}
	return s.Runs.Claim(ctx, batch)
}

func (s breakableRuns) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.Runs.End(ctx, claim, end, next)
}

func (s breakableRuns) Get(ctx context.Context, id string) (*engine.Record, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.Runs.Get(ctx, id)
}

func (s breakableDeliveries) Claim(ctx context.Context, batch engine.DeliveryBatch) ([]*engine.Delivery, time.Duration, error) {
	if err := s.check(); err != nil {
		return nil, 0, err
	}
	return s.Deliveries.Claim(ctx, batch)
}

func (s breakableDeliveries) Settle(ctx context.Context, d *engine.Delivery, pause time.Duration, throttles ...engine.Throttle) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.Deliveries.Settle(ctx, d, pause, throttles...)
}

func TestBrokenStoreIsSaidOnceAndHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &breakable{Store: memory.New().Store()}
		logs, lines := observer.New(zap.WarnLevel)
		release, sent := make(chan struct{}), make(chan struct{})
		c := config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "with a callback" {
				return engine.Reply{Text: "called back"}, nil
			}
			<-release
			return engine.Reply{Text: "done"}, nil
		}))
		c.Log, c.Workers = zap.New(logs), 2
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			<-release
			close(sent)
			return nil
		})
		e := startOn(t, store, c)
		withCallback := newRun("a", "with a callback")
		withCallback.CallbackURL = "https://example.com/"
		submit(t, e, withCallback)
		synctest.Wait()
		underWay := waitFor(t, e, syncRun("b", ""))
		submit(t, e, newRun("c", ""))
		synctest.Wait()
		queued := waitFor(t, e, syncRun("d", ""))
		synctest.Wait()

		store.broken.Store(true)
		began := time.Now()
		for range 5 {
			var broken *engine.StoreBrokenError
			if err := e.Submit(t.Context(), newRun("e", ""), 0); !errors.As(err, &broken) {
				t.Fatalf("got %v", err)
			}
		}
		if outcome := <-queued; outcome.Failure != engine.ShuttingDown || outcome.RetryAfter == 0 {
			t.Errorf("the caller whose run is queued gets %+v", outcome)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("that took %s", waited)
		}
		close(release)
		if outcome := <-underWay; outcome.Text != "done" {
			t.Errorf("the caller whose run is under way gets %+v", outcome)
		}
		<-sent
		synctest.Wait()
		calls := store.calls.Load()
		time.Sleep(time.Hour)
		// Leases are renewed every four seconds, after which the engine looks for runs and for deliveries. Every minute it prunes,
		// and looks for runs that waited too long.
		if more := store.calls.Load() - calls; more > 2*3600/4+2*60 {
			t.Errorf("the store was asked %d times in an hour", more)
		}
		began = time.Now()
		e.Stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("stopping took %s", took)
		}
		said := map[string]int{}
		for _, line := range lines.All() {
			said[line.Message]++
		}
		const once = "the store is broken: nothing more is accepted or carried out. Restart the service; it checks the store, and says what to do if it is damaged"
		if said[once] != 1 || said["run end not stored; the run will restart"] != 2 || len(said) != 2 {
			t.Errorf("logged: %v", said)
		}
	})
}

// hanging is a store that stops answering, whatever contexts say.
type hanging struct {
	engine.Store
	hang *gate
}

type hangingRuns struct {
	engine.Runs
	hang *gate
}

func (s *hanging) Runs() engine.Runs { return hangingRuns{s.Store.Runs(), s.hang} }

func (s *hanging) Close() error {
	s.hang.pass()
	return s.Store.Close()
}

func (s hangingRuns) Claim(ctx context.Context, batch engine.Batch) ([]*engine.Claim, time.Duration, error) {
	s.hang.pass()
	return s.Runs.Claim(ctx, batch)
}

func (s hangingRuns) Renew(ctx context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim, cancelled []engine.Cancellation, err error) {
	s.hang.pass()
	return s.Runs.Renew(ctx, claims, lease)
}

func TestStopDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{memory.New().Store(), new(gate)}
		e := startOn(t, store, config(echo))
		synctest.Wait()
		store.hang.close()
		submit(t, e, newRun("a", ""))
		time.Sleep(time.Minute)
		began := time.Now()
		e.Stop()
		if took := time.Since(began); took > 10*time.Second+2*5*time.Second {
			t.Errorf("stopping took %s", took)
		}
		store.hang.open()
	})
}

func TestSubmitDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := new(atomic.Bool)
		e := startOn(t, &tampered{Store: memory.New().Store(), silent: silent}, config(echo))
		silent.Store(true)
		began := time.Now()
		if err := e.Submit(t.Context(), newRun("a", ""), 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, err := e.Find(t.Context(), "018f0000-0000-7000-8000-000000000000", 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("that took %s", took)
		}
	})
}
