package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
)

func TestStackOfAPanicIsAFieldOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) { panic("out of order") }))
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error { panic("out of order") })
		c.Log = zap.New(core)
		e := start(t, c)
		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		submit(t, e, run)
		synctest.Wait()
		for message, want := range map[string][2]string{
			"run finished":                         {"reason", "the runner panicked: out of order"},
			"delivery failed, will be tried again": {"error", "the sender panicked: out of order"},
		} {
			lines := logs.FilterMessage(message).All()
			if len(lines) != 1 {
				t.Fatalf("%q was logged %d times", message, len(lines))
			}
			fields := lines[0].ContextMap()
			if fields[want[0]] != want[1] {
				t.Errorf("the %s is %q", want[0], fields[want[0]])
			}
			if stack, _ := fields["stack"].(string); !strings.Contains(stack, "panic_test.go") {
				t.Errorf("the stack is %q", stack)
			}
		}
	})
}

// firstPanics is an announcer that panics at the first end.
type firstPanics struct{ ends atomic.Int32 }

func (a *firstPanics) RunEnded(*engine.Run, engine.Outcome, time.Duration) {
	if a.ends.Add(1) == 1 {
		panic("out of order")
	}
}
func (*firstPanics) DeliveryDead(*engine.Delivery) {}
func (*firstPanics) BudgetReached(*budget.State)   {}

// The run that is claimed together with the end of another one is carried out, whatever happens after that.
func TestAPanicAfterAnEndLosesNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		announcer := new(firstPanics)
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			time.Sleep(time.Millisecond)
			return echo(ctx, turn)
		}))
		c.Announcer, c.Workers = announcer, 1
		e := start(t, c)
		for _, chat := range []string{"a", "b", "c"} {
			submit(t, e, newRun(chat, "hello"))
		}
		time.Sleep(time.Second) // a lease is longer
		if n := announcer.ends.Load(); n != 3 {
			t.Errorf("%d of 3 runs have ended", n)
		}
	})
}
