package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// slowStore takes a second to accept runs if a worker may take one on, and to end one if that is said.
type slowStore struct {
	engine.Store
	slowEnds bool
	quick    string // the hook whose runs take no time
	err      error  // why runs are not accepted

	mu      sync.Mutex
	batches []engine.Batch // what was asked for when runs were accepted
}

func (s *slowStore) Runs() engine.Runs { return slowRuns{s.Store.Runs(), s} }

type slowRuns struct {
	engine.Runs
	of *slowStore
}

func (s slowRuns) AddAndClaim(ctx context.Context, runs []*engine.Run, terms engine.Terms, batch engine.Batch) ([]*engine.Claim, error) {
	s.of.mu.Lock()
	s.of.batches = append(s.of.batches, batch)
	s.of.mu.Unlock()
	if runs[0].Hook != s.of.quick {
		time.Sleep(time.Second)
	}
	if s.of.err != nil {
		return nil, s.of.err
	}
	return s.Runs.(engine.ClaimingRuns).AddAndClaim(ctx, runs, terms, batch)
}

func (s slowRuns) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	if s.of.slowEnds && claim.Run.Hook != s.of.quick {
		time.Sleep(time.Second)
	}
	return s.Runs.End(ctx, claim, end, next)
}

func startSlow(t *testing.T, c engine.Config) (*engine.Engine, *slowStore) {
	t.Helper()
	store := &slowStore{Store: memory.New().Store()}
	e := startOn(t, store, c)
	synctest.Wait() // the first look for runs has all workers for a moment
	return e, store
}

// submitBeside is submit for other goroutines than that of the test.
func submitBeside(t *testing.T, e *engine.Engine, run *engine.Run) {
	if err := e.Submit(t.Context(), run, 0); err != nil {
		t.Error(err)
	}
}

// leaveAlone has the default runner refuse runs until it is left alone, and comes back when it can be probed.
func leaveAlone(t *testing.T, e *engine.Engine, runner *absent) {
	t.Helper()
	for i := range 5 {
		if outcome, err := e.Do(t.Context(), syncRun(fmt.Sprint("refused ", i), ""), 0); err != nil || outcome.Status == engine.Completed {
			t.Fatalf("a run is %s: %v", outcome.Status, err)
		}
	}
	runner.comeBack()
	time.Sleep(2 * time.Second)
}

func TestAWorkerTakesOnARunAsItIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := newCrowd()
		c := config(runner)
		c.Workers = 2
		e, store := startSlow(t, c)
		for i := range 4 {
			go func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				submitBeside(t, e, newRun(fmt.Sprint(i), "10s"))
			}()
		}
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if len(store.batches) != 1 { // the others come while it is stored, and are claimed afterwards
			t.Fatalf("%d requests take on a worker", len(store.batches))
		}
		for _, batch := range store.batches {
			if batch.Max != 1 || len(batch.Bounds) != 0 {
				t.Errorf("a request asks for %+v", batch)
			}
		}
		time.Sleep(time.Second)
		if n := runner.now("agent"); n != 2 {
			t.Errorf("%d turns are under way", n)
		}
		time.Sleep(20 * time.Second)
		if ended, most := runner.counts("agent"); ended != 4 || most != 2 {
			t.Errorf("%d turns have ended, %d at once", ended, most)
		}
		store.err = errors.New("no room")
		for range 3 { // and the workers are free again
			if err := e.Submit(t.Context(), newRun("refused", "1s"), 0); !errors.Is(err, store.err) {
				t.Errorf("a run that is not stored: %v", err)
			}
		}
		store.err = nil
		for i := range 2 {
			go submitBeside(t, e, newRun(fmt.Sprint(i), "10s"))
		}
		time.Sleep(2 * time.Second)
		if n := runner.now("agent"); n != 2 {
			t.Errorf("%d turns are under way after runs that were not stored", n)
		}
		time.Sleep(20 * time.Second)
		remembersNothing(t, e)
	})
}

func TestRunsThatAreAcceptedTogetherKeepTheLimitOfTheirHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := newCrowd()
		c := config(runner)
		c.Workers = 8
		e, _ := startSlow(t, c)
		e.LimitHooks(map[string]int{"storm": 2})
		for i := range 6 {
			for _, hook := range []string{"storm", "calm"} {
				run := newRun(fmt.Sprint(hook, i), "10s")
				run.Hook = hook
				go submitBeside(t, e, run)
			}
		}
		time.Sleep(2 * time.Second)
		if storm, calm := runner.now("storm"), runner.now("calm"); storm != 2 || calm != 6 {
			t.Errorf("%d turns of the storm are under way, and %d of the other hook", storm, calm)
		}
		time.Sleep(35 * time.Second)
		if ended, most := runner.counts("storm"); ended != 6 || most != 2 {
			t.Errorf("%d turns of the storm have ended, %d at once", ended, most)
		}
		remembersNothing(t, e)
	})
}

// What an operator or a signal does while a request is stored holds for what comes after it.
func TestAPauseOrAStopWhileARunIsAccepted(t *testing.T) {
	for name, halt := range map[string]func(*engine.Engine){
		"pause": func(e *engine.Engine) { e.SetPauses([]starts.Pause{{What: starts.All}}) },
		"stop":  (*engine.Engine).BeginStop,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runner := newCrowd()
				e, store := startSlow(t, config(runner))
				go submitBeside(t, e, newRun("before", "2s"))
				time.Sleep(time.Second / 2)
				halt(e)
				submit(t, e, newRun("later", "2s"))
				time.Sleep(time.Second)
				if n := runner.now("agent"); n != 1 { // whose claim was under way
					t.Errorf("%d turns are under way", n)
				}
				time.Sleep(2 * time.Second)
				if ended, most := runner.counts("agent"); ended != 1 || most != 1 {
					t.Errorf("%d turns have ended, %d at once", ended, most)
				}
				if queued, err := store.Runs().Queued(t.Context()); err != nil || queued != 1 {
					t.Errorf("%d runs are queued: %v", queued, err)
				}
			})
		})
	}
}

// A run of a runner that is back is the probe, also while a run of another runner is being accepted or ended.
func TestNobodyHoldsTheProbeOfAnother(t *testing.T) {
	for name, ends := range map[string]bool{"accepted": false, "ended": true} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					runner := &absent{then: echo}
					c := config(runner)
					c.Workers, c.Runners["other"] = 3, takes
					e, store := startSlow(t, c)
					e.LimitHooks(map[string]int{"storm": 1})
					store.slowEnds, store.quick = ends, "agent"
					storm := func(message string) {
						run := newRun(message, message)
						run.Hook, run.Runner = "storm", "other"
						submitBeside(t, e, run)
					}
					leaveAlone(t, e, runner)
					if ends {
						storm("5s") // ends a moment from now …
						storm("6s") // … and then this one can begin
						time.Sleep(4100 * time.Millisecond)
					} else {
						go storm("5s")
						time.Sleep(time.Second / 10)
					}
					begin := time.Now()
					if waits {
						if outcome, err := e.Do(t.Context(), syncRun("a", ""), 0); err != nil || outcome.Status != engine.Completed {
							t.Errorf("a run is %s: %v", outcome.Status, err)
						}
					} else {
						run := newRun("a", "")
						submit(t, e, run)
						for !found(t, e, run).Status.Ended() {
							time.Sleep(10 * time.Millisecond)
						}
					}
					if took := time.Since(begin); took > time.Second {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}
