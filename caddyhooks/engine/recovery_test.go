package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// recorder keeps the turns that reach a runner and the deliveries that are sent.
type recorder struct {
	mu    sync.Mutex
	turns []string // run ids
	sent  []engine.Delivery
}

func (r *recorder) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns = append(r.turns, turn.RunID)
	return echo(ctx, turn)
}

func (r *recorder) Send(_ context.Context, d *engine.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, *d)
	return nil
}

func (r *recorder) ValidTo(string) error { return nil }

func (r *recorder) config() engine.Config {
	c := config(r)
	c.Callbacks = r
	c.Channels = map[string]engine.Channel{"team": r}
	return c
}

func (r *recorder) counts() (turns, sent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.turns), len(r.sent)
}

func TestRunIsStartedAgainUpToMaxAttempts(t *testing.T) {
	for _, tc := range []struct {
		crashes, max int
		carriedOut   bool
	}{
		{0, 1, true},
		{1, 1, false},
		{2, 3, true},
		{3, 3, false},
		{9, 3, false},
		{9, 0, true},
	} {
		t.Run(fmt.Sprintf("%d crashes of %d", tc.crashes, tc.max), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				store := data.Store()
				run := newRun("chat", "hello")
				run.CallbackURL = "https://example.com"
				add(t, store, run)
				crash(t, store, tc.crashes)
				var r recorder
				c := r.config()
				c.MaxAttempts = tc.max
				startOn(t, data.Store(), c)
				synctest.Wait()

				record := get(t, store, run.ID)
				if turns, sent := r.counts(); sent != 1 || (turns == 1) != tc.carriedOut {
					t.Fatalf("%d turns and %d deliveries of %+v", turns, sent, record)
				}
				d := r.sent[0]
				if tc.carriedOut {
					if record.Status != engine.Completed || record.Attempts != tc.crashes+1 || d.RunStatus != engine.Completed || d.Body != "hello" {
						t.Errorf("got %+v, and the callback %+v", record, d)
					}
					return
				}
				if record.Status != engine.Failed || record.Outcome.Failure != engine.Interrupted ||
					!strings.Contains(record.Outcome.Message, fmt.Sprintf("%d times", tc.max)) {
					t.Errorf("got %+v", record)
				}
				if d.RunStatus != engine.Failed || d.ContentType != "application/json" || d.Body != errorBody(record.Outcome.Message) {
					t.Errorf("the callback is %+v", d)
				}
			})
		})
	}
}

// Attempts are starts. To be given up is none.
func TestRunThatIsGivenUpShowsHowOftenItWasStarted(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sync    bool
		crashes int
	}{
		{"started too often", false, 3},
		{"queued, and its caller is gone", true, 0},
		{"started, and its caller is gone", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				store := data.Store()
				run := newRun("chat", "hello")
				run.Sync = tc.sync
				run.Owner = "an engine that is gone"
				add(t, store, run)
				crash(t, store, tc.crashes)
				var r recorder
				c := r.config()
				c.MaxAttempts = 3
				startOn(t, data.Store(), c)
				synctest.Wait()
				record := get(t, store, run.ID)
				if turns, _ := r.counts(); turns != 0 || record.Status != engine.Failed || record.Attempts != tc.crashes {
					t.Errorf("after %d starts it is %s with %d attempts", tc.crashes, record.Status, record.Attempts)
				}
			})
		})
	}
}

func TestRunsThatCannotBeStartedAgainDoNotHoldUpTheirChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		store := data.Store()
		for range 100 {
			lost := syncRun("chat", "lost")
			lost.Owner = "an engine that is gone"
			add(t, store, lost)
		}
		last := newRun("chat", "last")
		add(t, store, last)
		var r recorder
		startOn(t, data.Store(), r.config())
		synctest.Wait()
		if turns, _ := r.counts(); turns != 1 || r.turns[0] != last.ID {
			t.Errorf("the turns are %v, want that of %s", r.turns, last.ID)
		}
	})
}

func TestSyncRunIsRepeatedOnlyIfSomebodyElseIsTold(t *testing.T) {
	for _, tc := range []struct {
		name       string
		crashes    int
		callback   string
		channel    string
		carriedOut bool
	}{
		{"queued, no delivery", 0, "", "", false},
		{"started, no delivery", 1, "", "", false},
		{"queued, callback", 0, "https://example.com", "", true},
		{"started, callback", 1, "https://example.com", "", true},
		{"started, channel", 1, "", "team", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				store := data.Store()
				run := syncRun("chat", "hello")
				run.Owner = "an engine that is gone"
				run.CallbackURL, run.Channel = tc.callback, tc.channel
				run.Key = &engine.Key{ID: [32]byte{1}}
				add(t, store, run)
				crash(t, store, tc.crashes)
				time.Sleep(time.Hour) // longer than the caller's time: the run gets it anew
				var r recorder
				e := startOn(t, data.Store(), r.config())
				synctest.Wait()

				record := get(t, store, run.ID)
				turns, sent := r.counts()
				if tc.carriedOut {
					if turns != 1 || sent != 1 || record.Status != engine.Completed || record.Attempts != tc.crashes+1 || r.sent[0].Body != "hello" {
						t.Errorf("%d turns and %d deliveries of %+v", turns, sent, record)
					}
					return
				}
				if turns != 0 || sent != 0 || record.Status != engine.Failed || record.Outcome.Failure != engine.Interrupted {
					t.Errorf("%d turns and %d deliveries of %+v", turns, sent, record)
				}
				// Nobody got anything for the key, so it can be used again.
				again := syncRun("chat", "again")
				again.Key = run.Key
				if outcome, err := e.Do(t.Context(), again, 0); err != nil || outcome.Text != "again" {
					t.Errorf("the same key again: %+v, %v", outcome, err)
				}
			})
		})
	}
}

func TestEndOfARunIsStoredWhenTheStoreWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		store := &tampered{Store: memory.New().Store(), end: func(*engine.Claim, engine.End) error {
			if broken.Load() {
				return errNoRoom
			}
			return nil
		}}
		var r recorder
		e := startOn(t, store, r.config())
		begin := time.Now()
		run := syncRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		outcome, err := e.Do(t.Context(), run, 0)
		if err != nil || outcome.Text != "hello" || time.Since(begin) != 0 {
			t.Errorf("the caller got %+v, %v after %s, want its answer at once", outcome, err, time.Since(begin))
		}
		next := newRun("chat", "next")
		submit(t, e, next)
		time.Sleep(time.Hour)
		if record := get(t, store, run.ID); record.Status != engine.Running {
			t.Errorf("while the store fails the run is %s", record.Status)
		}
		if record := get(t, store, next.ID); record.Status != engine.Queued {
			t.Errorf("the next run of the chat is %s before the end of the first is kept", record.Status)
		}
		if turns, sent := r.counts(); turns != 1 || sent != 0 {
			t.Errorf("%d turns and %d deliveries while the store fails", turns, sent)
		}
		broken.Store(false)
		time.Sleep(10 * time.Second)
		if record := get(t, store, run.ID); record.Status != engine.Completed || record.Outcome.Text != "hello" || record.Attempts != 1 {
			t.Errorf("got %+v", record)
		}
		if record := get(t, store, next.ID); record.Status != engine.Completed {
			t.Errorf("the next run is %s", record.Status)
		}
		if turns, sent := r.counts(); turns != 2 || sent != 1 {
			t.Errorf("%d turns and %d deliveries in the end", turns, sent)
		}
		remembersNothing(t, e)
	})
}

func TestEndThatCannotBeStoredDoesNotHoldUpTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		var r recorder
		first := engine.New(&tampered{Store: data.Store(), end: func(*engine.Claim, engine.End) error { return errNoRoom }})
		first.Attach(r.config())
		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		submit(t, first, run)
		synctest.Wait()
		begin := time.Now()
		first.Stop()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("stopping took %s", took)
		}

		// What was not stored is done again.
		time.Sleep(time.Hour)
		startOn(t, data.Store(), r.config())
		synctest.Wait()
		record := get(t, data.Store(), run.ID)
		if turns, sent := r.counts(); turns != 2 || sent != 1 || record.Status != engine.Completed || record.Attempts != 2 {
			t.Errorf("%d turns and %d deliveries of %+v", turns, sent, record)
		}
	})
}

func TestStoreThatPanicsAtTheEndOfARunLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Int32
		store := &tampered{Store: memory.New().Store(), end: func(*engine.Claim, engine.End) error {
			if panics.Add(1) <= 6 { // more than there are workers
				panic("torn page")
			}
			return nil
		}}
		var r recorder
		e := startOn(t, store, r.config())
		var runs []*engine.Run
		for i := range 10 {
			runs = append(runs, newRun(fmt.Sprint(i), "hello"))
			submit(t, e, runs[i])
		}
		time.Sleep(5 * time.Minute)
		for _, run := range runs {
			if record := get(t, store, run.ID); record.Status != engine.Completed {
				t.Errorf("a run is %s after %d attempts", record.Status, record.Attempts)
			}
		}
		remembersNothing(t, e)
	})
}

func TestDeliveryIsRecordedWhenTheStoreWorksAgainAndSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		store := &tampered{Store: memory.New().Store(), settle: func(*engine.Delivery) error {
			if broken.Load() {
				return errNoRoom
			}
			return nil
		}}
		var r recorder
		e := startOn(t, store, r.config())
		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		submit(t, e, run)
		time.Sleep(time.Hour)
		if record := get(t, store, run.ID); len(record.Deliveries) != 1 || record.Deliveries[0].Status != engine.Pending {
			t.Errorf("while the store fails: %+v", record.Deliveries)
		}
		broken.Store(false)
		time.Sleep(10 * time.Second)
		record := get(t, store, run.ID)
		if _, sent := r.counts(); sent != 1 || record.Deliveries[0].Status != engine.Delivered || record.Deliveries[0].Attempt != 1 {
			t.Errorf("sent %d times, recorded as %+v", sent, record.Deliveries[0])
		}
	})
}

func TestStopPutsRunsBackAsIfTheyHadNotBeenStarted(t *testing.T) {
	for _, crashes := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			data := memory.New()
			store := data.Store()
			run := newRun("chat", "hello")
			run.CallbackURL = "https://example.com"
			add(t, store, run)
			crash(t, store, crashes)
			var r recorder
			c := r.config()
			c.MaxAttempts = crashes + 1
			hanging := c
			hanging.Runners = map[string]engine.Runner{"default": hang}
			for range 5 { // a stop must not use up an attempt
				e := engine.New(data.Store())
				e.Attach(hanging)
				synctest.Wait()
				if record := get(t, store, run.ID); record.Status != engine.Running || record.Attempts != crashes+1 {
					t.Errorf("it is %s with %d attempts", record.Status, record.Attempts)
				}
				e.Stop()
				if record := get(t, store, run.ID); record.Status != engine.Queued || record.Attempts != crashes {
					t.Errorf("after the stop it is %s with %d attempts, want %d", record.Status, record.Attempts, crashes)
				}
				remembersNothing(t, e)
			}
			startOn(t, data.Store(), c)
			synctest.Wait()
			record := get(t, store, run.ID)
			if turns, sent := r.counts(); turns != 1 || sent != 1 || record.Status != engine.Completed || record.Attempts != crashes+1 {
				t.Errorf("%d turns and %d deliveries of %+v", turns, sent, record)
			}
		})
	}
}

func TestStopOfSyncRuns(t *testing.T) {
	for _, tc := range []struct {
		name     string
		queued   bool
		callback string
		status   engine.Status // after the stop
	}{
		{"running", false, "", engine.Failed},
		{"queued", true, "", engine.Failed},
		{"running, with a callback", false, "https://example.com", engine.Queued},
		{"queued, with a callback", true, "https://example.com", engine.Queued},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.New()
				store := data.Store()
				var r recorder
				c := r.config()
				c.Runners["default"] = hang
				e := engine.New(data.Store())
				e.Attach(c)
				if tc.queued {
					submit(t, e, newRun("chat", "before it"))
					synctest.Wait()
				}
				run := syncRun("chat", "hello")
				run.CallbackURL = tc.callback
				outcomes := waitFor(t, e, run)
				synctest.Wait()
				e.Stop()
				if outcome := <-outcomes; outcome.Failure != engine.ShuttingDown || outcome.RetryAfter == 0 {
					t.Errorf("the caller got %+v", outcome)
				}
				remembersNothing(t, e)
				if record := get(t, store, run.ID); record.Status != tc.status {
					t.Errorf("after the stop it is %s, want %s", record.Status, tc.status)
				}
				startOn(t, data.Store(), r.config())
				synctest.Wait()
				if tc.callback != "" {
					if record := get(t, store, run.ID); record.Status != engine.Completed || len(r.sent) != 1 || r.sent[0].Body != "hello" {
						t.Errorf("after the next start: %+v, sent %+v", record, r.sent)
					}
				}
			})
		})
	}
}

// A claim must not run out while its turn has time to end.
func TestTurnsEndWithinALongDrainTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			length, _ := time.ParseDuration(turn.Message)
			select {
			case <-time.After(length):
				return engine.Reply{Text: "done"}, nil
			case <-ctx.Done():
				return engine.Reply{}, ctx.Err()
			}
		}))
		c.DrainTimeout = 5 * time.Minute
		e := engine.New(store)
		e.Attach(c)
		var runs []*engine.Run
		for _, length := range []string{"1m", "2m", "3m", "4m"} {
			run := newRun(length, length)
			run.Timeout = time.Hour
			submit(t, e, run)
			runs = append(runs, run)
		}
		synctest.Wait()
		e.Stop()
		for _, run := range runs {
			if record := get(t, store, run.ID); record.Status != engine.Completed {
				t.Errorf("a turn that took %s is %s after the stop", run.Message, record.Status)
			}
		}
	})
}

func TestDeliveryThatTheStopBreaksOffIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		store := data.Store()
		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		e := engine.New(data.Store())
		c := config(echo)
		c.Callbacks = senderFunc(func(ctx context.Context, _ *engine.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		e.Attach(c)
		submit(t, e, run)
		synctest.Wait()
		e.Stop()
		if d := get(t, store, run.ID).Deliveries[0]; d.Status != engine.Pending || d.Attempt != 0 {
			t.Errorf("after the stop it is %+v", d)
		}
		var r recorder
		startOn(t, data.Store(), r.config())
		synctest.Wait()
		if _, sent := r.counts(); sent != 1 || r.sent[0].Attempt != 1 {
			t.Errorf("sent %+v, want attempt 1", r.sent)
		}
		if d := get(t, store, run.ID).Deliveries[0]; d.Status != engine.Delivered || d.Attempt != 1 || d.LastError != "" {
			t.Errorf("in the end it is %+v", d)
		}
	})
}

// What is told about a delivery is shown to whoever may ask about the run.
func TestLastErrorOfADeliveryTellsNothingOfTheInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(echo)
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { panic("secret of the sender") })
		store := memory.New().Store()
		e := startOn(t, store, c)
		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		submit(t, e, run)
		synctest.Wait()
		d := get(t, store, run.ID).Deliveries[0]
		if d.Status != engine.Pending || d.Attempt != 1 || d.LastError == "" {
			t.Errorf("got %+v", d)
		}
		for _, word := range []string{"secret", "goroutine", ".go:"} {
			if strings.Contains(d.LastError, word) {
				t.Errorf("the last error speaks of %q: %q", word, d.LastError)
			}
		}
	})
}

func TestLongLastErrorsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(echo)
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			return &engine.FinalError{Err: errors.New(strings.Repeat("é", 10_000))}
		})
		store := memory.New().Store()
		e := startOn(t, store, c)
		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		submit(t, e, run)
		synctest.Wait()
		if d := get(t, store, run.ID).Deliveries[0]; d.Status != engine.Dead || len(d.LastError) > 310 || !strings.HasPrefix(d.LastError, "éé") {
			t.Errorf("got %+v", d)
		}
	})
}

// A store on another machine may fall silent. Calls end with their context, and so does the engine.
func TestStopDoesNotWaitForAStoreThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		store := &tampered{Store: memory.New().Store(), silent: &silent}
		var r recorder
		c := r.config()
		c.Runners["default"] = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "hang" {
				return hang(ctx, turn)
			}
			time.Sleep(30 * time.Second)
			return echo(ctx, turn)
		})
		e := engine.New(store)
		e.Attach(c)
		for _, message := range []string{"hang", "hello"} {
			run := newRun(message, message)
			run.Timeout = time.Hour
			submit(t, e, run)
		}
		caller := make(chan error, 1)
		go func() {
			_, err := e.Do(t.Context(), syncRun("hang", "behind the first one"), 0)
			caller <- err
		}()
		synctest.Wait()
		silent.Store(true)
		time.Sleep(5 * time.Minute)
		begin := time.Now()
		e.Stop()
		// The drain time, what is granted to stragglers, and a renewal that was under way.
		if took := time.Since(begin); took > 25*time.Second {
			t.Errorf("stopping took %s", took)
		}
		<-caller
		time.Sleep(time.Minute)
		remembersNothing(t, e)
	})
}
