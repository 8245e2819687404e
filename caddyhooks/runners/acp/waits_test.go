package acp

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// outcomeOf is the end of a turn of an agent that told these updates, and then answered with an error, or not.
func outcomeOf(t *testing.T, preset string, err error, updates ...string) error {
	t.Helper()
	turn := &turnListener{runner: &ACP{preset: agentPresets[preset], maxBytes: maxTurnBytes}, stopped: make(chan struct{}), turn: new(engine.Turn)}
	for _, line := range updates {
		var update acpclient.Update
		if err := json.Unmarshal([]byte(line), &update); err != nil {
			t.Fatal(err)
		}
		turn.Update(update, len(line))
	}
	return turn.outcome(t.Context(), nil, "end_turn", err)
}

func TestACPWaitsAsAllRunnersDo(t *testing.T) {
	t.Parallel()
	const (
		codexError       = `{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":{"type":"systemError"}}}}`
		codexUnreachable = `{"sessionUpdate":"session_info_update","_meta":{"codex":{"error":{"message":"Reconnecting... waiting for network","additionalDetails":"Connection failed: error sending request","willRetry":true}}}}`
		tool             = `{"sessionUpdate":"tool_call","toolCallId":"1","kind":"execute"}`
	)
	said := func(id, text string) string {
		return fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","messageId":%q,"content":{"type":"text","text":%q}}`, id, text)
	}
	rejected := func(text string) error {
		return &acpclient.Rejected{Code: -32603, Message: "Internal error: " + text}
	}
	for preset, run := range map[string]func(t *testing.T, status int) error{
		"claude": func(t *testing.T, status int) error {
			text := fmt.Sprintf("API Error: %d the model says so", status)
			switch status {
			case 429:
				text = "API Error: Request rejected (429) · the model says so"
			case 529:
				text = "API Error: Repeated 529 Overloaded errors."
			}
			return outcomeOf(t, "claude", rejected(text), said("64471bb3-bc5e-4f2a-910c-00e4f935983c", text))
		},
		"codex": func(t *testing.T, status int) error {
			return outcomeOf(t, "codex", nil, codexError, said("", fmt.Sprintf("unexpected status %d No: the model says so", status)))
		},
		"gemini": func(t *testing.T, status int) error {
			return outcomeOf(t, "gemini", &acpclient.Rejected{Code: status, Message: "no"})
		},
	} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			runnertest.WantModelWaits(t, run)
		})
	}
	// What a model said or an agent did is not undone.
	busy := rejected("API Error: 529 {}")
	runnertest.WantWait(t, "ends", map[string]error{
		"claude":            outcomeOf(t, "claude", busy, said("msg_1", "Hello")),
		"claude, with tool": outcomeOf(t, "claude", busy, tool),
		"codex":             outcomeOf(t, "codex", nil, said("msg_1", "Hello"), codexError, said("", "unexpected status 529 No")),
		"codex, with tool":  outcomeOf(t, "codex", nil, tool, codexError, said("", "unexpected status 529 No")),
	})
	runnertest.WantWait(t, "waits for contact", map[string]error{
		"claude": outcomeOf(t, "claude", rejected("API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)")),
		"codex":  outcomeOf(t, "codex", nil, codexUnreachable),
	})
}
