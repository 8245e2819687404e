package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

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

func TestClaimIsKeptForAsLongAsTheTurnTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		var turns atomic.Int32
		e := startOn(t, store, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "10m" {
				turns.Add(1)
			}
			return takes(ctx, turn)
		})))
		run := newRun("chat", "10m")
		run.Timeout = time.Hour
		submit(t, e, run)
		for range 20 { // others keep the store looking for claims that have run out
			time.Sleep(29 * time.Second)
			submit(t, e, newRun("another chat", "1s"))
			if record := get(t, store, run.ID); record.Status != engine.Running || record.Attempts != 1 {
				t.Fatalf("it is %s in attempt %d", record.Status, record.Attempts)
			}
		}
		time.Sleep(time.Minute)
		if record := get(t, store, run.ID); turns.Load() != 1 || record.Status != engine.Completed || record.Attempts != 1 {
			t.Errorf("%d turns, %+v", turns.Load(), record)
		}
	})
}

// twoEngines has a run started by one engine, which then loses its claim to another one on the same store. first is
// the runner of the first engine; the other one echoes.
func twoEngines(t *testing.T, first engine.Runner, run *engine.Run) (store engine.Store, renews *atomic.Bool, r *recorder) {
	t.Helper()
	store = newMemory(t)
	renews, r = new(atomic.Bool), new(recorder)
	var idle atomic.Bool
	c := r.config()
	c.Runner = first
	e := startOn(t, &tampered{Store: store, idle: idle.Load, renew: func(claims []*engine.Claim) []*engine.Claim {
		if renews.Load() {
			return claims
		}
		return nil
	}}, c)
	submit(t, e, run)
	synctest.Wait()
	idle.Store(true) // the run must go to the other one
	// Nothing tells another engine that runs can be claimed, but it looks now and then.
	startOn(t, store, r.config())
	time.Sleep(90 * time.Second)
	if record := get(t, store, run.ID); record.Status != engine.Completed || record.Attempts != 2 {
		t.Fatalf("the other engine has not carried it out: %+v", record)
	}
	return store, renews, r
}

func TestLostClaimCancelsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRun("chat", "hello")
		run.Timeout = time.Hour
		run.CallbackURL = "https://example.com"
		causes := make(chan error, 1)
		store, renews, r := twoEngines(t, runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return engine.Reply{Text: "too late"}, nil
		}), run)
		before := get(t, store, run.ID)
		renews.Store(true)
		if cause := <-causes; !errors.Is(cause, engine.ErrClaimLost) {
			t.Errorf("the turn was ended by %v", cause)
		}
		time.Sleep(time.Hour)
		after := get(t, store, run.ID)
		if after.Outcome.Text != "hello" || !after.FinishedAt.Equal(before.FinishedAt) || after.Attempts != 2 {
			t.Errorf("the end of the run was changed: %+v", after)
		}
		if turns, sent := r.counts(); turns != 1 || sent != 1 {
			t.Errorf("%d turns and %d deliveries", turns, sent)
		}
	})
}

func TestResultOfALostClaimIsThrownAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRun("chat", "hello")
		run.Timeout = time.Hour
		run.CallbackURL = "https://example.com"
		release := make(chan struct{})
		store, _, r := twoEngines(t, runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			<-release
			return engine.Reply{Text: "too late"}, nil
		}), run)
		close(release)
		time.Sleep(time.Hour)
		if record := get(t, store, run.ID); record.Outcome.Text != "hello" {
			t.Errorf("the end of the run was changed: %+v", record)
		}
		if _, sent := r.counts(); sent != 1 || r.sent[0].Body != "hello" {
			t.Errorf("sent %+v", r.sent)
		}
	})
}

// A process that stood still for a while finds that its claims have run out. If nobody else took the runs, their turns
// go on: a second one beside them would be of no use to anybody.
func TestRunWhoseClaimRanOutWhileTheProcessStoodStillGoesOn(t *testing.T) {
	for _, end := range []string{"answered", "cancelled", "stopped"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, still := suspendedStore(t)
				release := make(chan struct{})
				var turns atomic.Int32
				var r recorder
				c := r.config()
				c.MaxAttempts = 1 // to stand still is not to die
				c.Runner = runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
					turns.Add(1)
					select {
					case <-release:
						return engine.Reply{Text: "done"}, nil
					case <-ctx.Done():
						return engine.Reply{}, ctx.Err()
					}
				})
				e := engine.New(store)
				e.Attach(c)
				t.Cleanup(e.Stop)
				run := syncRun("chat", "hello")
				run.Timeout = 24 * time.Hour
				run.CallbackURL = "https://example.com"
				outcomes := make(chan engine.Outcome, 1)
				go func() {
					outcome, err := e.Do(t.Context(), run)
					if err != nil {
						t.Error(err)
					}
					outcomes <- outcome
				}()
				time.Sleep(90 * time.Second)
				still.Store(false)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if record := get(t, store, run.ID); turns.Load() != 1 || record.Status != engine.Running {
					t.Fatalf("%d turns of %+v", turns.Load(), record)
				}
				var want engine.Status
				switch end {
				case "answered":
					want = engine.Completed
					close(release)
				case "cancelled":
					want = engine.Cancelled
					if record, err := e.Cancel(t.Context(), run.ID); err != nil || record.Status != want {
						t.Errorf("cancelling gave %+v, %v", record, err)
					}
				case "stopped":
					e.Stop()
					outcome, record := <-outcomes, get(t, store, run.ID)
					if outcome.Failure != engine.ShuttingDown || record.Status != engine.Queued {
						t.Errorf("the caller got %+v, and kept is %+v", outcome, record)
					}
					return
				}
				outcome := <-outcomes
				time.Sleep(10 * time.Minute)
				record := get(t, store, run.ID)
				if turns.Load() != 1 || record.Status != want || outcome.Status != want || record.Outcome.Text != outcome.Text {
					t.Errorf("after %d turns the caller got %+v, and kept is %+v", turns.Load(), outcome, record)
				}
				if _, sent := r.counts(); sent != 1 || r.sent[0].RunStatus != want {
					t.Errorf("sent %+v", r.sent)
				}
				if n := e.Remembered(); n != 0 {
					t.Errorf("%d runs are remembered", n)
				}
			})
		})
	}
}

// suspendedStore renews no claims until suspended is false, as for a process that stands still.
func suspendedStore(t *testing.T) (store *tampered, suspended *atomic.Bool) {
	suspended = new(atomic.Bool)
	suspended.Store(true)
	return &tampered{Store: newMemory(t), renew: func(claims []*engine.Claim) []*engine.Claim {
		if suspended.Load() {
			return nil
		}
		return claims
	}}, suspended
}

// A run whose claim ran out may have to wait for other runs before it can be claimed again. Nobody else has it, so its turn
// goes on meanwhile, and its end counts even if the run was not claimed again by then.
func TestRunThatWaitsToBeClaimedAgainGoesOn(t *testing.T) {
	for _, length := range []string{"3m", "85s"} { // claimed again after 170 s
		synctest.Test(t, func(t *testing.T) {
			store, suspended := suspendedStore(t)
			var turns sync.Map
			c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
				if _, again := turns.LoadOrStore(turn.RunID, true); again {
					t.Errorf("the run of %s was started again", turn.Message)
				}
				return takes(ctx, turn)
			}))
			c.Workers = 2
			e := startOn(t, store, c)
			run := newRun("a", length)
			for _, r := range []*engine.Run{run, newRun("b", "70s"), newRun("c", "100s"), newRun("d", "100s")} {
				r.Timeout = time.Hour
				submit(t, e, r)
			}
			time.Sleep(75 * time.Second) // b has ended, and its worker found the claim on a run out; it went on with c
			suspended.Store(false)
			if record := get(t, store, run.ID); record.Status != engine.Queued {
				t.Fatalf("the run is %s", record.Status)
			}
			time.Sleep(10 * time.Minute)
			if record := get(t, store, run.ID); record.Status != engine.Completed || record.Outcome.Text != "done" {
				t.Errorf("the run is %+v", record)
			}
		})
	}
}

func TestRenewalThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals atomic.Int32
		store := &tampered{Store: newMemory(t), renew: func(claims []*engine.Claim) []*engine.Claim {
			if renewals.Add(1)%2 == 1 {
				panic("torn page")
			}
			return claims
		}}
		e := startOn(t, store, config(takes))
		run := newRun("chat", "10m")
		run.Timeout = time.Hour
		submit(t, e, run)
		time.Sleep(11 * time.Minute)
		if record := get(t, store, run.ID); record.Status != engine.Completed || record.Attempts != 1 {
			t.Errorf("got %+v", record)
		}
	})
}

func TestPruningGoesOnUntilTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := engine.Limits{Retention: time.Hour, Keys: 7, KeyAge: time.Minute}
		var calls []time.Time
		store := &tampered{Store: newMemory(t)}
		store.prune = func(now time.Time, got engine.Limits) (bool, error) {
			if got != limits || !now.Equal(time.Now()) {
				t.Errorf("pruned at %s with %+v", now, got)
			}
			calls = append(calls, now)
			switch n := len(calls); {
			case n <= 100:
				return true, nil
			case n == 101:
				return false, errNoRoom
			case n == 102:
				panic("torn page")
			}
			return false, nil
		}
		c := config(echo)
		c.Limits = limits
		e := engine.New(store)
		e.Attach(c)
		time.Sleep(10*time.Minute + 30*time.Second)
		synctest.Wait()
		// A hundred steps that leave something over follow each other closely, the others come once a minute.
		if len(calls) != 109 && len(calls) != 110 {
			t.Errorf("pruned %d times", len(calls))
		}
		if took := calls[100].Sub(calls[0]); took > 10*time.Second || took == 0 {
			t.Errorf("a hundred steps took %s", took)
		}
		for i := 102; i < len(calls); i++ {
			if pause := calls[i].Sub(calls[i-1]); pause < 30*time.Second {
				t.Errorf("with nothing to do it was pruned again after %s", pause)
			}
		}
		before := len(calls)
		e.Stop()
		time.Sleep(time.Hour)
		if len(calls) != before {
			t.Errorf("pruned %d times after the stop", len(calls)-before)
		}
	})
}

func TestRunsAndKeysAreForgottenWhenTheyAreOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "slow" {
				return hang(ctx, turn)
			}
			return echo(ctx, turn)
		}))
		c.Limits = engine.Limits{Retention: time.Hour, KeyAge: time.Hour}
		e := start(t, c)
		slow := newRun("slow", "slow")
		slow.Timeout = 24 * time.Hour
		submit(t, e, slow)
		run := newRun("chat", "hello")
		run.Key = &engine.Key{ID: [32]byte{1}}
		submit(t, e, run)
		time.Sleep(time.Hour - time.Minute)
		if record, err := e.Find(t.Context(), run.ID, 0); err != nil || record.Status != engine.Completed {
			t.Errorf("before its time: %+v, %v", record, err)
		}
		again := newRun("chat", "hello")
		again.Key = run.Key
		var duplicate *engine.DuplicateError
		if err := e.Submit(t.Context(), again); !errors.As(err, &duplicate) || duplicate.First.ID != run.ID || !duplicate.SameBody {
			t.Errorf("the same key gave %v", err)
		}
		time.Sleep(3 * time.Minute)
		if record, err := e.Find(t.Context(), run.ID, time.Minute); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("after its time: %+v, %v", record, err)
		}
		submit(t, e, again)
		if record, err := e.Find(t.Context(), slow.ID, 0); err != nil || record.Status != engine.Running {
			t.Errorf("a run that has not ended: %+v, %v", record, err)
		}
	})
}

func TestFindWaitsForTheEnd(t *testing.T) {
	const patience = 10 * time.Second
	for _, tc := range []struct {
		name   string
		takes  string
		queued bool
		after  time.Duration
		status engine.Status
	}{
		{"that comes in time", "5s", false, 5 * time.Second, engine.Completed},
		{"that has been", "0s", false, 0, engine.Completed},
		{"that comes too late", "1h", false, patience, engine.Running},
		{"of a run that never got its turn", "1s", true, patience, engine.Queued},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, config(takes))
				if tc.queued {
					first := newRun("chat", "1h")
					first.Timeout = 2 * time.Hour
					submit(t, e, first)
				}
				run := newRun("chat", tc.takes)
				run.Timeout = 2 * time.Hour
				submit(t, e, run)
				synctest.Wait()
				begin := time.Now()
				var group sync.WaitGroup
				for range 20 {
					group.Go(func() {
						record, err := e.Find(t.Context(), run.ID, patience)
						if err != nil || record.Status != tc.status || time.Since(begin) != tc.after {
							t.Errorf("got %+v, %v after %s", record, err, time.Since(begin))
						}
					})
				}
				group.Wait()
				if record, err := e.Find(t.Context(), run.ID, 0); err != nil || record.Status != tc.status {
					t.Errorf("without patience: %+v, %v", record, err)
				}
				if record, err := e.Find(t.Context(), run.ID, -time.Second); err != nil || record.Status != tc.status {
					t.Errorf("with less than none: %+v, %v", record, err)
				}
			})
		})
	}
}

func TestFindEndsWithItsCallerAndWithTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(hang))
		run := newRun("chat", "")
		run.Timeout = time.Hour
		submit(t, e, run)
		synctest.Wait()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := e.Find(ctx, run.ID, time.Hour); time.Since(begin) != 3*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
		found := make(chan *engine.Record, 3)
		for range cap(found) {
			go func() {
				record, err := e.Find(t.Context(), run.ID, time.Hour)
				if err != nil {
					t.Error(err)
				}
				found <- record
			}()
		}
		synctest.Wait()
		begin = time.Now()
		e.BeginStop()
		for range cap(found) {
			if record := <-found; record.Status != engine.Running || time.Since(begin) != 0 {
				t.Errorf("got %+v after %s", record, time.Since(begin))
			}
		}
	})
}

func TestUnknownRunsAreNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(echo))
		for _, id := range []string{"", "x", "0198f6a0-0000-7000-8000-000000000000", "../../etc/passwd"} {
			if _, err := e.Find(t.Context(), id, 0); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("Find %q: %v", id, err)
			}
			begin := time.Now()
			if _, err := e.Find(t.Context(), id, time.Minute); !errors.Is(err, engine.ErrNotFound) || time.Since(begin) != 0 {
				t.Errorf("Find %q with patience: %v after %s", id, err, time.Since(begin))
			}
			if _, err := e.Cancel(t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("Cancel %q: %v", id, err)
			}
		}
		if n := e.Remembered(); n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
	})
}

func TestCancelEndsARunThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		c := r.config()
		c.Runner = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "first" {
				return hang(ctx, turn)
			}
			return r.Run(ctx, turn)
		})
		e := start(t, c)
		first := newRun("chat", "first")
		submit(t, e, first)
		run := newRun("chat", "second")
		run.CallbackURL = "https://example.com"
		run.Channel, run.To = "team", "general"
		submit(t, e, run)
		last := newRun("chat", "last")
		submit(t, e, last)
		synctest.Wait()
		begin := time.Now()
		record, err := e.Cancel(t.Context(), run.ID)
		if err != nil || record.Status != engine.Cancelled || record.Attempts != 0 || !record.StartedAt.IsZero() ||
			!record.FinishedAt.Equal(begin) || record.Outcome.Message == "" || time.Since(begin) != 0 {
			t.Errorf("got %+v, %v", record, err)
		}
		again, err := e.Cancel(t.Context(), run.ID)
		if err != nil || again.Status != engine.Cancelled || !again.FinishedAt.Equal(record.FinishedAt) {
			t.Errorf("the second time: %+v, %v", again, err)
		}
		if record, err := e.Cancel(t.Context(), first.ID); err != nil || record.Status != engine.Cancelled || record.Attempts != 1 {
			t.Errorf("the run before it: %+v, %v", record, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.turns) != 1 || r.turns[0] != last.ID {
			t.Errorf("the turns are %v, want that of %s alone", r.turns, last.ID)
		}
		// A channel gets texts only, and there is none.
		if len(r.sent) != 1 || r.sent[0].RunStatus != engine.Cancelled || r.sent[0].Body != string(engine.ErrorBody(record.Outcome.Message)) {
			t.Errorf("sent %+v", r.sent)
		}
		if n := e.Remembered(); n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
	})
}

func TestCancelEndsTheTurnOfARun(t *testing.T) {
	for _, tc := range []struct {
		name  string
		slow  time.Duration // how long the runner takes to let go
		after time.Duration
		now   engine.Status // what Cancel returns
	}{
		{"at once", 0, 0, engine.Cancelled},
		{"after a moment", 3 * time.Second, 3 * time.Second, engine.Cancelled},
		{"later than is waited for", time.Minute, 5 * time.Second, engine.Running},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				c := r.config()
				c.Runner = runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
					<-ctx.Done()
					time.Sleep(tc.slow)
					return engine.Reply{}, ctx.Err()
				})
				e := start(t, c)
				run := syncRun("chat", "")
				run.Timeout = time.Hour
				run.CallbackURL = "https://example.com"
				outcomes := make(chan engine.Outcome, 1)
				go func() {
					outcome, err := e.Do(t.Context(), run)
					if err != nil {
						t.Error(err)
					}
					outcomes <- outcome
				}()
				synctest.Wait()
				begin := time.Now()
				var group sync.WaitGroup
				for range 3 { // several may ask for it at once
					group.Go(func() {
						record, err := e.Cancel(t.Context(), run.ID)
						if err != nil || record.Status != tc.now || record.Attempts != 1 || time.Since(begin) != tc.after {
							t.Errorf("got %+v, %v after %s", record, err, time.Since(begin))
						}
					})
				}
				group.Wait()
				if outcome := <-outcomes; outcome.Status != engine.Cancelled || time.Since(begin) != tc.slow {
					t.Errorf("the caller got %+v after %s", outcome, time.Since(begin))
				}
				synctest.Wait()
				if record, err := e.Find(t.Context(), run.ID, 0); err != nil || record.Status != engine.Cancelled {
					t.Errorf("in the end: %+v, %v", record, err)
				}
				if len(r.sent) != 1 || r.sent[0].RunStatus != engine.Cancelled {
					t.Errorf("sent %+v", r.sent)
				}
				if n := e.Remembered(); n != 0 {
					t.Errorf("%d runs are remembered", n)
				}
			})
		})
	}
}

func TestCancelChangesNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			switch turn.Message {
			case "fail":
				return engine.Reply{}, errors.New("status 500")
			case "hang":
				return hang(ctx, turn)
			}
			return echo(ctx, turn)
		})))
		for message, want := range map[string]engine.Status{"hello": engine.Completed, "fail": engine.Failed, "hang": engine.TimedOut} {
			run := newRun(message, message)
			submit(t, e, run)
			before, err := e.Find(t.Context(), run.ID, time.Hour)
			if err != nil || before.Status != want {
				t.Fatalf("%s: %+v, %v", message, before, err)
			}
			time.Sleep(time.Second)
			after, err := e.Cancel(t.Context(), run.ID)
			if err != nil || after.Status != want || !after.FinishedAt.Equal(before.FinishedAt) || after.Outcome.Text != before.Outcome.Text {
				t.Errorf("%s: %+v became %+v, %v", message, before, after, err)
			}
		}
		if n := e.Remembered(); n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
	})
}

func TestCancelReachesARunThatIsAboutToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		store := &tampered{Store: newMemory(t), claimed: func(claims []*engine.Claim) {
			if len(claims) > 0 {
				<-hold
			}
		}}
		e := startOn(t, store, config(hang))
		run := newRun("chat", "")
		run.Timeout = time.Hour
		submit(t, e, run)
		synctest.Wait()
		cancelled := make(chan *engine.Record, 1)
		go func() {
			record, err := e.Cancel(t.Context(), run.ID)
			if err != nil {
				t.Error(err)
			}
			cancelled <- record
		}()
		synctest.Wait()
		begin := time.Now()
		close(hold)
		if record := <-cancelled; record.Status != engine.Cancelled || time.Since(begin) != 0 {
			t.Errorf("got %+v after %s", record, time.Since(begin))
		}
		if n := e.Remembered(); n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
	})
}

func TestCancelOfARunThatIsCarriedOutElsewhereLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		run := newRun("chat", "")
		add(t, store, run)
		if claims, err := store.Claim(t.Context(), engine.Want{Runs: 1, Lease: time.Hour}); err != nil || len(claims) != 1 {
			t.Fatalf("claimed %v, %v", claims, err)
		}
		e := startOn(t, store, config(echo))
		begin := time.Now()
		record, err := e.Cancel(t.Context(), run.ID)
		if err != nil || record.Status != engine.Running || time.Since(begin) != 5*time.Second {
			t.Errorf("got %+v, %v after %s", record, err, time.Since(begin))
		}
		if n := e.Remembered(); n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
	})
}

func TestCancelThatCannotBeStoredIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &withdrawFails{Store: newMemory(t)}
		c := config(hang)
		e := startOn(t, store, c)
		submit(t, e, newRun("chat", "first"))
		run := newRun("chat", "second")
		submit(t, e, run)
		synctest.Wait()
		if record, err := e.Cancel(t.Context(), run.ID); !errors.Is(err, errNoRoom) {
			t.Errorf("got %+v, %v", record, err)
		}
		if record := get(t, store, run.ID); record.Status != engine.Queued {
			t.Errorf("it is %s", record.Status)
		}
	})
}

type withdrawFails struct{ engine.Store }

func (withdrawFails) Withdraw(context.Context, string, engine.End) error { return errNoRoom }

func TestEngineAtRestRemembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		c := r.config()
		c.Runner = takes
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
					_, _ = e.Do(ctx, run)
				})
				other := newRun(fmt.Sprint(i%10), message)
				other.Timeout = time.Second
				submit(t, e, other)
				group.Go(func() { _, _ = e.Find(t.Context(), other.ID, time.Duration(i)*time.Second) })
				if i%3 == 0 {
					group.Go(func() {
						time.Sleep(time.Duration(j) * 500 * time.Millisecond)
						_, _ = e.Cancel(t.Context(), other.ID)
					})
				}
			}
		}
		group.Wait()
		time.Sleep(time.Hour)
		if n := e.Remembered(); n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
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
