package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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
