package acp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
)

// The updates are those of the real programs, as they were seen.
func TestACPPresetsTellErrorsFromAnswers(t *testing.T) {
	t.Parallel()
	const warning = `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Warning: Model metadata not found.\n\n"}}`
	chunk := func(id, text string) string {
		return `{"sessionUpdate":"agent_message_chunk","messageId":"` + id + `","content":{"type":"text","text":"` + text + `"}}`
	}
	for name, test := range map[string]struct {
		preset  string
		updates []string
		text    string // "" if the turn fails
		failure string
		told    string // as it was said, before the end of the turn
	}{
		"codex answers": {"codex", []string{warning, `{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":{"type":"active"}}}}`,
			chunk("msg_1", "fake: "), chunk("msg_1", "hello")}, "fake: hello", "", "fake: hello"},
		"codex fails": {"codex", []string{warning, `{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":{"type":"systemError"}}}}`,
			`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"fake error 400\n\n"}}`}, "", "fake error 400", ""},
		"codex fails in the middle": {"codex", []string{chunk("msg_1", "fake: "),
			`{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":{"type":"systemError"}}}}`}, "", "could not ask its model", "fake: "},
		"copilot answers":  {"copilot", []string{chunk("", "Info: Disabled tools: view"), chunk("", "Error: "), chunk("", "none")}, "Error: none", "", "Error: none"},
		"copilot fails":    {"copilot", []string{chunk("", "Info: Retrying..."), chunk("", "Error: 400 fake error")}, "", "400 fake error", ""},
		"copilot rejected": {"copilot", []string{chunk("", "Info: Operation cancelled by user")}, "", "cancelled by user", ""},
		"claude answers":   {"claude", []string{chunk("msg_1", "fake: hello")}, "fake: hello", "", "fake: hello"},
		"claude notes":     {"claude", []string{chunk("64471bb3-bc5e-4f2a-910c-00e4f935983c", "API Error: 400")}, "API Error: 400", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told strings.Builder
			turn := &turnListener{runner: &ACP{preset: agentPresets[test.preset], maxBytes: maxTurnBytes}, stopped: make(chan struct{}),
				turn: &engine.Turn{Emit: func(p engine.Progress) { told.WriteString(p.Text) }}}
			for _, line := range test.updates {
				var update acpclient.Update
				if err := json.Unmarshal([]byte(line), &update); err != nil {
					t.Fatal(err)
				}
				turn.Update(update, len(line))
			}
			if told.String() != test.told {
				t.Errorf("told %q", told.String())
			}
			err := turn.outcome(t.Context(), nil, "end_turn", nil)
			if test.text == "" && (err == nil || !strings.Contains(err.Error(), test.failure)) {
				t.Errorf("failed with %v", err)
			}
			if test.text != "" && (err != nil || turn.text.String() != test.text || told.String() != test.text) {
				t.Errorf("got %q, told %q, %v", turn.text.String(), told.String(), err)
			}
		})
	}
}

func TestACPPresetsTakeToolsFromRepairs(t *testing.T) {
	t.Parallel()
	for name, preset := range agentPresets {
		if preset.switches == nil {
			continue
		}
		shown := func(kind processKind) string {
			kind.folder = t.TempDir()
			args, env, err := preset.switches(kind)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := json.Marshal([]any{slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, kind.folder) }), env})
			return string(data)
		}
		with, without := shown(processKind{}), shown(processKind{isolated: true, permit: []string{"read", "execute"}})
		if with == without && name != "gemini" { // whose policy is in a file
			t.Errorf("%s gets the same switches for a repair: %s", name, with)
		}
	}
	data, err := json.Marshal(claudeMeta(sessionKind{isolated: true}))
	if err != nil || !strings.Contains(string(data), `"tools":[]`) || !strings.Contains(string(data), `"persistSession":false`) {
		t.Errorf("claude gets %s, %v", data, err)
	}
	data, err = json.Marshal(claudeMeta(sessionKind{memory: true, permit: []string{"read"}}))
	if err != nil || strings.Contains(string(data), "persistSession") || strings.Contains(string(data), `"Read"`) || !strings.Contains(string(data), `"Bash"`) {
		t.Errorf("with reading, claude gets %s, %v", data, err)
	}
}
