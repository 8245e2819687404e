package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestRunsAreCarriedOutByTheRunnerThatTheyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := func(name string) engine.Runner {
			return runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) { return engine.Reply{Text: name}, nil })
		}
		c := config(named("the default one"))
		c.Runners["other"] = named("the other one")
		e := start(t, c)
		for name, want := range map[string]string{"": "the default one", "default": "the default one", "other": "the other one"} {
			run := syncRun("chat", "hello")
			run.Runner = name
			if outcome, err := e.Do(t.Context(), run, 0); err != nil || outcome.Text != want {
				t.Errorf("%q: got %+v, %v", name, outcome, err)
			}
		}
	})
}

func TestRunWhoseRunnerIsGoneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		e := start(t, r.config())
		run := syncRun("chat", "hello")
		run.Runner, run.CallbackURL = "gone", "https://example.com"
		outcome, err := e.Do(t.Context(), run, 0)
		if err != nil || outcome.Status != engine.Failed || outcome.Failure != engine.RunnerFailed ||
			!strings.Contains(outcome.Message, "not configured any more") {
			t.Errorf("got %+v, %v", outcome, err)
		}
		synctest.Wait()
		if turns, sent := r.counts(); turns != 0 || sent != 1 || r.sent[0].Body != errorBody(outcome.Message) {
			t.Errorf("%d turns, sent %+v", turns, r.sent)
		}
	})
}

// A run that was cancelled, or whose time was up, before its turn began is not given to the runner.
func TestTurnsDoNotBeginWhenTheirTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := 0
		e := start(t, config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			turns++
			return engine.Reply{}, errors.New("the context is done")
		})))
		run := newRun("chat", "hello")
		run.Timeout = 0
		submit(t, e, run)
		synctest.Wait()
		if record := found(t, e, run); record.Status != engine.TimedOut || turns != 0 {
			t.Errorf("%d turns of %+v", turns, record)
		}
	})
}
