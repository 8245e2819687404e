package runners

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestEchoDoesAsItIsTold(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":2}}}`)
	for _, tc := range []struct {
		name string
		echo Echo
		turn engine.Turn
		want string
	}{
		{"the message", Echo{}, engine.Turn{Message: "hello"}, "hello"},
		{"a reply", Echo{Reply: "done"}, engine.Turn{Message: "hello"}, "done"},
		{"the smallest instance", Echo{}, engine.Turn{ResponseSchema: schema}, `{"n":2}`},
		{"a reply, also with a schema", Echo{Reply: "done"}, engine.Turn{ResponseSchema: schema}, "done"},
		{"wrongly first", Echo{InvalidFirst: 1}, engine.Turn{ResponseSchema: schema}, "answer 1 of 1 that matches no schema"},
		{"rightly then", Echo{InvalidFirst: 1}, engine.Turn{ResponseSchema: schema, Repair: 1}, `{"n":2}`},
		{"never wrongly without a schema", Echo{InvalidFirst: 1}, engine.Turn{Message: "hello"}, "hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.echo.Provision(caddy.Context{}); err != nil {
				t.Fatal(err)
			}
			reply, err := tc.echo.Run(t.Context(), tc.turn)
			if err != nil || reply.Text != tc.want {
				t.Errorf("got %q, %v, want %q", reply.Text, err, tc.want)
			}
		})
	}
}

func TestEchoFailsAsItIsTold(t *testing.T) {
	t.Parallel()
	var unavailable *engine.UnavailableError
	if _, err := (&Echo{Fail: 500}).Run(t.Context(), engine.Turn{}); err == nil || errors.As(err, &unavailable) {
		t.Errorf("500: got %v", err)
	}
	if _, err := (&Echo{Fail: 503}).Run(t.Context(), engine.Turn{}); !errors.As(err, &unavailable) || !unavailable.Busy {
		t.Errorf("503: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Echo{Delay: caddy.Duration(time.Hour)}).Run(ctx, engine.Turn{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestBadConfigurationOfEcho(t *testing.T) {
	t.Parallel()
	for _, echo := range []Echo{{Delay: -1}, {InvalidFirst: -1}, {Fail: 200}, {Fail: 600}, {Fail: -1}} {
		if err := echo.Validate(); err == nil {
			t.Errorf("%+v is taken", echo)
		}
	}
}
