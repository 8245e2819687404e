package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// drawn are the calls of a Traces, each as a line.
type drawn struct {
	mu    sync.Mutex
	lines []string
}

func (d *drawn) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *drawn) RunEnded(run *engine.Run, end engine.TracedEnd) {
	d.add("run %s: %s %s", run.Message, end.Status, end.Failure)
}

func (d *drawn) RunAgain(_ context.Context, earlier *engine.Run) (string, func(string)) {
	return "00-again-span-01", func(failure string) { d.add("again %s: %s", earlier.Message, failure) }
}

func (d *drawn) TurnBegins(call engine.TracedCall) (string, func([]engine.Use, string)) {
	name := fmt.Sprintf("turn %s by %s %d.%d.%d", call.Runs[0].Message, call.Runner, call.Attempt, call.Repair, call.Try)
	return "span of " + name, func(_ []engine.Use, failure string) { d.add("%s: %s", name, failure) }
}

func (d *drawn) DeliveryBegins(_ *engine.Run, delivery *engine.Delivery) (string, func(string)) {
	return "span of a delivery", func(failure string) { d.add("delivery %s %d: %s", delivery.Callback, delivery.Attempt, failure) }
}

func (d *drawn) take() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func TestTracesShowWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got drawn
		var parent string
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			parent = turn.TraceParent
			word, _, _ := strings.Cut(turn.Message, " ")
			switch {
			case turn.Repair > 0:
				return engine.Reply{Text: "{}"}, nil
			case word == "fail":
				return engine.Reply{}, errors.New("status 500")
			case word == "panic":
				panic("out of range")
			case word == "hang":
				return hang(ctx, turn)
			}
			return echo(ctx, turn)
		}))
		attempts, header := 0, ""
		c.Callbacks = senderFunc(func(ctx context.Context, d *engine.Delivery) error {
			header = engine.DeliveryTraceParent(ctx)
			time.Sleep(time.Second) // until the end of the run was drawn, which happens at the same time
			switch attempts++; attempts {
			case 1:
				d.LastStatus = 503
				return errors.New("the receiver answered 503")
			case 2:
				return &engine.UnreachableError{Err: errors.New("no route")}
			}
			return nil
		})
		c.Traces = &got
		e := start(t, c)
		expect := func(what string, want ...string) {
			t.Helper()
			if lines := got.take(); !slices.Equal(lines, want) {
				t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
		}
		do := func(run *engine.Run) {
			t.Helper()
			run.Timeout = time.Minute
			if _, err := e.Do(t.Context(), run, 0); err != nil {
				t.Fatal(err)
			}
		}
		const traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		do(&engine.Run{ChatID: "c", Message: "plain", Sync: true})
		expect("a run without a trace")
		do(&engine.Run{ChatID: "c", Message: "plain", Sync: true, TraceParent: traced})
		expect("a run", "turn plain by default 1.0.1: ", "run plain: completed ")
		if parent != "span of turn plain by default 1.0.1" {
			t.Errorf("the runner got %q", parent)
		}
		do(&engine.Run{ChatID: "c", Message: "repair", Sync: true, TraceParent: traced, Schema: []byte(`{"type":"object"}`)})
		expect("a repair", "turn repair by default 1.0.1: ", "turn repair by default 1.1.1: ", "run repair: completed ")
		do(&engine.Run{ChatID: "c", Message: "fail", Sync: true, TraceParent: traced})
		expect("a failure", "turn fail by default 1.0.1: runner_failed", "run fail: failed runner_failed")
		do(&engine.Run{ChatID: "c", Message: "panic", Sync: true, TraceParent: traced})
		expect("a panic", "turn panic by default 1.0.1: panic", "run panic: failed runner_failed")
		do(&engine.Run{ChatID: "c", Message: "hang", Sync: true, TraceParent: traced})
		expect("a run that takes too long", "turn hang by default 1.0.1: timed_out", "run hang: timed_out ")

		do(&engine.Run{ChatID: "c", Message: "tell", Sync: true, TraceParent: traced, CallbackURL: "https://example.com/"})
		time.Sleep(time.Hour)
		expect("deliveries", "turn tell by default 1.0.1: ", "run tell: completed ", "delivery https://example.com/ 1: 503",
			"delivery https://example.com/ 2: unreachable", "delivery https://example.com/ 3: ")
		if header != "span of a delivery" {
			t.Errorf("the receiver was told %q", header)
		}
		do(&engine.Run{ChatID: "c", Message: "tell", Sync: true, CallbackURL: "https://example.com/"})
		time.Sleep(time.Minute)
		expect("a delivery without a trace")
		if header != "" {
			t.Errorf("a receiver without a trace was told %q", header)
		}

		failed := &engine.Run{ChatID: "c", Message: "fail again", Timeout: time.Minute, History: time.Hour}
		if err := e.Submit(t.Context(), failed, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		again, err := e.RunAgain(t.Context(), failed.ID, engine.Again{})
		if err != nil {
			t.Fatal(err)
		}
		lines := got.take()
		slices.Sort(lines) // a worker may be quicker than the one who started it
		if want := []string{"again fail again: ", "run fail again: failed runner_failed", "turn fail again by default 1.0.1: runner_failed"}; !slices.Equal(lines, want) || again.TraceParent != "00-again-span-01" {
			t.Errorf("a run again has the trace parent %q, and\n%s", again.TraceParent, strings.Join(lines, "\n"))
		}
	})
}
