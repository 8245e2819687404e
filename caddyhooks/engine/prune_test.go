package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func TestPruningGoesOnUntilTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := engine.Limits{Retention: time.Hour, Keys: 7, KeyAge: time.Minute}
		var calls []time.Time
		store := &tampered{Store: memory.New().Store()}
		store.prune = func(got engine.Limits) (bool, error) {
			if got != limits {
				t.Errorf("pruned with %+v", got)
			}
			calls = append(calls, time.Now())
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
		if err := e.Submit(t.Context(), again, 0); !errors.As(err, &duplicate) || duplicate.First.ID != run.ID || !duplicate.SameBody {
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
