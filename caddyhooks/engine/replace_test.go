package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func replacing(chat, message string) *engine.Run {
	run := newRun(chat, message)
	run.Replaces = true
	return run
}

// wantReplaced checks that a run was cancelled by a newer one.
func wantReplaced(t *testing.T, record *engine.Record, by *engine.Run) {
	t.Helper()
	if o := &record.Outcome; o.Status != engine.Cancelled || o.Failure != engine.Replaced || !strings.HasSuffix(o.Account.CancelledBy, by.ID) {
		t.Errorf("a run that was replaced ended as %s %s by %q, want %s", o.Status, o.Failure, o.Account.CancelledBy, by.ID)
	}
}

// A process may die after it has accepted a run and before it has cancelled those that the run replaces.
func TestRunsAreReplacedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		first, second, third := replacing("a", "first"), replacing("a", "second"), replacing("a", "third")
		other, another := newRun("a", "other"), replacing("b", "another chat")
		other.Hook = "other"
		for _, run := range []*engine.Run{first, second, other, third, another} {
			if err := store.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
				t.Fatal(err)
			}
		}
		startOn(t, store, config(echo))
		synctest.Wait()
		for _, run := range []*engine.Run{first, second} {
			record := get(t, store, run.ID)
			wantReplaced(t, record, third)
			if record.Attempts != 0 {
				t.Errorf("a run that was replaced was started %d times", record.Attempts)
			}
		}
		for _, run := range []*engine.Run{other, third, another} {
			if status := get(t, store, run.ID).Status; status != engine.Completed {
				t.Errorf("%s is %s", run.Message, status)
			}
		}
	})
}

// A turn may take a while to end after it was cancelled. The one that takes its place waits for that.
func TestTurnThatIsReplacedEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := make(map[string]time.Duration)
		began := time.Now()
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			defer func() { ends[turn.Message] = time.Since(began) }()
			if turn.Message == "stubborn" {
				time.Sleep(10 * time.Second)
				return engine.Reply{}, context.Cause(ctx)
			}
			return engine.Reply{Text: "done"}, nil
		})))
		first, second := replacing("a", "stubborn"), replacing("a", "next")
		submit(t, e, first)
		synctest.Wait()
		submit(t, e, second)
		if record := find(t, e, second.ID); record.Status != engine.Completed {
			t.Errorf("the newer run is %s", record.Status)
		}
		wantReplaced(t, find(t, e, first.ID), second)
		if ends["next"] < ends["stubborn"] {
			t.Errorf("two turns of a chat were under way: %v", ends)
		}
	})
}

// The next run of a chat starts at once when the one before it is withdrawn.
func TestNextRunStartsWhenOneThatWaitsIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		first := replacing("a", "first")
		if err := store.Runs().Add(t.Context(), first, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		claims, _, err := store.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
		if err == nil {
			_, err = store.Runs().End(t.Context(), claims[0], engine.End{Requeue: true, WaitingFor: "somebody",
				Question: &engine.Question{Kind: engine.AskAgent}}, engine.Batch{})
		}
		if err != nil {
			t.Fatal(err)
		}
		e := startOn(t, store, config(echo))
		time.Sleep(time.Minute + 1)
		began, second := time.Now(), replacing("a", "second")
		submit(t, e, second)
		synctest.Wait()
		if record := get(t, store, second.ID); record.Status != engine.Completed || time.Since(began) > 0 {
			t.Errorf("the newer run is %s after %s", record.Status, time.Since(began))
		}
		wantReplaced(t, get(t, store, first.ID), second)
	})
}

// A hook may get overlap replace when many of its runs wait in a chat.
func TestAllOlderRunsOfTheChatAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New().Store()
		older := make([]*engine.Run, 4500)
		for i := range older {
			older[i] = newRun("a", "older")
			if err := store.Runs().Add(t.Context(), older[i], engine.Terms{}); err != nil {
				t.Fatal(err)
			}
		}
		started := make(chan string, len(older))
		e := startOn(t, store, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message != "older" {
				return engine.Reply{Text: "done"}, nil
			}
			started <- turn.RunID
			<-ctx.Done()
			return engine.Reply{}, context.Cause(ctx)
		})))
		<-started
		newer := replacing("a", "newer")
		submit(t, e, newer)
		synctest.Wait()
		for _, run := range older {
			wantReplaced(t, get(t, store, run.ID), newer)
		}
		if status := get(t, store, newer.ID).Status; status != engine.Completed || len(started) > 0 {
			t.Errorf("the newer run is %s, and %d older ones were started meanwhile", status, len(started))
		}
	})
}
