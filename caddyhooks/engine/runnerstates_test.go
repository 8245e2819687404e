package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// stateOf is the state of a runner.
func stateOf(t *testing.T, e *engine.Engine, name string) engine.RunnerState {
	t.Helper()
	for _, state := range e.RunnerStates() {
		if state.Name == name {
			return state
		}
	}
	t.Fatalf("there is no runner %s in %+v", name, e.RunnerStates())
	return engine.RunnerState{}
}

func TestRunnerStatesTellHowTurnsWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			switch turn.Message {
			case "fail":
				return engine.Reply{}, errors.New("the runner answered 500:\n" + strings.Repeat("no ", 1000))
			case "hang":
				return hang(ctx, turn)
			}
			return echo(ctx, turn)
		}))
		c.Runners["other"] = echo
		e := start(t, c)
		if state := stateOf(t, e, "default"); state != (engine.RunnerState{Name: "default", State: engine.RunnerUnknown}) {
			t.Errorf("before the first turn the runner is %+v", state)
		}
		do := func(message string) {
			t.Helper()
			if _, err := e.Do(t.Context(), syncRun("a", message), 0); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		do("hello")
		if state := stateOf(t, e, "default"); state != (engine.RunnerState{Name: "default", State: engine.RunnerOK, LastOK: began}) {
			t.Errorf("after an answer the runner is %+v", state)
		}
		time.Sleep(time.Minute)
		do("fail")
		state := stateOf(t, e, "default")
		if state.State != engine.RunnerFailing || !state.LastErrorAt.Equal(time.Now()) || !state.LastOK.Equal(began) {
			t.Errorf("after a failure the runner is %+v", state)
		}
		if !strings.HasPrefix(state.LastError, `the runner answered 500:\nno no`) || len(state.LastError) > 512 || strings.Contains(state.LastError, "\n") {
			t.Errorf("the failure is told as %q", state.LastError)
		}
		for i := range 3 {
			submit(t, e, newRun(fmt.Sprint(i), "hang"))
		}
		synctest.Wait()
		if state := stateOf(t, e, "default"); state.InFlight != 3 {
			t.Errorf("with three turns the runner is %+v", state)
		}
		// They outlive a reload.
		detach := e.Attach(c)
		if state := stateOf(t, e, "default"); state.InFlight != 3 || state.State != engine.RunnerFailing || state.LastError == "" || !state.LastOK.Equal(began) {
			t.Errorf("after a reload the runner is %+v", state)
		}
		detach()
		time.Sleep(2 * time.Minute)
		if state := stateOf(t, e, "default"); state.InFlight != 0 || state.LastError != "the runner did not answer within 1m0s" {
			t.Errorf("after turns without an answer the runner is %+v", state)
		}
		if state := stateOf(t, e, "other"); state != (engine.RunnerState{Name: "other", State: engine.RunnerUnknown}) {
			t.Errorf("the other runner is %+v", state)
		}
	})
}

// A run that somebody cancels is not the runner's failure.
func TestACancelledTurnIsNoErrorOfTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(hang))
		run := newRun("a", "")
		submit(t, e, run)
		synctest.Wait()
		if _, err := e.Cancel(t.Context(), run.ID, "somebody"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if state := stateOf(t, e, "default"); state != (engine.RunnerState{Name: "default", State: engine.RunnerUnknown}) {
			t.Errorf("the runner is %+v", state)
		}
	})
}

// A runner of another name is another runner, and one that was gone begins anew.
func TestRunnerStatesAreForgottenWithTheirRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := config(echo)
		before.Runners["old"] = echo
		e := start(t, before)
		run := syncRun("a", "hello")
		run.Runner = "old"
		if _, err := e.Do(t.Context(), run, 0); err != nil {
			t.Fatal(err)
		}
		e.Attach(config(echo))
		if states := e.RunnerStates(); len(states) != 1 {
			t.Errorf("without it the runners are %+v", states)
		}
		e.Attach(before)
		if state := stateOf(t, e, "old"); state != (engine.RunnerState{Name: "old", State: engine.RunnerUnknown}) {
			t.Errorf("when it is there again it is %+v", state)
		}
	})
}

// blabbing is a runner that repeats its secret.
type blabbing struct{ runnerFunc }

func (blabbing) Redact(text string) string {
	return strings.ReplaceAll(text, "hunter2", "••••")
}

func TestTryingARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns []engine.Turn
		c := config(blabbing{func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			turns = append(turns, turn)
			switch len(turns) {
			case 2:
				panic("the key hunter2 is odd")
			case 3:
				<-ctx.Done()
				return engine.Reply{}, ctx.Err()
			case 4:
				return engine.Reply{}, errors.New("the key hunter2 is refused")
			}
			return engine.Reply{Text: "OK, hunter2"}, nil
		}})
		e := start(t, c)
		try := func() (engine.Reply, error) {
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			return e.Try(ctx, "default")
		}
		if reply, err := try(); err != nil || reply.Text != "OK, ••••" {
			t.Errorf("got %+v, %v", reply, err)
		}
		turn := turns[0]
		if turn.Message != "Answer with OK." || turn.Action != engine.Agent || turn.Memory() || turn.RunID == "" || turn.ChatID != "try:"+turn.RunID ||
			turn.Timeout != 30*time.Second || !turn.Deadline.Equal(time.Now().Add(30*time.Second)) || turn.Chat != nil {
			t.Errorf("the turn is %+v", turn)
		}
		if state := stateOf(t, e, "default"); state.State != engine.RunnerOK || state.LastOK.IsZero() || state.InFlight != 0 {
			t.Errorf("after the try the runner is %+v", state)
		}
		for _, want := range []string{"the runner panicked: the key •••• is odd", "the runner did not answer within 30s", "the key •••• is refused"} {
			_, err := try()
			if err == nil || err.Error() != want || stateOf(t, e, "default").LastError != want {
				t.Errorf("got %v, and the runner is %+v, want %q", err, stateOf(t, e, "default"), want)
			}
		}
		if turns[0].RunID == turns[1].RunID {
			t.Error("two tries have the same id")
		}
		if records, _, err := e.List(t.Context(), engine.Query{Limit: 10}); err != nil || len(records) != 0 {
			t.Errorf("there are runs: %v, %v", records, err)
		}
		var gone *engine.RunnerGoneError
		if _, err := e.Try(t.Context(), "other"); !errors.As(err, &gone) {
			t.Errorf("a runner that is not there: %v", err)
		}
		atRest(t, e)
	})
}

func TestOneTryAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(hang))
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			_, err := e.Try(ctx, "default")
			over <- err
		}()
		synctest.Wait()
		if state := stateOf(t, e, "default"); state.InFlight != 1 {
			t.Errorf("while it is tried the runner is %+v", state)
		}
		if _, err := e.Try(t.Context(), "default"); !errors.Is(err, engine.ErrTryUnderWay) {
			t.Errorf("the second try: %v", err)
		}
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("the first try: %v", err)
		}
		if state := stateOf(t, e, "default"); state != (engine.RunnerState{Name: "default", State: engine.RunnerUnknown}) {
			t.Errorf("after a try that was given up the runner is %+v", state)
		}
	})
}

// A try does not hold up the end of the engine.
func TestATryEndsWithTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(hang))
		over := make(chan error)
		go func() {
			_, err := e.Try(t.Context(), "default")
			over <- err
		}()
		synctest.Wait()
		e.Stop()
		if err := <-over; err == nil {
			t.Error("the try was answered")
		}
		if _, err := e.Try(t.Context(), "default"); !errors.Is(err, engine.ErrStopping) {
			t.Errorf("a try after the end: %v", err)
		}
	})
}

func TestATryThatIsAnsweredLetsRunsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{retryAfter: time.Hour, then: echo}
		e := start(t, config(runner))
		// Tries alone leave no runs alone.
		for range 20 {
			if _, err := e.Try(t.Context(), "default"); err == nil || err.Error() != "connection refused at 10.1.2.3" {
				t.Errorf("got %v", err)
			}
		}
		if state := stateOf(t, e, "default"); state.State != engine.RunnerUnreachable {
			t.Errorf("after tries the runner is %+v", state)
		}
		var runs []*engine.Run
		for i := range 20 {
			runs = append(runs, newRun(fmt.Sprint(i), "hello"))
			submit(t, e, runs[i])
		}
		time.Sleep(time.Minute)
		if state := stateOf(t, e, "default"); state.State != engine.RunnerUnreachable {
			t.Errorf("after its runs were refused the runner is %+v", state)
		}
		runner.comeBack()
		if _, err := e.Try(t.Context(), "default"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for i, run := range runs {
			if record := found(t, e, run); record.Status != engine.Completed {
				t.Errorf("run %d is %+v", i, record)
			}
		}
		if state := stateOf(t, e, "default"); state.State != engine.RunnerOK {
			t.Errorf("in the end the runner is %+v", state)
		}
	})
}

// A run that waits is tried again less and less often. Until the runner takes it on, there is one answer.
func TestARunnerIsUnreachableFromTheFirstRefusalUntilItTakesOnATurn(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 20 * time.Second} { // as one that is refused, and one that is not answered
		synctest.Test(t, func(t *testing.T) {
			runner := &absent{takes: takes, then: echo}
			e := start(t, config(runner))
			submit(t, e, newRun("a", "hello"))
			time.Sleep(takes)
			synctest.Wait()
			refusedAt := time.Now()
			for range 3000 {
				state := stateOf(t, e, "default")
				if state.State != engine.RunnerUnreachable || state.IsUp() || !state.Since.Equal(refusedAt) || state.Cause != "connection refused at 10.1.2.3" {
					t.Fatalf("%v after the first refusal the runner is %+v", time.Since(refusedAt), state)
				}
				time.Sleep(100 * time.Millisecond)
			}
			runner.comeBack()
			time.Sleep(time.Minute)
			if state := stateOf(t, e, "default"); state.State != engine.RunnerOK || !state.IsUp() || state.Cause != "" || !state.Since.IsZero() {
				t.Errorf("when it is back the runner is %+v", state)
			}
		})
	}
}

// Nobody tries whether a runner is back if no run waits for it. The node must get requests again to find out.
func TestARefusalWithoutARunThatWaitsCountsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		e := start(t, config(runner))
		refused := func(state string) {
			t.Helper()
			if got := stateOf(t, e, "default"); got.State != state || got.LastError == "" {
				t.Errorf("the runner is %+v, want %s", got, state)
			}
		}
		if outcome, err := e.Do(t.Context(), syncRun("a", ""), 0); err != nil || outcome.Failure != engine.RunnerUnavailable {
			t.Errorf("got %+v, %v", outcome, err)
		}
		refused(engine.RunnerUnreachable)
		time.Sleep(5100 * time.Millisecond)
		refused(engine.RunnerUnknown)
		if _, err := e.Try(t.Context(), "default"); err == nil {
			t.Error("the try was answered")
		}
		refused(engine.RunnerUnreachable)
		defer e.Attach(config(runner))()
		refused(engine.RunnerUnknown) // it may be another one
	})
}

func TestABusyRunnerIsToldOfWhenItIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{busy: true, then: echo}
		e := start(t, config(runner))
		for i := range 5 {
			if state := stateOf(t, e, "default"); state.State != engine.RunnerUnknown || !state.IsUp() {
				t.Errorf("after %d refusals the runner is %+v", i, state)
			}
			submit(t, e, newRun(fmt.Sprint(i), ""))
			time.Sleep(20 * time.Millisecond)
		}
		for range 600 {
			if state := stateOf(t, e, "default"); state.State != engine.RunnerBusy || state.IsUp() || state.Since.IsZero() {
				t.Fatalf("the runner is %+v", state)
			}
			time.Sleep(100 * time.Millisecond)
		}
		runner.comeBack()
		time.Sleep(31 * time.Second)
		if state := stateOf(t, e, "default"); state.State != engine.RunnerOK {
			t.Errorf("when it has time again the runner is %+v", state)
		}
	})
}

func TestARunnerThatNeverAnsweredIsFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := false
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if good {
				return echo(ctx, turn)
			}
			return engine.Reply{}, errors.New("the runner answered 401")
		})))
		for _, want := range []string{engine.RunnerFailing, engine.RunnerOK, engine.RunnerFailing} {
			if _, err := e.Do(t.Context(), syncRun("a", ""), 0); err != nil {
				t.Error(err)
			}
			if state := stateOf(t, e, "default"); state.State != want || !state.IsUp() {
				t.Errorf("the runner is %+v, want %s", state, want)
			}
			good = !good
		}
	})
}
