package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

type runnerFunc func(ctx context.Context, turn engine.Turn) (engine.Reply, error)

func (f runnerFunc) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	return f(ctx, turn)
}

// echo answers with the message.
var echo = runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
	return engine.Reply{Text: turn.Message}, nil
})

// hang does not answer until its context is done.
var hang = runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
	<-ctx.Done()
	return engine.Reply{}, ctx.Err()
})

// takes answers after as long as the message says.
var takes = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	length, err := time.ParseDuration(turn.Message)
	if err != nil {
		return engine.Reply{}, err
	}
	select {
	case <-time.After(length):
		return engine.Reply{Text: "done"}, nil
	case <-ctx.Done():
		return engine.Reply{}, context.Cause(ctx)
	}
})

type senderFunc func(ctx context.Context, d *engine.Delivery) error

func (f senderFunc) Send(ctx context.Context, d *engine.Delivery) error { return f(ctx, d) }
func (senderFunc) ValidTo(string) error                                 { return nil }

func config(runner engine.Runner) engine.Config {
	return engine.Config{Runners: map[string]engine.Runner{"default": runner}, DefaultRunner: "default", Workers: 4, DrainTimeout: 10 * time.Second, Log: zap.NewNop(),
		ErrorBody: func(message string) (string, string) { return "application/json", errorBody(message) }}
}

// errorBody is the body of callbacks for runs without a text.
func errorBody(message string) string { return `{"error":"` + message + `"}` }

// start runs an engine on an empty memory store until the end of the test. Use it in a synctest bubble: time is not real.
func start(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	return startOn(t, memory.New().Store(), c)
}

func newRun(chat, message string) *engine.Run {
	return &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: message, Timeout: time.Minute, MemoryPreset: engine.MemoryDisabled}
}

func syncRun(chat, message string) *engine.Run {
	run := newRun(chat, message)
	run.Sync = true
	return run
}

func submit(t *testing.T, e *engine.Engine, run *engine.Run) {
	t.Helper()
	if err := e.Submit(t.Context(), run, 0); err != nil {
		t.Fatal(err)
	}
}

// waitFor submits a run for a caller that waits for its outcome.
func waitFor(t *testing.T, e *engine.Engine, run *engine.Run) <-chan engine.Outcome {
	t.Helper()
	outcomes := make(chan engine.Outcome, 1)
	go func() {
		outcome, err := e.Do(t.Context(), run, 0)
		if err != nil {
			t.Error(err)
		}
		outcomes <- outcome
	}()
	return outcomes
}

func TestRunsOfOneChatAreCarriedOutOneAtATimeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		var atOnce, most atomic.Int32
		e := start(t, config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			most.Store(max(most.Load(), atOnce.Add(1)))
			time.Sleep(time.Millisecond)
			mu.Lock()
			got = append(got, turn.Message)
			mu.Unlock()
			atOnce.Add(-1)
			return engine.Reply{}, nil
		})))
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
			submit(t, e, newRun("chat", fmt.Sprint(i)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(got, want) || most.Load() != 1 {
			t.Errorf("%d runs, %d at once, in the order %v", len(got), most.Load(), got)
		}
	})
}

func TestChatsGoSideBySideUpToTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		release := make(chan struct{})
		e := start(t, config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			running.Add(1)
			<-release
			return engine.Reply{}, nil
		})))
		for i := range 10 {
			submit(t, e, newRun(fmt.Sprint("chat", i), ""))
		}
		synctest.Wait()
		if n := running.Load(); n != 4 {
			t.Errorf("%d runs at once, want 4", n)
		}
		close(release)
		synctest.Wait()
		if n := running.Load(); n != 10 {
			t.Errorf("%d runs carried out, want 10", n)
		}
	})
}

func TestEveryCallerGetsTheAnswerOfItsOwnRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(echo))
		var group sync.WaitGroup
		for i := range 500 {
			group.Go(func() {
				message := fmt.Sprint(i)
				outcome, err := e.Do(t.Context(), syncRun("the same chat", message), 0)
				if err != nil || outcome.Status != engine.Completed || outcome.Text != message {
					t.Errorf("caller %s got %+v, %v", message, outcome, err)
				}
			})
		}
		group.Wait()
	})
}

func TestTimeoutIsEnforced(t *testing.T) {
	t.Run("for a run that nobody waits for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ended atomic.Pointer[engine.Delivery]
			c := config(hang)
			c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
				ended.Store(d)
				return nil
			})
			e := start(t, c)
			run := newRun("chat", "")
			run.CallbackURL = "https://example.com"
			submit(t, e, run)
			time.Sleep(time.Minute - time.Second)
			if ended.Load() != nil {
				t.Fatal("ended early")
			}
			time.Sleep(2 * time.Second)
			if d := ended.Load(); d == nil || d.RunStatus != engine.TimedOut || !strings.Contains(d.Body, "60 seconds") {
				t.Errorf("got %+v", d)
			}
		})
	})
	t.Run("for a caller whose run hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := start(t, config(hang))
			begin := time.Now()
			outcome, err := e.Do(t.Context(), syncRun("chat", ""), 0)
			if err != nil || outcome.Status != engine.TimedOut || time.Since(begin) != time.Minute {
				t.Errorf("got %+v, %v after %s", outcome, err, time.Since(begin))
			}
		})
	})
	t.Run("for a caller whose run never got its turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var turns atomic.Int32
			e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
				turns.Add(1)
				return hang(ctx, turn)
			})))
			first := newRun("chat", "")
			first.Timeout = time.Hour
			submit(t, e, first)
			begin := time.Now()
			outcome, err := e.Do(t.Context(), syncRun("chat", ""), 0)
			if err != nil || outcome.Status != engine.TimedOut || time.Since(begin) != time.Minute || turns.Load() != 1 {
				t.Errorf("got %+v, %v after %s, %d turns", outcome, err, time.Since(begin), turns.Load())
			}
		})
	})
	t.Run("for a caller whose runner does not return", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			e := start(t, config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
				<-release
				return engine.Reply{}, nil
			})))
			outcome, err := e.Do(t.Context(), syncRun("chat", ""), 0)
			if err != nil || outcome.Status != engine.TimedOut {
				t.Errorf("got %+v, %v", outcome, err)
			}
			close(release)
		})
	})
}

func TestCallerThatGoesAwayCancelsItsRun(t *testing.T) {
	for _, tc := range []struct {
		name     string
		queued   bool
		callback string
		turns    int32
		ended    bool
	}{
		{"while it runs", false, "", 1, true},
		{"while it waits", true, "", 0, true},
		{"but not one with a callback", false, "https://example.com", 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turns, ended atomic.Int32
				release := make(chan struct{})
				c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
					if turn.Message == "first" {
						<-release
						return engine.Reply{}, nil
					}
					turns.Add(1)
					select {
					case <-ctx.Done():
						ended.Add(1)
					case <-release:
					}
					return engine.Reply{}, ctx.Err()
				}))
				c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { return nil })
				e := start(t, c)
				if tc.queued {
					submit(t, e, newRun("chat", "first"))
				}
				ctx, leave := context.WithCancel(t.Context())
				go func() {
					time.Sleep(time.Second)
					leave()
				}()
				run := syncRun("chat", "second")
				run.CallbackURL = tc.callback
				_, err := e.Do(ctx, run, 0)
				synctest.Wait()
				wasEnded := ended.Load() == 1 || tc.queued
				close(release)
				synctest.Wait()
				if tc.callback != "" && !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v", err)
				}
				if turns.Load() != tc.turns || wasEnded != tc.ended {
					t.Errorf("%d turns, ended %v", turns.Load(), wasEnded)
				}
			})
		})
	}
}

func TestFullQueueTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var turns atomic.Int32
		c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			turns.Add(1)
			<-release
			return engine.Reply{}, nil
		}))
		c.Workers = 1
		c.Limits = engine.Limits{Queue: 3, Chat: 2}
		e := start(t, c)
		submit(t, e, newRun("a", "")) // is claimed at once
		synctest.Wait()
		submit(t, e, newRun("a", ""))
		submit(t, e, newRun("a", ""))
		if err := e.Submit(t.Context(), newRun("a", ""), 0); !errors.Is(err, engine.ErrChatFull) {
			t.Errorf("got %v, want ErrChatFull", err)
		}
		submit(t, e, newRun("b", ""))
		if err := e.Submit(t.Context(), newRun("c", ""), 0); !errors.Is(err, engine.ErrQueueFull) {
			t.Errorf("got %v, want ErrQueueFull", err)
		}
		if _, err := e.Do(t.Context(), syncRun("c", ""), 0); !errors.Is(err, engine.ErrQueueFull) {
			t.Errorf("got %v, want ErrQueueFull", err)
		}
		close(release)
		synctest.Wait()
		if turns.Load() != 4 {
			t.Errorf("%d turns, want the 4 that were taken", turns.Load())
		}
	})
}

func TestPanicFailsOneRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "panic" {
				panic("secret of the runner")
			}
			return echo(ctx, turn)
		})))
		outcome, err := e.Do(t.Context(), syncRun("chat", "panic"), 0)
		if err != nil || outcome.Failure != engine.RunnerFailed || strings.Contains(outcome.Message, "secret") {
			t.Errorf("got %+v, %v", outcome, err)
		}
		if outcome, err := e.Do(t.Context(), syncRun("chat", "hello"), 0); err != nil || outcome.Text != "hello" {
			t.Errorf("got %+v, %v", outcome, err)
		}
	})
}

func TestStoreThatFailsIsAskedAgain(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			store := &tampered{Store: memory.New().Store(), claim: func() error {
				if calls.Add(1) > 3 {
					return nil
				}
				if panics {
					panic("torn page")
				}
				return errors.New("torn page")
			}}
			e := engine.New(store)
			t.Cleanup(e.Stop)
			e.Attach(config(echo))
			outcomes := make(chan engine.Outcome, 10)
			for i := range 10 { // more than there are workers: none may be lost to the failures
				go func() {
					outcome, err := e.Do(t.Context(), syncRun(fmt.Sprint(i), "hello"), 0)
					if err != nil {
						t.Error(err)
					}
					outcomes <- outcome
				}()
			}
			for range 10 {
				if outcome := <-outcomes; outcome.Text != "hello" {
					t.Errorf("panics %v: got %+v", panics, outcome)
				}
			}
		})
	}
}

func TestRunnerThatIsUnavailable(t *testing.T) {
	busy := &engine.UnavailableError{Busy: true, Err: errors.New("busy")}
	away := &engine.UnavailableError{Err: errors.New("connection refused")}
	for _, tc := range []struct {
		name     string
		err      error
		failures int
		sync     bool
		want     engine.Status
		failure  engine.Failure
		within   time.Duration
	}{
		{"busy for a while", busy, 3, true, engine.Completed, "", 10 * time.Second},
		{"busy until the time is up", busy, 1000, true, engine.TimedOut, "", time.Minute},
		{"busy for longer than there is time", &engine.UnavailableError{Busy: true, RetryAfter: time.Hour, Err: errors.New("busy")},
			1000, true, engine.Failed, engine.RunnerUnavailable, 0},
		{"away, and a caller waits", away, 3, true, engine.Failed, engine.RunnerUnavailable, 0},
		{"away, and nobody waits", away, 3, false, engine.Completed, "", 10 * time.Second},
		{"failing", errors.New("status 500"), 3, true, engine.Failed, engine.RunnerFailed, 0},
		{"failing, and nobody waits", errors.New("status 500"), 3, false, engine.Failed, engine.RunnerFailed, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
					if calls++; calls <= tc.failures {
						return engine.Reply{}, tc.err
					}
					return engine.Reply{Text: "at last"}, nil
				}))
				ended := make(chan engine.Status, 1)
				c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
					ended <- d.RunStatus
					return nil
				})
				e := start(t, c)
				begin := time.Now()
				if !tc.sync {
					run := newRun("chat", "")
					run.CallbackURL = "https://example.com"
					submit(t, e, run)
					if status := <-ended; status != tc.want || time.Since(begin) > tc.within {
						t.Errorf("got %s after %s", status, time.Since(begin))
					}
					return
				}
				outcome, err := e.Do(t.Context(), syncRun("chat", ""), 0)
				if err != nil || outcome.Status != tc.want || outcome.Failure != tc.failure || time.Since(begin) > tc.within {
					t.Errorf("got %+v, %v after %s", outcome, err, time.Since(begin))
				}
				if tc.failure == engine.RunnerUnavailable && outcome.RetryAfter < 5*time.Second {
					t.Errorf("got retry after %s", outcome.RetryAfter)
				}
			})
		})
	}
}

func TestStopLetsTurnsEndAndCallersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		e := engine.New(store)
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "quick" {
				time.Sleep(5 * time.Second)
				return engine.Reply{Text: "just made it"}, nil
			}
			return hang(ctx, turn)
		}))
		e.Attach(c)
		outcomes := make(map[string]engine.Outcome)
		var mu sync.Mutex
		var group sync.WaitGroup
		for _, run := range []*engine.Run{
			syncRun("quick", "quick"), syncRun("slow", "slow"), syncRun("slow", "queued behind slow"),
		} {
			group.Go(func() {
				outcome, err := e.Do(t.Context(), run, 0)
				if err != nil {
					t.Errorf("%s: %v", run.Message, err)
				}
				mu.Lock()
				outcomes[run.Message] = outcome
				mu.Unlock()
			})
			synctest.Wait()
		}
		kept := newRun("kept", "kept")
		submit(t, e, kept)
		synctest.Wait()

		begin := time.Now()
		e.Stop()
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("stopping took %s, want the drain time of 10s", took)
		}
		group.Wait()
		if got := outcomes["quick"]; got.Text != "just made it" {
			t.Errorf("a turn that could end in time gave %+v", got)
		}
		for _, name := range []string{"slow", "queued behind slow"} {
			if got := outcomes[name]; got.Failure != engine.ShuttingDown || got.RetryAfter == 0 {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		if runs, _, err := store.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Minute}); err != nil || len(runs) != 1 || runs[0].Run.ID != kept.ID {
			t.Errorf("back in the queue are %v, %v, want the run that nobody waited for", runs, err)
		}
		if err := e.Submit(t.Context(), newRun("late", ""), 0); !errors.Is(err, engine.ErrStopping) {
			t.Errorf("got %v, want ErrStopping", err)
		}
	})
}

// The web server hands over requests that it has taken until it has stopped.
func TestRunsThatNobodyWaitsForAreAcceptedUntilStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		e := engine.New(store)
		e.Attach(config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) { return engine.Reply{Text: "done"}, nil })))
		synctest.Wait() // until its workers have looked for runs
		e.BeginStop()
		late := newRun("", "late")
		if err := e.Submit(t.Context(), late, 0); err != nil {
			t.Errorf("got %v", err)
		}
		awaited := newRun("", "awaited")
		awaited.Sync = true
		if _, err := e.Do(t.Context(), awaited, 0); !errors.Is(err, engine.ErrStopping) {
			t.Errorf("a caller who waits got %v, want ErrStopping", err)
		}
		e.Stop()
		if runs, _, err := store.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Minute}); err != nil || len(runs) != 1 || runs[0].Run.ID != late.ID {
			t.Errorf("in the queue are %v, %v, want the run that was accepted", runs, err)
		}
	})
}

func TestStopDoesNotWaitForARunnerThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		store := memory.New().Store()
		e := engine.New(store)
		e.Attach(config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			<-release
			return engine.Reply{}, nil
		})))
		submit(t, e, newRun("chat", ""))
		synctest.Wait()
		begin := time.Now()
		e.Stop()
		if took := time.Since(begin); took != 15*time.Second {
			t.Errorf("stopping took %s", took)
		}
		close(release)
	})
}

func TestReloadKeepsRunsAndLetsTurnsEndOnTheirRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		named := func(name string) engine.Runner {
			return runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
				<-release
				return engine.Reply{Text: name}, nil
			})
		}
		store := memory.New().Store()
		e := engine.New(store)
		t.Cleanup(e.Stop)
		detachOld := e.Attach(config(named("old")))
		var group sync.WaitGroup
		answers := make([]string, 2)
		for i := range answers {
			group.Go(func() {
				outcome, err := e.Do(t.Context(), syncRun("chat", ""), 0)
				if err != nil {
					t.Error(err)
				}
				answers[i] = outcome.Text
			})
			synctest.Wait()
		}
		e.Attach(config(named("new")))
		detachOld()
		close(release)
		group.Wait()
		if !slices.Equal(answers, []string{"old", "new"}) {
			t.Errorf("got answers of %v, want the turn under way from old and the queued one from new", answers)
		}
	})
}

func TestReloadThatFailsBringsTheOldConfigBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(echo))
		detach := e.Attach(config(hang))
		detach()
		if outcome, err := e.Do(t.Context(), syncRun("chat", "hello"), 0); err != nil || outcome.Text != "hello" {
			t.Errorf("got %+v, %v", outcome, err)
		}
	})
}

func TestDeliveriesAreTriedUntilTheyArriveOrAreFinal(t *testing.T) {
	for _, tc := range []struct {
		name     string
		err      error
		failures int
		attempts int
	}{
		{"at once", nil, 0, 1},
		{"after failures", errors.New("status 500"), 3, 4},
		{"never", errors.New("status 500"), 100, 8},
		{"refused for good", &engine.FinalError{Err: errors.New("status 410")}, 100, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var ids []string
				c := longLease(config(echo))
				c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					ids = append(ids, d.ID)
					if d.Attempt != len(ids) || d.Body != "the answer" || d.RunStatus != engine.Completed {
						t.Errorf("attempt %d sent %+v", len(ids), d)
					}
					if len(ids) <= tc.failures {
						return tc.err
					}
					return nil
				})
				e := start(t, c)
				run := newRun("chat", "the answer")
				run.CallbackURL = "https://example.com"
				submit(t, e, run)
				time.Sleep(24 * time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if len(ids) != tc.attempts || len(slices.Compact(slices.Clone(ids))) != 1 {
					t.Errorf("%d attempts with ids %v, want %d with one id", len(ids), ids, tc.attempts)
				}
			})
		})
	}
}

func TestAnswerGoesToItsChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan engine.Delivery, 1)
		c := config(echo)
		c.Channels = map[string]engine.Channel{"team": senderFunc(func(_ context.Context, d *engine.Delivery) error {
			sent <- *d
			return nil
		})}
		e := start(t, c)
		run := newRun("chat", "the answer")
		run.Channel, run.To = "team", "general"
		submit(t, e, run)
		if d := <-sent; d.To != "general" || d.Body != "the answer" {
			t.Errorf("got %+v", d)
		}
	})
}

func TestTiersComeFromTheRunAlone(t *testing.T) {
	for _, tc := range []struct {
		model, validation string
		schema            bool
		turn, repair      string
	}{
		{"", "", false, "", ""},
		{"smart", "deep", false, "smart", ""},
		{"", "", true, "", "balanced"},
		{"smart", "", true, "smart", "smart"},
		{"smart", "deep", true, "deep", "deep"},
		{"", "deep", true, "deep", "deep"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tiers := make(map[int]string)
			e := start(t, config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
				tiers[turn.Repair] = turn.Tier
				if turn.Repair == 0 {
					return engine.Reply{Text: "no JSON"}, nil
				}
				if !turn.Isolated() || turn.Memory() {
					t.Error("a repair call is not isolated")
				}
				return engine.Reply{Text: `{"a":1}`}, nil
			})))
			run := syncRun("chat", "")
			run.Tier, run.ValidationTier = tc.model, tc.validation
			if tc.schema {
				run.Schema = json.RawMessage(`{"type":"object"}`)
			}
			outcome, err := e.Do(t.Context(), run, 0)
			if err != nil || outcome.Status != engine.Completed || outcome.Text != "no JSON" {
				t.Fatalf("got %+v, %v", outcome, err)
			}
			if tiers[0] != tc.turn || tiers[1] != tc.repair {
				t.Errorf("%+v: got tiers %v", tc, tiers)
			}
		})
	}
}

func TestEngineAtRestRemembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		c := r.config()
		c.Runners["default"] = takes
		e := start(t, c)
		var group sync.WaitGroup
		for i := range 100 {
			for j, message := range []string{"0s", "1s", "5s", "1h", "nonsense"} {
				run := syncRun(fmt.Sprint(i%10), message)
				run.Timeout = time.Duration(1+i%7) * time.Second
				if j%2 == 0 {
					run.CallbackURL = "https://example.com"
				}
				group.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*time.Second)
					defer cancel()
					_, _ = e.Do(ctx, run, 0)
				})
				other := newRun(fmt.Sprint(i%10), message)
				other.Timeout = time.Second
				submit(t, e, other)
				group.Go(func() { _, _ = e.Find(t.Context(), other.ID, time.Duration(i)*time.Second) })
				if i%3 == 0 {
					group.Go(func() {
						time.Sleep(time.Duration(j) * 500 * time.Millisecond)
						_, _ = e.Cancel(t.Context(), other.ID, "somebody")
					})
				}
			}
		}
		group.Wait()
		time.Sleep(time.Hour)
		remembersNothing(t, e)
		page, next, err := e.List(t.Context(), engine.Query{Limit: 10_000})
		if err != nil || next != "" || len(page) != 1000 {
			t.Fatalf("%d runs are listed, %v", len(page), err)
		}
		for _, record := range page {
			if !record.Status.Ended() {
				t.Errorf("run %s is %s", record.Run.ID, record.Status)
			}
		}
	})
}
