package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// The failure policy is the same for all runners: a runner says by the kind of its error what happened, and the engine what
// becomes of the run. Callers get a sentence that tells nothing of the inside, operators the reason.
func TestFailurePolicy(t *testing.T) {
	const (
		again  = "is tried again inside its time"
		queued = "goes back to the queue"
		fails  = "fails at once"

		noAnswer = "The agent failed to answer."
		notNow   = "The agent is not available right now; try again later."
		late     = "The agent did not take the run on within 60 seconds."
		slow     = "The agent did not finish within 60 seconds."
		notThere = "The agent that the run was accepted for is not configured any more."
	)
	unreachable := &engine.UnavailableError{Err: errors.New("reaching the runner: refused at 10.1.2.3")}
	busy := &engine.UnavailableError{Busy: true, Err: errors.New("the runner answered 429")}
	later := &engine.UnavailableError{Busy: true, RetryAfter: 2 * time.Minute, Err: errors.New("the runner answered 503")}
	trouble := &engine.UnavailableError{Busy: true, Failing: true, Err: errors.New("the model answered 500")}
	const (
		inTime     = "the runner did not take the run on within the 1m0s that the run had: "
		unrepaired = "the runner did not answer within the 1m0s that the run had: repair attempt 1: "
	)
	for _, tc := range []struct {
		kind   string
		err    error // of every call, or of every repair; nil panics
		who    string
		then   string // what happens to the run
		caller string // the last message it gets
		reason string // for operators
		state  string // of the runner, a while after six such runs
	}{
		{"unreachable", unreachable, "async", queued, "", "", engine.RunnerUnreachable},
		{"unreachable", unreachable, "sync", fails, notNow, "reaching the runner: refused at 10.1.2.3", engine.RunnerUnknown},
		{"unreachable", unreachable, "async repair", again, slow, unrepaired + "reaching the runner: refused at 10.1.2.3", engine.RunnerUnknown},
		{"unreachable", unreachable, "sync repair", again, slow, unrepaired + "reaching the runner: refused at 10.1.2.3", engine.RunnerUnknown},

		{"busy", busy, "async", queued, "", "", engine.RunnerBusy},
		{"busy", busy, "sync", again, late, inTime + "the runner answered 429", engine.RunnerUnknown},
		{"busy", busy, "async repair", again, slow, unrepaired + "the runner answered 429", engine.RunnerOK},
		{"busy", busy, "sync repair", again, slow, unrepaired + "the runner answered 429", engine.RunnerOK},

		{"busy for longer than the run has", later, "async", queued, "", "", engine.RunnerBusy},
		{"busy for longer than the run has", later, "sync", fails, notNow, "the runner answered 503", engine.RunnerUnknown},
		{"busy for longer than the run has", later, "async repair", again, slow, unrepaired + "the runner answered 503", engine.RunnerOK},
		{"busy for longer than the run has", later, "sync repair", fails, notNow, "repair attempt 1: the runner answered 503", engine.RunnerOK},

		{"a model that fails", trouble, "async", queued, "", "", engine.RunnerBusy},
		{"a model that fails", trouble, "sync", again, late, inTime + "the model answered 500", engine.RunnerUnknown},
		{"a model that fails", trouble, "async repair", again, slow, unrepaired + "the model answered 500", engine.RunnerOK},

		{"401", errors.New("the runner answered 401"), "async", fails, noAnswer, "the runner answered 401", engine.RunnerFailing},
		{"403", errors.New("the runner answered 403"), "sync", fails, noAnswer, "the runner answered 403", engine.RunnerFailing},
		{"500", errors.New("the runner answered 500"), "async", fails, noAnswer, "the runner answered 500", engine.RunnerFailing},
		{"500", errors.New("the runner answered 500"), "sync", fails, noAnswer, "the runner answered 500", engine.RunnerFailing},
		{"500", errors.New("the runner answered 500"), "async repair", fails, noAnswer, "repair attempt 1: the runner answered 500", engine.RunnerFailing},
		{"500", errors.New("the runner answered 500"), "sync repair", fails, noAnswer, "repair attempt 1: the runner answered 500", engine.RunnerFailing},
		{"a broken answer", errors.New("the runner's answer broke off"), "async", fails, noAnswer, "the runner's answer broke off", engine.RunnerFailing},
		{"a panic", nil, "async", fails, noAnswer, "the runner panicked: odd", engine.RunnerFailing},
		{"a panic", nil, "sync repair", fails, noAnswer, "repair attempt 1: the runner panicked: odd", engine.RunnerFailing},

		{"a runner that is gone", nil, "async gone", fails, notThere, `runner "old" is not configured any more`, ""},
		{"a runner that is gone", nil, "sync gone", fails, notThere, `runner "old" is not configured any more`, ""},
	} {
		t.Run(tc.kind+" "+tc.who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sync, repair, gone := strings.HasPrefix(tc.who, "sync"), strings.HasSuffix(tc.who, "repair"), strings.HasSuffix(tc.who, "gone")
				c := config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
					switch {
					case repair && turn.Repair == 0:
						return engine.Reply{Text: "no JSON"}, nil
					case tc.err == nil:
						panic("odd")
					default:
						return engine.Reply{}, tc.err
					}
				}))
				c.Workers = 16
				e := start(t, c)
				one := func(i int) *engine.Run {
					run := newRun(fmt.Sprint(i), "")
					run.Sync = sync
					if repair {
						run.Schema = json.RawMessage(`{"type":"object"}`)
					}
					if gone {
						run.Runner = "old"
					}
					return run
				}
				run := one(0)
				var outcomes <-chan engine.Outcome
				if sync {
					outcomes = waitFor(t, e, run)
				} else {
					submit(t, e, run)
				}
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				then := map[engine.Status]string{engine.Running: again, engine.Queued: queued, engine.Failed: fails}[found(t, e, run).Status]
				if then != tc.then {
					t.Errorf("it %s, want: it %s", then, tc.then)
				}
				if sync {
					if outcome := <-outcomes; outcome.Message != tc.caller {
						t.Errorf("the caller is told %q, want %q", outcome.Message, tc.caller)
					}
				}
				time.Sleep(100 * time.Second) // longer than its time, and too short for the last try of a model that fails
				record := found(t, e, run)
				if record.Outcome.Message != tc.caller || record.Outcome.Account.Reason != tc.reason {
					t.Errorf("it ends with %q for the caller and %q for operators, want %q and %q", record.Outcome.Message, record.Outcome.Account.Reason, tc.caller, tc.reason)
				}
				if waits := strings.Contains(record.WaitingFor, "The agent "); waits != (tc.then == queued) || strings.Contains(record.WaitingFor, "10.1.2.3") {
					t.Errorf("it waits for %q", record.WaitingFor)
				}
				if gone {
					return
				}
				for i := range 5 {
					another := one(i + 1)
					if sync { // whether it is refused without a try is for another test
						go func() { _, _ = e.Do(t.Context(), another, 0) }()
					} else {
						submit(t, e, another)
					}
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if states := e.RunnerStates(); len(states) != 1 || states[0].State != tc.state || states[0].LastError == "" {
					t.Errorf("the runner is %+v, want %s", states, tc.state)
				}
			})
		})
	}
}

// A dead runner holds no workers, so that the runs of others go on as if it was not there.
func TestADeadRunnerTakesNoWorkersFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &absent{takes: 5 * time.Second, then: echo} // as one whose connections time out
		c := config(echo)
		c.Runners["dead"] = dead
		c.Workers = 16
		e := start(t, c)
		for i := range 500 {
			run := newRun(fmt.Sprint("dead ", i), "")
			run.Runner = "dead"
			submit(t, e, run)
		}
		time.Sleep(6 * time.Second) // all workers have found out
		dead.forget()
		for i := range 100 {
			run := newRun(fmt.Sprint(i), "hello")
			submit(t, e, run)
			synctest.Wait()
			if record := found(t, e, run); record.Status != engine.Completed {
				t.Fatalf("run %d of the runner that works is %+v", i, record)
			}
			time.Sleep(time.Second)
		}
		if _, atOnce, _ := dead.counts(); atOnce != 1 {
			t.Errorf("%d workers were with the dead runner at once, want one", atOnce)
		}
		states := e.RunnerStates()
		if len(states) != 2 || states[0].Name != "dead" || states[0].State != engine.RunnerUnreachable || states[1].State != engine.RunnerOK {
			t.Errorf("the runners are %+v", states)
		}
	})
}

// Runs whose runner is gone after a reload fail at once, also those that waited for it, and no other runner gets them.
func TestRunsOfARunnerThatIsGoneFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &absent{retryAfter: time.Hour, then: echo}
		var others atomic.Int32
		c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			others.Add(1)
			return engine.Reply{}, nil
		}))
		before := c
		before.Runners = map[string]engine.Runner{"default": c.Runners["default"], "old": away}
		e := start(t, before)
		var runs []*engine.Run
		for i := range 50 {
			runs = append(runs, newRun(fmt.Sprint(i/2), ""))
			runs[i].Runner = "old"
			submit(t, e, runs[i])
		}
		time.Sleep(time.Minute)
		if states := e.RunnerStates(); states[1].Name != "old" || states[1].State != engine.RunnerUnreachable {
			t.Fatalf("before the reload the runners are %+v", states)
		}
		defer e.Attach(c)()
		time.Sleep(time.Second)
		for i, run := range runs {
			record := found(t, e, run)
			if record.Status != engine.Failed || record.Outcome.Failure != engine.RunnerFailed || record.Outcome.Account.Reason != `runner "old" is not configured any more` {
				t.Fatalf("run %d is %+v", i, record)
			}
		}
		caller := syncRun("caller", "")
		caller.Runner = "old"
		if outcome, err := e.Do(t.Context(), caller, 0); err != nil || outcome.Message != "The agent that the run was accepted for is not configured any more." {
			t.Errorf("a caller is told %+v, %v", outcome, err)
		}
		if n := others.Load(); n != 0 {
			t.Errorf("another runner carried out %d of them", n)
		}
		if states := e.RunnerStates(); len(states) != 1 || states[0].Name != "default" {
			t.Errorf("after the reload the runners are %+v", states)
		}
	})
}

// Turns that a reload found under way may still be refused, by a runner that nobody can wait for.
func TestARunnerThatIsGoneIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &absent{takes: 20 * time.Second, then: echo}
		c := config(echo)
		c.Workers = 16
		before := c
		before.Runners = map[string]engine.Runner{"default": echo, "old": away}
		e := start(t, before)
		var runs []*engine.Run
		for i := range 40 {
			runs = append(runs, newRun(fmt.Sprint(i), ""))
			runs[i].Runner = "old"
			submit(t, e, runs[i])
		}
		time.Sleep(time.Second)
		defer e.Attach(c)()
		if states := e.RunnerStates(); len(states) != 2 || states[1].Name != "old" || states[1].InFlight != 16 {
			t.Errorf("right after the reload the runners are %+v", states)
		}
		time.Sleep(25 * time.Second)
		for i, run := range runs {
			if record := found(t, e, run); record.Status != engine.Failed {
				t.Errorf("run %d is %+v", i, record)
			}
		}
		if states := e.RunnerStates(); len(states) != 1 {
			t.Errorf("the runners are %+v", states)
		}
	})
}
