package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// slowly answers after a second a turn: the first turn with the message, repairs with their number.
var slowly = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	time.Sleep(time.Second)
	switch {
	case turn.Repair > 0:
		return engine.Reply{Text: fmt.Sprint(turn.Repair)}, nil
	case turn.Message == "hang":
		return hang(ctx, turn)
	case turn.Message == "panic":
		panic("ouch")
	case turn.Message == "fail":
		return engine.Reply{}, errors.New("no")
	}
	return engine.Reply{Text: turn.Message}, nil
})

// showSteps writes steps as "phase start+took tier bytes [errors]", with times since the run was accepted.
func showSteps(record *engine.Record) string {
	var lines []string
	for _, s := range record.Steps {
		line := fmt.Sprintf("%s %v+%v %s %d", s.Phase, s.StartedAt.Sub(record.Run.AcceptedAt), s.Took, s.Tier, s.Bytes)
		if s.Errors != nil {
			line += fmt.Sprintf(" %q", s.Errors)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestStepsOfARunAreKept(t *testing.T) {
	const notANumber = `"at the top level: must be a number, but is a string"`
	schema := func(text string) func(*engine.Run) {
		return func(run *engine.Run) { run.Schema = json.RawMessage(text) }
	}
	for name, tc := range map[string]struct {
		message string
		change  func(*engine.Run)
		busy    bool // another run has the worker for 5 seconds
		then    func(e *engine.Engine, run *engine.Run)
		want    []string
	}{
		"completed":     {message: "hello", want: []string{"queued 0s+0s  0", "turn 0s+1s  5"}},
		"with a tier":   {message: "hello", change: func(run *engine.Run) { run.Tier = "smart" }, want: []string{"queued 0s+0s  0", "turn 0s+1s smart 5"}},
		"after a wait":  {message: "hello", busy: true, want: []string{"queued 0s+5s  0", "turn 5s+1s  5"}},
		"failed":        {message: "fail", want: []string{"queued 0s+0s  0", "turn 0s+1s  0"}},
		"panicked":      {message: "panic", want: []string{"queued 0s+0s  0", "turn 0s+1s  0"}},
		"timed out":     {message: "hang", want: []string{"queued 0s+0s  0", "turn 0s+1m0s  0"}},
		"a good answer": {message: "7", change: schema(`{"type":"number"}`), want: []string{"queued 0s+0s  0", "turn 0s+1s  1"}},
		"one repair":    {message: `"seven"`, change: schema(`{"type":"number"}`), want: []string{"queued 0s+0s  0", "turn 0s+1s  7 [" + notANumber + "]", "repair 1s+1s balanced 1"}},
		"in vain":       {message: "[]", change: schema(`{"const":"x"}`), want: []string{"queued 0s+0s  0", `turn 0s+1s  2 ["at the top level: must be exactly \"x\""]`, `repair 1s+1s balanced 1 ["at the top level: must be exactly \"x\""]`, `repair 2s+1s balanced 1 ["at the top level: must be exactly \"x\""]`, `repair 3s+1s balanced 1 ["at the top level: must be exactly \"x\""]`}},
		"repair too late": {message: `"x"`, change: func(run *engine.Run) {
			run.Schema, run.Timeout = json.RawMessage(`{"const":1}`), 1500*time.Millisecond
		}, want: []string{"queued 0s+0s  0", `turn 0s+1s  3 ["at the top level: must be exactly 1"]`, "repair 1s+1s balanced 1"}},
		"cancelled": {message: "hang", then: func(e *engine.Engine, run *engine.Run) {
			time.Sleep(3 * time.Second)
			_, _ = e.Cancel(context.Background(), run.ID, "somebody")
		}, want: []string{"queued 0s+0s  0", "turn 0s+3s  0"}},
		"cancelled while it was queued": {message: "hello", busy: true, then: func(e *engine.Engine, run *engine.Run) {
			time.Sleep(3 * time.Second)
			_, _ = e.Cancel(context.Background(), run.ID, "somebody")
		}, want: []string{"queued 0s+3s  0"}},
		"expired": {message: "hello", busy: true, change: func(run *engine.Run) { run.QueueTime = 2 * time.Second }, want: []string{"queued 0s+2s  0"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
					if turn.ChatID == "busy" {
						return takes(ctx, turn)
					}
					return slowly(ctx, turn)
				}))
				c.Workers = 1
				e := start(t, c)
				if tc.busy {
					submit(t, e, newRun("busy", "5s"))
				}
				run := newRun("chat", tc.message)
				if tc.change != nil {
					tc.change(run)
				}
				submit(t, e, run)
				if tc.then != nil {
					tc.then(e, run)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				record := find(t, e, run.ID)
				got := strings.ReplaceAll(showSteps(record), ".001s", "s") // runs expire when a timer goes off
				if want := strings.Join(tc.want, "\n"); got != want {
					t.Errorf("a run that is %s has the steps\n%s\nwant\n%s", record.Status, got, want)
				}
			})
		})
	}
}

func TestStepsOfARunThatACallerWaitsForAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(slowly))
		run := syncRun("chat", "hello")
		<-waitFor(t, e, run)
		if got := showSteps(find(t, e, run.ID)); got != "queued 0s+0s  0\nturn 0s+1s  5" {
			t.Errorf("got\n%s", got)
		}
	})
}

func TestStepsOfARunUnderWayAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(slowly)
		c.Workers = 1
		e := start(t, c)
		first, second := newRun("a", `"x"`), newRun("b", "hello")
		first.Schema = json.RawMessage(`{"const":1}`)
		submit(t, e, first)
		synctest.Wait()
		submit(t, e, second)
		time.Sleep(1500 * time.Millisecond)
		now := func(id string) *engine.Record {
			record, err := e.Find(t.Context(), id, 0)
			if err != nil {
				t.Fatal(err)
			}
			return record
		}
		if got := showSteps(now(first.ID)); got != "queued 0s+0s  0\nturn 0s+1s  3 [\"at the top level: must be exactly 1\"]\nrepair 1s+500ms balanced 0" {
			t.Errorf("running:\n%s", got)
		}
		if got := showSteps(now(second.ID)); got != "queued 0s+1.5s  0" {
			t.Errorf("queued:\n%s", got)
		}
	})
}

// A run that waits for its runner, or that was started before the process died, has the steps of its last attempt.
func TestStepsAreThoseOfTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := time.Now().Add(20 * time.Second)
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if time.Now().Before(away) {
				return engine.Reply{}, &engine.UnavailableError{Err: errors.New("nobody is there")}
			}
			return slowly(ctx, turn)
		})))
		run := newRun("chat", "hello")
		submit(t, e, run)
		time.Sleep(time.Hour)
		synctest.Wait()
		record := find(t, e, run.ID)
		steps := record.Steps
		if len(steps) != 2 || steps[0].Phase != engine.PhaseQueued || steps[0].Took < 20*time.Second || steps[1].Phase != engine.PhaseTurn ||
			!steps[1].StartedAt.Equal(record.Run.AcceptedAt.Add(steps[0].Took)) || steps[1].Took != time.Second {
			t.Errorf("after a wait:\n%s", showSteps(record))
		}

		store := memory.New().Store()
		run = newRun("chat", "hello")
		add(t, store, run)
		crash(t, store, 2)
		time.Sleep(time.Minute)
		e = startOn(t, store, config(slowly))
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := showSteps(find(t, e, run.ID)); !strings.HasSuffix(got, "+1s  5") || strings.Count(got, "turn") != 1 {
			t.Errorf("after crashes:\n%s", got)
		}
	})
}

// secretive is a runner with a secret that its answers repeat.
type secretive struct{ runnerFunc }

func (secretive) Redact(text string) string { return strings.ReplaceAll(text, "s3cret", "[redacted]") }

func TestErrorsOfStepsAreBoundedAndHaveNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(secretive{func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			object := make(map[string]int)
			for i := range 100 {
				object["s3cret"+strings.Repeat("\x1b😀", 100)+fmt.Sprint(i)] = i
			}
			text, err := json.Marshal(object)
			return engine.Reply{Text: string(text)}, err
		}}))
		run := newRun("chat", "hello")
		run.Schema = json.RawMessage(`{"additionalProperties":{"type":"string"}}`)
		submit(t, e, run)
		synctest.Wait()
		steps := find(t, e, run.ID).Steps
		if len(steps) != 5 {
			t.Fatalf("there are %d steps", len(steps))
		}
		for _, step := range steps[1:] {
			if n := len(step.Errors); n < 4 || n > 8 || step.Size() > 2<<10 {
				t.Errorf("%s has %d errors of %d bytes", step.Phase, n, step.Size())
			}
			if text := strings.Join(step.Errors, ""); strings.Contains(text, "s3c") || strings.Contains(text, "\x1b") || !strings.Contains(text, "[redacted]") {
				t.Errorf("an error is %q", text)
			}
		}
	})
}
