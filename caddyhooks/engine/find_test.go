package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

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
			if _, err := e.Cancel(t.Context(), id, "somebody"); !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("Cancel %q: %v", id, err)
			}
		}
		remembersNothing(t, e)
	})
}

func TestCancelEndsARunThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		c := r.config()
		c.Runners["default"] = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
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
		record, err := e.Cancel(t.Context(), run.ID, "somebody")
		if err != nil || record.Status != engine.Cancelled || record.Attempts != 0 || !record.StartedAt.IsZero() ||
			!record.FinishedAt.Equal(begin) || record.Outcome.Message == "" || time.Since(begin) != 0 {
			t.Errorf("got %+v, %v", record, err)
		}
		again, err := e.Cancel(t.Context(), run.ID, "somebody")
		if err != nil || again.Status != engine.Cancelled || !again.FinishedAt.Equal(record.FinishedAt) {
			t.Errorf("the second time: %+v, %v", again, err)
		}
		if record, err := e.Cancel(t.Context(), first.ID, "somebody"); err != nil || record.Status != engine.Cancelled || record.Attempts != 1 {
			t.Errorf("the run before it: %+v, %v", record, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.turns) != 1 || r.turns[0] != last.ID {
			t.Errorf("the turns are %v, want that of %s alone", r.turns, last.ID)
		}
		// A channel gets texts only, and there is none.
		if len(r.sent) != 1 || r.sent[0].RunStatus != engine.Cancelled || r.sent[0].Body != errorBody(record.Outcome.Message) {
			t.Errorf("sent %+v", r.sent)
		}
		remembersNothing(t, e)
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
				c.Runners["default"] = runnerFunc(func(ctx context.Context, _ engine.Turn) (engine.Reply, error) {
					<-ctx.Done()
					time.Sleep(tc.slow)
					return engine.Reply{}, ctx.Err()
				})
				e := start(t, c)
				run := syncRun("chat", "")
				run.Timeout = time.Hour
				run.CallbackURL = "https://example.com"
				outcomes := waitFor(t, e, run)
				synctest.Wait()
				begin := time.Now()
				var group sync.WaitGroup
				for range 3 { // several may ask for it at once
					group.Go(func() {
						record, err := e.Cancel(t.Context(), run.ID, "somebody")
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
				remembersNothing(t, e)
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
			after, err := e.Cancel(t.Context(), run.ID, "somebody")
			if err != nil || after.Status != want || !after.FinishedAt.Equal(before.FinishedAt) || after.Outcome.Text != before.Outcome.Text {
				t.Errorf("%s: %+v became %+v, %v", message, before, after, err)
			}
		}
		remembersNothing(t, e)
	})
}

func TestCancelReachesARunThatIsAboutToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		store := &tampered{Store: memory.New().Store(), claimed: func(claims []*engine.Claim) {
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
			record, err := e.Cancel(t.Context(), run.ID, "somebody")
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
		remembersNothing(t, e)
	})
}

func TestCancelOfARunThatIsCarriedOutElsewhereLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		run := newRun("chat", "")
		add(t, store, run)
		if claims, _, err := store.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Hour}); err != nil || len(claims) != 1 {
			t.Fatalf("claimed %v, %v", claims, err)
		}
		e := startOn(t, store, config(echo))
		begin := time.Now()
		record, err := e.Cancel(t.Context(), run.ID, "somebody")
		if err != nil || record.Status != engine.Running || time.Since(begin) != 5*time.Second {
			t.Errorf("got %+v, %v after %s", record, err, time.Since(begin))
		}
		remembersNothing(t, e)
	})
}

func TestCancelThatCannotBeStoredIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tampered{Store: memory.New().Store(), end: func(claim *engine.Claim, _ engine.End) error {
			if claim.Token == "" {
				return errNoRoom
			}
			return nil
		}}
		c := config(hang)
		e := startOn(t, store, c)
		submit(t, e, newRun("chat", "first"))
		run := newRun("chat", "second")
		submit(t, e, run)
		synctest.Wait()
		if record, err := e.Cancel(t.Context(), run.ID, "somebody"); !errors.Is(err, errNoRoom) {
			t.Errorf("got %+v, %v", record, err)
		}
		if record := get(t, store, run.ID); record.Status != engine.Queued {
			t.Errorf("it is %s", record.Status)
		}
	})
}

func TestChatsAreListedWithTheRunThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(takes))
		fresh := newRun("hook:0", "0s")
		fresh.NewChat = true
		last := newRun("named", "1h")
		for _, run := range []*engine.Run{newRun("named", "0s"), fresh, last} {
			submit(t, e, run)
			synctest.Wait()
		}
		chats, next, err := e.Chats(t.Context(), engine.ChatQuery{Limit: 10, Input: true})
		if err != nil || next != "" || len(chats) != 1 || chats[0].ChatID != "named" || chats[0].Runs != 2 || chats[0].Last.Run.ID != last.ID ||
			chats[0].Last.Status != engine.Running || chats[0].Last.Run.Message != "1h" {
			t.Errorf("got %+v, %q, %v", chats, next, err)
		}
	})
}
