package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func TestClaimIsKeptForAsLongAsTheTurnTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
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

// frozen has a run started by an engine, which then stands still until another one on the same data has carried out the
// run. runner is that of the engine that stands still; the other one echoes.
func frozen(t *testing.T, runner engine.Runner, run *engine.Run) (store engine.Store, thaw func(), r *recorder) {
	t.Helper()
	data := memory.New()
	r = new(recorder)
	c := r.config()
	c.Runners["default"] = runner
	still := new(gate)
	e := startOn(t, &tampered{Store: data.Store(), gate: still}, c)
	t.Cleanup(still.open)
	submit(t, e, run)
	synctest.Wait()
	still.close()
	startOn(t, data.Store(), r.config())
	time.Sleep(20 * time.Second)
	store = data.Store()
	if record := get(t, store, run.ID); record.Status != engine.Completed || record.Attempts != 2 {
		t.Fatalf("the other engine has not carried it out: %+v", record)
	}
	return store, still.open, r
}

func TestLostClaimCancelsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRun("chat", "hello")
		run.Timeout = time.Hour
		run.CallbackURL = "https://example.com"
		causes := make(chan error, 1)
		store, thaw, r := frozen(t, runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return engine.Reply{Text: "too late"}, nil
		}), run)
		before := get(t, store, run.ID)
		thaw()
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
		store, thaw, r := frozen(t, runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			<-release
			return engine.Reply{Text: "too late"}, nil
		}), run)
		close(release)
		synctest.Wait()
		thaw()
		time.Sleep(time.Hour)
		if record := get(t, store, run.ID); record.Outcome.Text != "hello" {
			t.Errorf("the end of the run was changed: %+v", record)
		}
		if _, sent := r.counts(); sent != 1 || r.sent[0].Body != "hello" {
			t.Errorf("sent %+v", r.sent)
		}
	})
}

// The claim is lost even if the other node has put the run back since, so that it waits in the queue.
func TestLostClaimCancelsTheTurnOfARunThatIsQueuedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		still := new(gate)
		var idle atomic.Bool
		causes := make(chan error, 1)
		e := startOn(t, &tampered{Store: data.Store(), gate: still, idle: idle.Load},
			config(runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return engine.Reply{Text: "too late"}, nil
			})))
		t.Cleanup(still.open)
		run := newRun("chat", "hello")
		run.Timeout = time.Hour
		submit(t, e, run)
		synctest.Wait()
		still.close()
		idle.Store(true)
		time.Sleep(15 * time.Second)
		other := data.Store()
		claims, _, err := other.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
		if err != nil || len(claims) != 1 {
			t.Fatalf("claimed %v, %v", claims, err)
		}
		if _, err := other.Runs().End(t.Context(), claims[0], engine.End{Requeue: true}, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
		still.open()
		if cause := <-causes; !errors.Is(cause, engine.ErrClaimLost) {
			t.Errorf("the turn was ended by %v", cause)
		}
		synctest.Wait()
		if record := get(t, other, run.ID); record.Status != engine.Queued || record.Attempts != 1 {
			t.Errorf("got %+v", record)
		}
	})
}

// A process that stood still for a while renews its claims late. If nobody else took the runs, their turns go on: a second
// one beside them would be of no use to anybody.
func TestRunOfAProcessThatStoodStillGoesOn(t *testing.T) {
	for _, end := range []string{"answered", "cancelled", "stopped"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				store, still := data.Store(), new(gate)
				release := make(chan struct{})
				var turns atomic.Int32
				var r recorder
				c := r.config()
				c.MaxAttempts = 1 // to stand still is not to die
				c.Runners["default"] = runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
					turns.Add(1)
					select {
					case <-release:
						return engine.Reply{Text: "done"}, nil
					case <-ctx.Done():
						return engine.Reply{}, ctx.Err()
					}
				})
				e := startOn(t, &tampered{Store: data.Store(), gate: still}, c)
				run := syncRun("chat", "hello")
				run.Timeout = 24 * time.Hour
				run.CallbackURL = "https://example.com"
				outcomes := waitFor(t, e, run)
				synctest.Wait()
				still.close()
				time.Sleep(90 * time.Second)
				still.open()
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
					if record, err := e.Cancel(t.Context(), run.ID, "somebody"); err != nil || record.Status != want {
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
				remembersNothing(t, e)
			})
		})
	}
}

// A turn may end while the process stands still. Its worker must not claim the runs whose leases ran out meanwhile: their
// turns go on.
func TestWorkerThatIsFreeAfterAStandstillTakesNoRunFromItself(t *testing.T) {
	for _, length := range []string{"3m", "85s"} {
		synctest.Test(t, func(t *testing.T) {
			data := memory.New()
			still := new(gate)
			var turns sync.Map
			c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
				if _, again := turns.LoadOrStore(turn.RunID, true); again {
					t.Errorf("the run of %s was started again", turn.Message)
				}
				return takes(ctx, turn)
			}))
			c.Workers = 2
			e := startOn(t, &tampered{Store: data.Store(), gate: still}, c)
			run := newRun("a", length)
			runs := []*engine.Run{run, newRun("b", "70s"), newRun("c", "100s"), newRun("d", "100s")}
			for _, r := range runs {
				r.Timeout = time.Hour
				submit(t, e, r)
			}
			synctest.Wait()
			still.close()
			time.Sleep(75 * time.Second) // b has ended, but that is not stored yet
			still.open()
			synctest.Wait()
			if record := get(t, data.Store(), run.ID); record.Status != engine.Running || record.Attempts != 1 {
				t.Fatalf("the run is %+v", record)
			}
			time.Sleep(10 * time.Minute)
			for _, run := range runs {
				if record := get(t, data.Store(), run.ID); record.Status != engine.Completed || record.Outcome.Text != "done" || record.Attempts != 1 {
					t.Errorf("the run of %s is %+v", run.Message, record)
				}
			}
		})
	}
}

func TestRenewalThatFailsIsTriedAgain(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var renewals atomic.Int32
			store := &tampered{Store: memory.New().Store(), renew: func(context.Context) error {
				if renewals.Add(1)%2 == 1 {
					if panics {
						panic("torn page")
					}
					return errNoRoom
				}
				return nil
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
}

// Others may have got the runs by then, whether the store says so or not.
func TestTurnsAreCancelledWhenLeasesCannotBeRenewed(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return errNoRoom },
		"a panic":  func(context.Context) error { panic("torn page") },
		"silence": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				var renewals atomic.Int32
				store := &tampered{Store: memory.New().Store(), renew: func(ctx context.Context) error {
					renewals.Add(1)
					if broken.Load() {
						return fail(ctx)
					}
					return nil
				}}
				type end struct {
					after time.Duration
					cause error
				}
				ends := make(chan end, 10)
				begin := time.Now()
				c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
					if !broken.Load() && time.Since(begin) > time.Minute {
						return echo(ctx, turn)
					}
					<-ctx.Done()
					ends <- end{time.Since(begin), context.Cause(ctx)}
					return engine.Reply{}, ctx.Err()
				}))
				c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { return nil })
				e := startOn(t, store, c)
				run := newRun("chat", "hello")
				run.Timeout = time.Hour
				submit(t, e, run)
				synctest.Wait()
				broken.Store(true)
				got := <-ends
				if !errors.Is(got.cause, engine.ErrClaimLost) || got.after < 11*time.Second || got.after > 17*time.Second {
					t.Errorf("the turn was ended by %v after %s", got.cause, got.after)
				}

				// Nothing is claimed meanwhile, and the store is not asked too often.
				other := newRun("another chat", "hello")
				submit(t, e, other)
				before := renewals.Load()
				time.Sleep(time.Hour)
				if n := renewals.Load() - before; n < 600 || n > 3600 {
					t.Errorf("in an hour it was tried %d times to renew leases", n)
				}
				if record := get(t, store, other.ID); record.Status != engine.Queued {
					t.Errorf("a run was claimed although leases cannot be renewed: %+v", record)
				}
				broken.Store(false)
				time.Sleep(time.Minute)
				for _, run := range []*engine.Run{run, other} {
					if record := get(t, store, run.ID); record.Status != engine.Completed {
						t.Errorf("when leases can be renewed again, the run is %+v", record)
					}
				}
				remembersNothing(t, e)
			})
		})
	}
}

// An attempt is not broken off for nothing: if it succeeds, that is recorded as long as nobody else has the delivery.
func TestDeliveryIsRecordedAlthoughLeasesCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		store := &tampered{Store: memory.New().Store(), renew: func(context.Context) error {
			if broken.Load() {
				return errNoRoom
			}
			return nil
		}}
		var sent atomic.Int32
		c := config(echo)
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			broken.Store(true)
			sent.Add(1)
			time.Sleep(30 * time.Second)
			return nil
		})
		e := startOn(t, store, c)
		run := callBack(t, e, "https://example.com/")
		time.Sleep(40 * time.Second)
		broken.Store(false)
		time.Sleep(time.Minute)
		if d := deliveryOf(t, e, run); d.Status != engine.Delivered || sent.Load() != 1 {
			t.Errorf("sent %d times: %+v", sent.Load(), d)
		}
	})
}

// A claim that reaches the engine late may have been lost to the engine itself.
func TestClaimThatComesLateDoesNotDisturbTheTurnOfItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, store := new(gate), memory.New().Store()
		var delayed atomic.Bool
		var turns atomic.Int32
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "1m" {
				turns.Add(1)
			}
			return takes(ctx, turn)
		}))
		e := startOn(t, &tampered{Store: store, claimed: func(claims []*engine.Claim) {
			if len(claims) > 0 && claims[0].Run.Message == "1m" && !delayed.Swap(true) {
				late.close()
				late.pass()
			}
		}}, c)
		first := newRun("first", "20s")
		submit(t, e, first)
		synctest.Wait()
		run := newRun("chat", "1m")
		run.Timeout = time.Hour
		submit(t, e, run)
		time.Sleep(25 * time.Second) // the end of the first run has claimed it once more
		if n := turns.Load(); n != 1 || !delayed.Load() {
			t.Fatalf("%d turns", n)
		}
		late.open()
		time.Sleep(2 * time.Minute)
		if record := get(t, store, run.ID); record.Status != engine.Completed || record.Attempts != 2 || turns.Load() != 1 {
			t.Errorf("%d turns of %+v", turns.Load(), record)
		}
		remembersNothing(t, e)
	})
}

// A runner that goes on although its claim was lost takes one worker more at most, until the time of the run is up.
func TestTurnThatDoesNotEndHoldsUpNoOtherRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		release := make(chan struct{})
		var turns atomic.Int32
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message != "stuck" {
				return echo(ctx, turn)
			}
			turns.Add(1)
			<-release
			return engine.Reply{Text: "too late"}, nil
		}))
		var first atomic.Pointer[engine.Claim]
		e := startOn(t, &tampered{Store: store, renewed: func(claims []*engine.Claim) (renewed []*engine.Claim) {
			for _, claim := range claims {
				if first.CompareAndSwap(nil, claim); first.Load() != claim || turns.Load() == 0 {
					renewed = append(renewed, claim)
				}
			}
			return renewed
		}}, c)
		run := newRun("chat", "stuck")
		run.Timeout = time.Hour
		submit(t, e, run)
		for range 50 {
			time.Sleep(time.Minute)
			if outcome, err := e.Do(t.Context(), syncRun("another chat", "hello"), 0); err != nil || outcome.Text != "hello" {
				t.Fatalf("got %+v, %v", outcome, err)
			}
		}
		time.Sleep(20 * time.Minute)
		if record := get(t, store, run.ID); record.Status != engine.TimedOut || record.Attempts != 2 || turns.Load() != 1 {
			t.Errorf("%d turns of %+v", turns.Load(), record)
		}
		close(release)
		synctest.Wait()
		if record := get(t, store, run.ID); record.Status != engine.TimedOut {
			t.Errorf("got %+v", record)
		}
		remembersNothing(t, e)
	})
}
