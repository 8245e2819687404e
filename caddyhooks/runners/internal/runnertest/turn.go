// Package runnertest has what the tests of several runners share. It imports engine, and no package of the runners.
package runnertest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// ExampleTurn is a turn that has all fields.
func ExampleTurn() engine.Turn {
	return engine.Turn{
		RunID: "run", ChatID: "chät 1", Action: engine.Agent, Hook: "github", Name: "label",
		Message: "<hello> & \u2028", System: "be brief", Tier: "smart", MemoryPreset: "ops_support",
		ResponseSchema: json.RawMessage(`{"type":"object"}`), Metadata: json.RawMessage(`{"n":1.10}`),
		Timeout: 90 * time.Second, Deadline: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// Chat is a chat with a past, and with the session that a runner gave it.
type Chat struct {
	History   []engine.PastTurn
	SessionID string
	Err       error
	Bytes     int // that were asked for last
}

// Past returns the last turns.
func (c *Chat) Past(_ context.Context, turns, bytes int) ([]engine.PastTurn, error) {
	c.Bytes = bytes
	return c.History[max(0, len(c.History)-turns):], c.Err
}

// Session returns SessionID.
func (c *Chat) Session(context.Context) (string, error) { return c.SessionID, c.Err }
