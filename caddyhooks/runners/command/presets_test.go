package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

const (
	session      = "0d6dc6b4-1a6e-4f7e-8f4b-3f1d2c9b7a10"
	otherSession = "7f0b0a60-9c0e-4a3b-a7c5-1f2e3d4c5b6a"

	claudeSays = `{"type":"system","subtype":"init","session_id":"` + session + `","tools":["Bash"]}
{"type":"stream_event","event":{"type":"message_start"},"session_id":"` + session + `","parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}},"session_id":"` + session + `","parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hel"}},"session_id":"` + session + `","parent_tool_use_id":null}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"lo"}},"session_id":"` + session + `","parent_tool_use_id":null}
`
	claudeSucceeds = `{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"result":"Hello","session_id":"` + session + `","permission_denials":[]}` + "\n"

	codexSays = `{"type":"thread.started","thread_id":"` + session + `"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata not found."}}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"I will look."}}
{"type":"item.completed","item":{"id":"item_2","type":"command_execution","command":"ls","aggregated_output":"{}","exit_code":0}}
{"type":"item.completed","item":{"id":"item_3","type":"agent_message","text":"Hello"}}
`
	codexSucceeds = `{"type":"turn.completed","usage":{"input_tokens":10}}` + "\n"
)

// read has a preset read an output.
func readPreset(preset string, p *presetTurn, output string, exit programExit) presetEnd {
	reader := programPresets[preset].newReader(p)
	if err := readLines(strings.NewReader(output), reader.line); err != nil {
		return presetEnd{err: err}
	}
	return reader.end(exit)
}

func exited(code int, stderr string) programExit {
	return programExit{&supervise.Exit{Code: code}, stderr}
}

// idOf is a session without what is noted about it.
func idOf(session string) string {
	id, _, _ := strings.Cut(session, " ")
	return id
}

func memoryTurn() *presetTurn {
	turn := agentTurn("Hello")
	turn.MemoryPreset, turn.Chat = "general_chat", &runnertest.Chat{}
	return &presetTurn{programTurn: &programTurn{turn: &turn}}
}

func schemaTurn() *presetTurn {
	p := memoryTurn()
	p.turn.ResponseSchema = json.RawMessage(`{"type":"object"}`)
	return p
}

func TestSuccessIsWhatTheProgramSaysItIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		preset, output string
		exit           programExit
		want           string // the answer, or the error
		fails          bool
		session        string
	}{
		"claude":                   {"claude", claudeSays + claudeSucceeds, exited(0, ""), "Hello", false, session},
		"claude, other lines":      {"claude", "npm notice\n[1]\n{}\n\n" + claudeSucceeds + `{"type":"system","subtype":"status"}`, exited(0, ""), "Hello", false, session},
		"claude, exit code":        {"claude", claudeSays + claudeSucceeds, exited(1, "why"), "Claude Code ended with exit code 1: Hello", true, session},
		"claude, signal":           {"claude", claudeSays + claudeSucceeds, programExit{&supervise.Exit{Code: -1, Signal: syscall.SIGKILL}, ""}, "Claude Code was ended by a signal (killed)", true, session},
		"claude, no result":        {"claude", claudeSays, exited(0, ""), "Claude Code ended with exit code 0 and without a result", true, session},
		"claude, nothing":          {"claude", "", exited(0, "why"), "without a result: why", true, ""},
		"claude, error as success": {"claude", claudeSays + strings.Replace(claudeSucceeds, `"is_error":false`, `"is_error":true`, 1), exited(0, ""), "Claude Code ended with exit code 0: Hello", true, session},
		"claude, no is_error":      {"claude", strings.Replace(claudeSucceeds, `"is_error":false,`, "", 1), exited(0, ""), "Claude Code ended", true, ""},
		"claude, other subtype":    {"claude", strings.Replace(claudeSucceeds, `"success"`, `"error_max_turns"`, 1), exited(0, ""), "(error_max_turns)", true, ""},
		"claude, last result":      {"claude", claudeSucceeds + strings.Replace(claudeSucceeds, `"is_error":false`, `"is_error":true`, 1), exited(0, ""), "Claude Code ended", true, ""},
		"claude, unreadable":       {"claude", claudeSucceeds + strings.Replace(claudeSucceeds, `"Hello"`, `{}`, 1), exited(0, ""), "without a result", true, ""},
		"claude, empty":            {"claude", strings.Replace(claudeSucceeds, `"Hello"`, `" \n"`, 1), exited(0, ""), "the answer of Claude Code: the program gave no answer", true, session},
		"claude, too large":        {"claude", strings.Replace(claudeSucceeds, `Hello`, strings.Repeat("x", answers.MaxReply+1), 1), exited(0, ""), "larger than", true, session},
		"claude, model error":      {"claude", strings.NewReplacer(`"is_error":false`, `"is_error":true`, "null", "401").Replace(claudeSucceeds), exited(1, ""), "the model of Claude Code answered 401: Hello", true, ""},

		"codex":                 {"codex", codexSays + codexSucceeds, exited(0, ""), "Hello", false, session},
		"codex, exit code":      {"codex", codexSays + codexSucceeds, exited(1, "why"), "Codex ended with exit code 1: why", true, session},
		"codex, not completed":  {"codex", codexSays, exited(0, "why"), "Codex ended with exit code 0: why", true, session},
		"codex, failed":         {"codex", codexSays + `{"type":"turn.failed","error":{"message":"429 Too Many"}}`, exited(1, ""), "Codex failed: 429 Too Many", true, session},
		"codex, failed, exit 0": {"codex", codexSays + codexSucceeds + `{"type":"turn.failed","error":{"message":"no"}}`, exited(0, ""), "Codex failed: no", true, session},
		"codex, tried again":    {"codex", codexSays + `{"type":"error","message":"Reconnecting"}` + "\n" + codexSucceeds, exited(0, ""), "Hello", false, session},
		"codex, no message":     {"codex", codexSucceeds, exited(0, ""), "the answer of Codex: the program gave no answer", true, ""},
		"codex, strange thread": {"codex", `{"type":"thread.started","thread_id":"--last"}` + "\n" + codexSucceeds, exited(0, ""), "no answer", true, ""},
		"codex, nothing":        {"codex", "", exited(1, "why"), "Codex ended with exit code 1: why", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := readPreset(test.preset, memoryTurn(), test.output, test.exit)
			switch {
			case test.fails && (end.err == nil || !strings.Contains(end.err.Error(), test.want) || end.reply.Text != ""):
				t.Errorf("got %q, %v, want the error %q", end.reply.Text, end.err, test.want)
			case !test.fails && (end.err != nil || end.reply.Text != test.want):
				t.Errorf("got %q, %v, want %q", end.reply.Text, end.err, test.want)
			}
			if idOf(end.reply.Session) != test.session || end.lostSession || end.refusedSchema {
				t.Errorf("got %+v", end)
			}
			var unavailable *engine.UnavailableError
			if errors.As(end.err, &unavailable) {
				t.Errorf("%v can be tried again", end.err)
			}
		})
	}
}

// A model that has said anything may have had tools used.
func TestBusyModelOfClaudeLetsATurnBeTriedAgainIfNothingWasDone(t *testing.T) {
	t.Parallel()
	result := strings.Replace(claudeSucceeds, `"is_error":false`, `"is_error":true`, 1)
	for status, busy := range map[int]bool{400: false, 401: false, 429: true, 500: true, 503: true, 529: true} {
		output := strings.Replace(result, "null", fmt.Sprint(status), 1)
		for said, busy := range map[string]bool{"": busy, claudeSays: false} {
			end := readPreset("claude", memoryTurn(), said+output, exited(1, ""))
			var unavailable *engine.UnavailableError
			if got := errors.As(end.err, &unavailable) && unavailable.Busy; got != busy {
				t.Errorf("%d after %q: busy is %t", status, said, got)
			}
		}
	}
}

func TestPresetTellsWhatItsProgramSays(t *testing.T) {
	t.Parallel()
	second := strings.ReplaceAll(claudeSays, `"Hel"`, `"Good"`)
	below := strings.ReplaceAll(claudeSays, `"parent_tool_use_id":null`, `"parent_tool_use_id":"toolu_1"`)
	for name, test := range map[string]struct{ preset, output, want string }{
		"claude":                {"claude", claudeSays + claudeSucceeds, "Hel|lo|"},
		"claude, two messages":  {"claude", claudeSays + second + claudeSucceeds, "Hel|lo|\n\nGood|lo|"},
		"claude, agent below":   {"claude", below + claudeSays + claudeSucceeds, "Hel|lo|"},
		"codex":                 {"codex", codexSays + codexSucceeds, "I will look.|\n\nHello|"},
		"more than an answer":   {"codex", strings.Replace(codexSays, "I will look.", strings.Repeat("x", answers.MaxReply), 1), strings.Repeat("x", answers.MaxReply) + "|"},
		"more than one, claude": {"claude", strings.Replace(claudeSays, `"lo"`, `"`+strings.Repeat("x", answers.MaxReply)+`"`, 1), "Hel|"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := memoryTurn()
			var told strings.Builder
			p.turn.Emit = func(progress engine.Progress) { told.WriteString(progress.Text + "|") }
			readPreset(test.preset, p, test.output, exited(0, ""))
			if told.String() != test.want {
				t.Errorf("told %.80q, want %.80q", told.String(), test.want)
			}
		})
	}
}

func TestPermissionsThatClaudeWasDeniedAreListed(t *testing.T) {
	t.Parallel()
	output := strings.Replace(claudeSucceeds, `"permission_denials":[]`, `"permission_denials":[{"tool_name":"Bash","tool_input":{"command":"rm -rf /\nx"}},
		{"tool_name":"Write","tool_input":{"file_path":"/etc/a","content":"b"}},{"tool_name":"mcp__a__b","tool_input":{"x":1}},{"tool_name":"WebFetch","tool_input":{"url":"http://a"}}]`, 1)
	output = strings.ReplaceAll(output, "\n\t", "")
	want := []engine.Permission{
		{Kind: "execute", Title: `Bash: rm -rf /\nx`, Answer: "rejected"}, {Kind: "edit", Title: "Write: /etc/a", Answer: "rejected"},
		{Kind: "other", Title: "mcp__a__b", Answer: "rejected"}, {Kind: "fetch", Title: "WebFetch: http://a", Answer: "rejected"},
	}
	if end := readPreset("claude", memoryTurn(), output, exited(0, "")); !slices.Equal(end.reply.Permissions, want) || end.err != nil {
		t.Errorf("got %+v, %v", end.reply.Permissions, end.err)
	}
}

func TestStructuredOutputOfClaudeGoesBeforeItsText(t *testing.T) {
	t.Parallel()
	output := strings.Replace(claudeSucceeds, `"result":"Hello"`, `"result":"Hello","structured_output":{"fine": 1.50}`, 1)
	for name, test := range map[string]struct {
		p            *presetTurn
		output, want string
	}{
		"schema":                   {schemaTurn(), output, `{"fine": 1.50}`},
		"no schema":                {memoryTurn(), output, "Hello"},
		"schema, but no such text": {schemaTurn(), claudeSucceeds, "Hello"},
		"null":                     {schemaTurn(), strings.Replace(output, `{"fine": 1.50}`, "null", 1), "Hello"},
	} {
		if end := readPreset("claude", test.p, test.output, exited(0, "")); end.err != nil || end.reply.Text != test.want {
			t.Errorf("%s: got %q, %v", name, end.reply.Text, end.err)
		}
	}
}

func TestStructuredOutputIsUTF8(t *testing.T) {
	t.Parallel()
	output := strings.Replace(claudeSucceeds, `"result":"Hello"`, `"result":"Hello","structured_output":{"a":"`+"\xff"+`"}`, 1)
	if end := readPreset("claude", schemaTurn(), output, exited(0, "")); !errors.Is(end.err, errNotUTF8) || end.reply.Text != "" {
		t.Errorf("got %q, %v", end.reply.Text, end.err)
	}
}

func TestArgumentsOfPresets(t *testing.T) {
	t.Parallel()
	const stream = "-p --output-format stream-json --verbose --include-partial-messages"
	const alone = ` --tools  --strict-mcp-config --setting-sources  --disable-slash-commands`
	memory := func(session string) engine.Turn {
		turn := agentTurn("/clear")
		turn.MemoryPreset, turn.Chat = "general_chat", &runnertest.Chat{SessionID: session}
		return turn
	}
	withSchema := func(turn engine.Turn, schema string) engine.Turn {
		turn.ResponseSchema, turn.System = json.RawMessage(schema), "As JSON."
		return turn
	}
	repair := withSchema(agentTurn("Mend"), `{"type":"object"}`)
	repair.Repair = 1
	deep := agentTurn("Hello")
	deep.Tier = "deep"
	for name, test := range map[string]struct {
		preset string
		change func(*Command)
		turn   engine.Turn
		args   string // with UUID for one, FILE for a file of the turn
		stdin  string
	}{
		"claude":                    {"claude", nil, agentTurn("Hello"), stream + " --no-session-persistence", "Hello"},
		"claude, new session":       {"claude", nil, memory(""), stream + " --session-id UUID", "\n/clear"},
		"claude, old session":       {"claude", nil, memory(session), stream + " --resume " + session, "\n/clear"},
		"claude, bad session":       {"claude", nil, memory("--continue"), stream + " --session-id UUID", "\n/clear"},
		"claude, schema":            {"claude", nil, withSchema(agentTurn("Hello"), `{"type":"object"}`), stream + ` --append-system-prompt-file FILE --json-schema {"type":"object"} --no-session-persistence`, "Hello"},
		"claude, other schema":      {"claude", nil, withSchema(agentTurn("Hello"), `{"type":"array"}`), stream + ` --append-system-prompt-file FILE --no-session-persistence`, "Hello"},
		"claude, long schema":       {"claude", nil, withSchema(agentTurn("Hello"), `{"type":"object","description":"`+strings.Repeat("x", maxArgument)+`"}`), stream + ` --append-system-prompt-file FILE --no-session-persistence`, "Hello"},
		"claude, operator's prompt": {"claude", func(c *Command) { c.Args = append(c.Args, "--append-system-prompt", "a") }, withSchema(agentTurn("/x"), `true`), "--append-system-prompt a " + stream + " --no-session-persistence", "As JSON.\n\n/x"},
		"claude, model":             {"claude", func(c *Command) { c.Model = "sonnet" }, agentTurn("Hello"), stream + " --model sonnet --no-session-persistence", "Hello"},
		"claude, tier":              {"claude", func(c *Command) { c.Model, c.Tiers = "sonnet", map[string]string{"deep": "opus"} }, deep, stream + " --model opus --no-session-persistence", "Hello"},
		"claude, repair":            {"claude", nil, repair, stream + ` --append-system-prompt-file FILE --json-schema {"type":"object"} --no-session-persistence` + alone, "Mend"},
		"claude, repair with a key": {"claude", func(c *Command) { c.Env["ANTHROPIC_API_KEY"] = "key" }, repair, stream + ` --append-system-prompt-file FILE --json-schema {"type":"object"} --no-session-persistence` + alone + " --bare", "Mend"},
		"claude, repair and tools": {"claude", func(c *Command) {
			c.Args = append(c.Args, "--effort", "low", "--allowedTools", "Bash", "Edit", "--mcp-config=a", "--tools", "Bash", "--fallback-model", "haiku", "--continue")
		}, repair, "--effort low --fallback-model haiku " + stream + ` --append-system-prompt-file FILE --json-schema {"type":"object"} --no-session-persistence` + alone, "Mend"},

		"codex":               {"codex", nil, agentTurn("/init"), "exec --json --skip-git-repo-check -s read-only --ephemeral -", "/init"},
		"codex, new session":  {"codex", nil, memory(""), "exec --json --skip-git-repo-check -s read-only -", "/clear"},
		"codex, old session":  {"codex", nil, memory(session), "exec --json --skip-git-repo-check -s read-only resume " + session + " -", "/clear"},
		"codex, sandbox":      {"codex", func(c *Command) { c.Args = append(c.Args, "-c", "a=b", "--sandbox=workspace-write") }, agentTurn("Hello"), "-c a=b --sandbox=workspace-write exec --json --skip-git-repo-check --ephemeral -", "Hello"},
		"codex, model":        {"codex", func(c *Command) { c.Model = "gpt-5" }, agentTurn("Hello"), "exec --json --skip-git-repo-check -s read-only -m gpt-5 --ephemeral -", "Hello"},
		"codex, schema":       {"codex", nil, withSchema(agentTurn("Hello"), `{"type":"object"}`), "exec --json --skip-git-repo-check -s read-only --ephemeral --output-schema FILE -", "As JSON.\n\nHello"},
		"codex, other schema": {"codex", nil, withSchema(agentTurn("Hello"), `{"anyOf":[]}`), "exec --json --skip-git-repo-check -s read-only --ephemeral -", "As JSON.\n\nHello"},
		"codex, repair":       {"codex", func(c *Command) { c.Args = append(c.Args, "-s", "danger-full-access") }, repair, "-s danger-full-access exec --json --skip-git-repo-check -s read-only --ephemeral -c " + strings.Join(codexWithoutTools, " -c ") + " --output-schema FILE -", "As JSON.\n\nMend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			c := newPreset(t, test.preset, `printf '%s ' "$@" >"$OUT/args"; cat >"$OUT/stdin"; env >"$OUT/env"`, func(c *Command) {
				c.Env = map[string]string{"OUT": out}
				if test.change != nil {
					test.change(c)
				}
			})
			_, err := c.Run(t.Context(), test.turn)
			if err == nil {
				t.Error("a program without output has answered")
			}
			args := readFile(t, out, "args")
			args = strings.ReplaceAll(args, session, "SESSION")
			args = uuidText.ReplaceAllString(args, "UUID")
			args = regexp.MustCompile(`/[^ ]*/turn-[^ ]*`).ReplaceAllString(args, "FILE")
			args = strings.ReplaceAll(args, "SESSION", session)
			if args != test.args+" " {
				t.Errorf("got the arguments\n%s, want\n%s", args, test.args)
			}
			if stdin := readFile(t, out, "stdin"); stdin != test.stdin {
				t.Errorf("got the message %q, want %q", stdin, test.stdin)
			}
			env := readFile(t, out, "env")
			for variable, want := range map[string]bool{
				"CLAUDE_CODE_DISABLE_ATTACHMENTS=1": test.preset == "claude",
				"CLAUDE_CODE_MAX_RETRIES=2":         test.preset == "claude",
				"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1": test.preset == "claude" && !test.turn.Memory(),
				"CLAUDE_CODE_DISABLE_CLAUDE_MDS=1":  test.preset == "claude" && test.turn.Isolated(),
			} {
				if strings.Contains("\n"+env, "\n"+variable+"\n") != want {
					t.Errorf("%s is set: %t", variable, !want)
				}
			}
		})
	}
}

var uuidText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// newPreset is a preset whose program is a script for sh.
func newPreset(t *testing.T, preset, script string, change func(*Command)) *Command {
	t.Helper()
	return newCommand(t, script, func(c *Command) {
		c.Preset = preset
		if change != nil {
			change(c)
		}
	})
}

func TestVariablesOfAnOperatorGoBeforeThoseOfAPreset(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	c := newPreset(t, "claude", `echo "$CLAUDE_CODE_MAX_RETRIES" >"$OUT/env"`, func(c *Command) {
		c.Env = map[string]string{"OUT": out, "CLAUDE_CODE_MAX_RETRIES": "7"}
	})
	_, _ = c.Run(t.Context(), agentTurn("Hello"))
	if got := readFile(t, out, "env"); got != "7\n" {
		t.Errorf("got %q", got)
	}
}

// The scripts take notes of each start.
func TestLostSessionIsMadeAnew(t *testing.T) {
	t.Parallel()
	for preset, script := range map[string]string{
		"claude": `echo start >>"$OUT/starts"; case "$*" in *--resume*) echo "No conversation found with session ID: x" >&2; exit 1; esac; cat "$OUT/answer"`,
		"codex":  `echo start >>"$OUT/starts"; case "$*" in *resume*) echo "Error: no rollout found for thread id x" >&2; exit 1; esac; cat "$OUT/answer"`,
	} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			answer := map[string]string{"claude": claudeSays + claudeSucceeds, "codex": codexSays + codexSucceeds}[preset]
			if err := os.WriteFile(filepath.Join(out, "answer"), []byte(answer), 0o600); err != nil {
				t.Fatal(err)
			}
			c := newPreset(t, preset, script, func(c *Command) { c.Env = map[string]string{"OUT": out} })
			turn := *memoryTurn().turn
			turn.Chat = &runnertest.Chat{SessionID: otherSession}
			sent := 0
			turn.Sent = func() { sent++ }
			reply, err := c.Run(t.Context(), turn)
			if err != nil || reply.Text != "Hello" || idOf(reply.Session) != session || !reply.SessionRenewed || sent != 1 {
				t.Errorf("got %+v, %v, sent %d times", reply, err, sent)
			}
			if starts := readFile(t, out, "starts"); starts != "start\nstart\n" {
				t.Errorf("starts: %q", starts)
			}
			turn.Chat = &runnertest.Chat{Err: errors.New("no store")}
			if _, err := c.Run(t.Context(), turn); err == nil || !strings.Contains(err.Error(), "no store") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLostSessionIsAlsoToldInTheResult(t *testing.T) {
	t.Parallel()
	output := `{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"errors":["No conversation found with session ID: x"]}`
	if end := readPreset("claude", memoryTurn(), output, exited(1, "")); !end.lostSession || end.err == nil {
		t.Errorf("got %+v", end)
	}
	// A conversation that goes on is not lost, whatever it says.
	if end := readPreset("claude", memoryTurn(), claudeSays+output, exited(1, "")); end.lostSession {
		t.Errorf("got %+v", end)
	}
}

func TestTurnWithoutMemoryKeepsNoSession(t *testing.T) {
	t.Parallel()
	c := newPreset(t, "codex", "cat <<'END'\n"+codexSays+codexSucceeds+"END", nil)
	if reply, err := c.Run(t.Context(), agentTurn("Hello")); err != nil || reply.Session != "" || reply.Text != "Hello" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestSchemaThatAProgramRefusesIsLeftToTheInstructions(t *testing.T) {
	t.Parallel()
	for preset, script := range map[string]string{
		"claude": `case "$*" in *--json-schema*) echo "Error: --json-schema is not a valid JSON Schema: strict mode" >&2; exit 1; esac; cat "$OUT/answer"`,
		"codex":  `case "$*" in *--output-schema*) echo '{"type":"turn.failed","error":{"message":"{\"code\":\"invalid_json_schema\"}"}}'; exit 1; esac; cat "$OUT/answer"`,
	} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			answer := map[string]string{"claude": claudeSays + claudeSucceeds, "codex": codexSays + codexSucceeds}[preset]
			if err := os.WriteFile(filepath.Join(out, "answer"), []byte(answer), 0o600); err != nil {
				t.Fatal(err)
			}
			c := newPreset(t, preset, script, func(c *Command) { c.Env = map[string]string{"OUT": out} })
			turn := *schemaTurn().turn
			wantReply(t, c, turn, "Hello")
		})
	}
}

func TestRepairsOfCodexHaveNoServersOfTools(t *testing.T) {
	t.Parallel()
	home, out := t.TempDir(), t.TempDir()
	write := func(settings string) {
		if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newPreset(t, "codex", `printf '%s ' "$@" >"$OUT/args"`, func(c *Command) { c.Env = map[string]string{"OUT": out, "CODEX_HOME": home} })
	repair := agentTurn("Mend")
	repair.Repair = 1
	write("model = \"a\"\n[mcp_servers.b-1]\ncommand = \"x\"\n[mcp_servers.a.env]\nKEY = \"b\"\n")
	_, _ = c.Run(t.Context(), repair)
	if args := readFile(t, out, "args"); !strings.Contains(args, " -c mcp_servers.a.enabled=false -c mcp_servers.b-1.enabled=false ") {
		t.Errorf("got the arguments %s", args)
	}
	_, _ = c.Run(t.Context(), agentTurn("Hello"))
	if args := readFile(t, out, "args"); strings.Contains(args, "mcp_servers") {
		t.Errorf("got the arguments %s", args)
	}
	write("key = secret")
	wantFailure(t, c, repair, "reading the settings of Codex: config.toml is not TOML")
}

func TestBusyExitCodeOfAPreset(t *testing.T) {
	t.Parallel()
	c := newPreset(t, "claude", "echo later >&2; exit 75", func(c *Command) { c.BusyOn = []int{75} })
	wantUnavailable(t, c, agentTurn("Hello"), true, "exit code 75, which busy_on has: later")
}

func TestOutputOfAPresetIsBounded(t *testing.T) {
	t.Parallel()
	c := newPreset(t, "claude", "while :; do echo '{}'; done", func(c *Command) { c.MaxOutput = 1 << 20 })
	wantFailure(t, c, agentTurn("Hello"), "more than max_output allows")
	if c.MaxOutput = 0; c.usualOutput() != 64<<20 {
		t.Errorf("a preset may write %d bytes", c.usualOutput())
	}
}

func TestProgramOfAPresetCanBeLeftOut(t *testing.T) {
	t.Parallel()
	for preset := range programPresets {
		for _, args := range [][]string{nil, {"-c", "a=b"}} {
			c, err := NewOneShot(preset, programs.Program{}, models.ByTier{}, args, zap.NewNop())
			if err != nil || !slices.Equal(c.args, append([]string{preset}, args...)) {
				t.Errorf("got %q, %v", c.args, err)
			}
		}
	}
	if _, err := NewOneShot("opencode", programs.Program{}, models.ByTier{}, nil, zap.NewNop()); err == nil {
		t.Error("there is a preset opencode")
	}
}

func TestSchemasOfObjects(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		`{"type":"object"}`: true, `{"type": "object", "properties": {"a": {"oneOf": []}}}`: true,
		`{"type":"array"}`: false, `{"type":["object"]}`: false, `{}`: false, `true`: false, `{"type":"object","oneOf":[]}`: false, `{"$ref":"#"}`: false,
	} {
		if got := isObjectSchema(json.RawMessage(schema)); got != want {
			t.Errorf("%s: got %t", schema, got)
		}
	}
}

// A repair knows no conversation, whichever way the operator has written that.
func TestRepairsOfClaudeGoOnWithNoConversation(t *testing.T) {
	t.Parallel()
	args := []string{"--verbose", "-c", "--model", "a", "-r", "b", "--resume=b", "--continue"}
	if got := strings.Join(withoutOptions(args, claudeToolOptions), " "); got != "--verbose --model a" {
		t.Errorf("got %s", got)
	}
}
