package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// errDown is what a runner returns whose agent went down.
var errDown = fmt.Errorf("taking the turn: %w", &engine.InterruptedError{Err: errors.New("the agent exited with status 139")})

// frail is a runner whose agent goes down in its first turns, and then answers with the message.
type frail struct {
	falls int32 // how often
	turns atomic.Int32
}

func (f *frail) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if f.turns.Add(1) <= f.falls {
		return engine.Reply{}, errDown
	}
	return echo(ctx, turn)
}

func TestARunWhoseAgentWentDownIsStartedAgain(t *testing.T) {
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprintf("sync %t", sync), func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, open func() engine.Store) {
				core, logs := observer.New(zap.InfoLevel)
				c := config(&frail{falls: 1})
				c.Log, c.MaxAttempts = zap.New(core), 2
				e := startOn(t, open(), c)
				run, after := newRun("chat", "hello"), newRun("chat", "after")
				run.Sync, run.QueueTime = sync, time.Hour
				if sync {
					began := time.Now()
					if outcome := <-waitFor(t, e, run); outcome.Status != engine.Completed || outcome.Text != "hello" {
						t.Errorf("the caller gets %+v", outcome)
					}
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("after %v", took)
					}
					submit(t, e, after)
				} else {
					submit(t, e, run)
					submit(t, e, after)
				}
				record, next := find(t, e, run.ID), find(t, e, after.ID)
				if record.Status != engine.Completed || record.Attempts != 2 || record.Outcome.Text != "hello" {
					t.Errorf("got %+v", record)
				}
				if next.Status != engine.Completed || next.Attempts != 1 || next.StartedAt.Before(record.FinishedAt) {
					t.Errorf("the run after it is %+v", next)
				}
				if state := stateOf(t, e, "default"); state.State != engine.RunnerOK {
					t.Errorf("the runner is %+v", state)
				}
				atRest(t, e)
				for line, field := range map[string]string{
					"agent crashed; run restarted": "taking the turn: the agent exited with status 139",
					"run restarted":                "",
				} {
					lines := logs.FilterMessage(line).FilterField(zap.String("run_id", run.ID)).All()
					if len(lines) != 1 || field != "" && lines[0].ContextMap()["error"] != field {
						t.Errorf("%q is logged as %v", line, lines)
					}
				}
			})
		})
	}
}

func TestARunWhoseAgentGoesDownIsStartedUpToMaxAttempts(t *testing.T) {
	const once, thrice = "the agent went down in the middle of the run", "the run was started 3 times, and the service or the agent went down each time"
	for _, tc := range []struct {
		crashes int // of the service, before
		falls   int32
		max     int
		reason  string // "" if it completes
	}{
		{0, 1, 1, once},
		{0, 2, 3, ""},
		{0, 3, 3, thrice},
		{0, 9, 3, thrice},
		{1, 1, 3, ""},
		{2, 1, 3, thrice},
		{0, 5, 0, ""},
	} {
		for _, sync := range []bool{false, true} {
			if sync && tc.crashes > 0 {
				continue // its caller is gone
			}
			t.Run(fmt.Sprintf("%d crashes and %d falls of %d, sync %t", tc.crashes, tc.falls, tc.max, sync), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.New().Store()
					runner := &frail{falls: tc.falls}
					c := config(runner)
					c.MaxAttempts = tc.max
					var sent []*engine.Delivery
					c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error { sent = append(sent, d); return nil })
					run := newRun("chat", "hello")
					run.CallbackURL, run.Timeout, run.QueueTime = "https://example.com", time.Hour, time.Second
					if tc.crashes > 0 {
						add(t, store, run)
						crash(t, store, tc.crashes)
					}
					e := startOn(t, store, c)
					switch {
					case sync:
						run.Sync = true
						waitFor(t, e, run)
						synctest.Wait()
					case tc.crashes == 0:
						submit(t, e, run)
					}
					record := find(t, e, run.ID)
					synctest.Wait()
					want, attempts := engine.Completed, tc.crashes+int(tc.falls)+1
					if tc.reason != "" {
						want, attempts = engine.Failed, tc.max
					}
					if record.Status != want || record.Attempts != attempts || int(runner.turns.Load()) != attempts-tc.crashes || len(sent) != 1 {
						t.Fatalf("after %d turns the run is %+v, and %d callbacks were sent", runner.turns.Load(), record, len(sent))
					}
					if tc.reason == "" {
						return
					}
					outcome := record.Outcome
					message := strings.ToUpper(tc.reason[:1]) + tc.reason[1:] + "."
					if outcome.Failure != engine.Interrupted || outcome.Message != message ||
						outcome.Account.Reason != tc.reason+": taking the turn: the agent exited with status 139" || sent[0].Body != errorBody(message) {
						t.Errorf("the outcome is %+v, and the callback %q", outcome, sent[0].Body)
					}
					if len(record.Steps) != 2 {
						t.Errorf("the steps are %+v", record.Steps)
					}
				})
			})
		}
	}
}

// A caller that has no time for another pause is notified at once.
func TestACallerWithoutTimeIsToldThatTheAgentWentDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &frail{falls: 9}
		e := start(t, config(runner))
		run := syncRun("chat", "hello")
		run.Timeout = time.Second
		began := time.Now()
		outcome := <-waitFor(t, e, run)
		if outcome.Status != engine.Failed || outcome.Failure != engine.Interrupted || time.Since(began) > 0 || runner.turns.Load() != 2 {
			t.Errorf("after %v and %d turns: %+v", time.Since(began), runner.turns.Load(), outcome)
		}
	})
}

// What ends a run is no interruption, even if the agent goes down by it.
func TestATurnThatSomebodyEndedIsNotStartedAgain(t *testing.T) {
	for want, then := range map[engine.Status]func(t *testing.T, e *engine.Engine, run *engine.Run){
		engine.TimedOut: func(*testing.T, *engine.Engine, *engine.Run) { time.Sleep(time.Hour) },
		engine.Cancelled: func(t *testing.T, e *engine.Engine, run *engine.Run) {
			if _, err := e.Cancel(t.Context(), run.ID, "somebody"); err != nil {
				t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			turns := 0
			e := start(t, config(runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
				turns++
				<-ctx.Done()
				return engine.Reply{}, errDown
			})))
			run := newRun("chat", "hello")
			submit(t, e, run)
			synctest.Wait()
			then(t, e, run)
			synctest.Wait()
			if record := find(t, e, run.ID); record.Status != want || record.Attempts != 1 || turns != 1 {
				t.Errorf("after %d turns it is %s with %d attempts, want %s", turns, record.Status, record.Attempts, want)
			}
		})
	}
}

// Nor is one that is cancelled while it goes back to the queue.
func TestARunThatIsCancelledWhileItIsPutBackIsNotStartedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		sync bool
		fold engine.Fold
	}{
		"the agent went down":               {err: errDown},
		"the agent went down in a fold":     {err: errDown, fold: engine.Fold{Window: time.Second, Max: 3}},
		"the agent went down for somebody":  {err: errDown, sync: true},
		"the agent did not take the run on": {err: &engine.UnavailableError{Err: errors.New("away")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e *engine.Engine
				var turns atomic.Int32
				runs := []*engine.Run{newRun("chat", "hello")}
				if tc.fold.Max > 0 {
					runs = append(runs, newRun("chat", "and more"))
				}
				asked := make(chan error, 10)
				store := &tampered{Store: memory.New().Store(), end: func(_ *engine.Claim, end engine.End) error {
					if end.Requeue {
						go func() {
							_, err := e.Cancel(t.Context(), runs[0].ID, "somebody")
							asked <- err
						}()
						synctest.Wait() // the wish is with the store
					}
					return nil
				}}
				e = startOn(t, store, config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
					turns.Add(1)
					return engine.Reply{}, tc.err
				})))
				for _, run := range runs {
					run.Sync, run.Fold = tc.sync, tc.fold
					if tc.sync {
						<-waitFor(t, e, run)
					} else {
						submit(t, e, run)
					}
				}
				for _, run := range runs {
					if record := find(t, e, run.ID); record.Status != engine.Cancelled || record.Outcome.Account.CancelledBy != "somebody" {
						t.Errorf("got %+v", record)
					}
				}
				if err := <-asked; err != nil || turns.Load() != 1 {
					t.Errorf("after %d turns: %v", turns.Load(), err)
				}
			})
		})
	}
}

// What an interrupted turn left is there after the next start: the count, the pause and the session.
func TestAnInterruptedRunOutlivesTheEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	open := func() engine.Store {
		database, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return database.Store()
	}
	e := startOn(t, open(), config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
		return engine.Reply{Session: "the one that went down"}, errDown
	})))
	run := remembering("chat", "hello")
	submit(t, e, run)
	eventually(t, "the run waits", func() bool { return found(t, e, run).WaitingFor != "" })
	e.Stop()
	e = startOn(t, open(), config(sessionKeeper))
	if record := find(t, e, run.ID); record.Status != engine.Completed || record.Attempts < 2 || record.Outcome.Text != "the one that went down" {
		t.Errorf("got %+v", record)
	}
}

func TestACallerOfAnotherNodeGetsTheAnswerOfASecondStart(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		runner := &frail{falls: 1}
		a := startOn(t, open(), acceptsOnly(config(runner)))
		startOn(t, open(), config(runner))
		run := syncRun("chat", "hello")
		if outcome := <-waitFor(t, a, run); outcome.Text != "hello" || runner.turns.Load() != 2 {
			t.Errorf("after %d turns the caller gets %+v", runner.turns.Load(), outcome)
		}
	})
}

func TestAnAgentThatGoesDownWhileTheEngineStops(t *testing.T) {
	for name, tc := range map[string]struct {
		sync, callback bool
		status         engine.Status // after the stop
	}{
		"nobody waits":   {false, false, engine.Queued},
		"a caller waits": {true, false, engine.Failed},
		"a caller waits, and others will be told": {true, true, engine.Queued},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				fall := make(chan struct{})
				e := startOn(t, data.Store(), config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
					<-fall
					return engine.Reply{}, errDown
				})))
				run := newRun("chat", "hello")
				run.Sync = tc.sync
				if tc.callback {
					run.CallbackURL = "https://example.com"
				}
				outcomes := make(<-chan engine.Outcome)
				if tc.sync {
					outcomes = waitFor(t, e, run)
				} else {
					submit(t, e, run)
				}
				synctest.Wait()
				e.BeginStop()
				synctest.Wait()
				close(fall)
				synctest.Wait()
				if tc.sync {
					if outcome := <-outcomes; outcome.Failure != engine.ShuttingDown {
						t.Errorf("the caller gets %+v", outcome)
					}
				}
				e.Stop()
				if record := get(t, data.Store(), run.ID); record.Status != tc.status || record.Attempts != 1 {
					t.Errorf("after the stop it is %s with %d attempts, want %s", record.Status, record.Attempts, tc.status)
				}
			})
		})
	}
}

func TestAReaderSeesThatARunBeginsAgainAfterItsAgentWentDown(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		words, fall := make(speaker), make(chan struct{})
		var turns atomic.Int32
		e := startOn(t, open(), config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turns.Add(1) == 1 {
				turn.Emit(engine.Progress{Text: "half"})
				<-fall
				return engine.Reply{}, errDown
			}
			return words.Run(ctx, turn)
		})))
		run := newRun("chat", "hello")
		submit(t, e, run)
		eventually(t, "the turn began", isRunning(t, e, run))
		r := follow(t, e, run, 0)
		for r.text != "half" {
			if _, err := r.read(); err != nil {
				t.Fatal(err)
			}
		}
		close(fall)
		words <- "all of it"
		words <- sayNoMore
		r.all()
		if log := fmt.Sprint(r.log); r.text != "all of it" || !strings.Contains(log, "=") {
			t.Errorf("the reader has %q after %s", r.text, log)
		}
	})
}

func TestRunsThatAreFoldedAreStartedAgainTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &frail{falls: 2}
		c := config(runner)
		c.MaxAttempts = 3
		e := start(t, c)
		var runs []*engine.Run
		for i := range 3 {
			run := newRun("chat", fmt.Sprint("message ", i))
			run.Fold = engine.Fold{Window: time.Second, Max: 10}
			submit(t, e, run)
			runs = append(runs, run)
		}
		time.Sleep(runs[0].Fold.Window)
		synctest.Wait()
		if first := found(t, e, runs[0]); first.Status != engine.Queued || first.Attempts != 1 ||
			first.WaitingFor != "The agent went down in the middle of the run. The run starts again in a moment." {
			t.Errorf("after the first turn the first run is %+v", first)
		}
		for _, run := range runs {
			if record := find(t, e, run.ID); record.Status != engine.Completed || record.Attempts != 3 || !strings.Contains(record.Outcome.Text, "message 2") {
				t.Errorf("got %+v", record)
			}
		}
		if n := runner.turns.Load(); n != 3 {
			t.Errorf("%d turns, want 3", n)
		}
	})
}

// The turn was carried out, so it is not repeated for the sake of a repair.
func TestARepairWhoseAgentWentDownIsTriedAgain(t *testing.T) {
	for _, falls := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			turns, repairs := 0, 0
			c := config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
				if turn.Repair == 0 {
					turns++
					return engine.Reply{Text: "no"}, nil
				}
				if repairs++; repairs <= falls {
					return engine.Reply{}, errDown
				}
				return engine.Reply{Text: "{}"}, nil
			}))
			c.MaxAttempts = 3
			e := start(t, c)
			run := newRun("chat", "hello")
			run.Schema = json.RawMessage(`{"type":"object"}`)
			submit(t, e, run)
			record := find(t, e, run.ID)
			outcome := record.Outcome
			if turns != 1 || repairs != 3 || record.Attempts != 1 {
				t.Errorf("%d turns and %d repairs in %d attempts", turns, repairs, record.Attempts)
			}
			if falls == 2 && (outcome.Status != engine.Completed || outcome.Repairs != 1) {
				t.Errorf("got %+v", outcome)
			}
			if falls == 3 && (outcome.Failure != engine.Interrupted || outcome.Message != "The agent went down in the middle of the run." || outcome.Text != "no") {
				t.Errorf("got %+v", outcome)
			}
		})
	}
}
