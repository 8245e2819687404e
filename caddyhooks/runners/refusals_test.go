package runners

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
)

// waitOf is what becomes of a run whose turn ended with an error, as in the table of the documentation.
func waitOf(err error) string {
	var unavailable *engine.UnavailableError
	switch {
	case err == nil:
		return "answered"
	case !errors.As(err, &unavailable):
		return "ends"
	case unavailable.Failing && unavailable.Busy:
		return "waits a while"
	case unavailable.Busy:
		return "waits for time"
	default:
		return "waits for contact"
	}
}

// answering is a server that answers every request with a status.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// acpOutcome is the end of a turn of an agent that told these updates, and then answered with an error, or not.
func acpOutcome(t *testing.T, preset string, err error, updates ...string) error {
	t.Helper()
	turn := &acpTurn{runner: &ACP{preset: acpPresets[preset], maxBytes: maxTurnBytes}, stopped: make(chan struct{}), turn: new(engine.Turn)}
	for _, line := range updates {
		var update acpclient.Update
		if err := json.Unmarshal([]byte(line), &update); err != nil {
			t.Fatal(err)
		}
		turn.Update(update, len(line))
	}
	return turn.outcome(t.Context(), nil, "end_turn", err)
}

// What a run waits for is the same for all runners. Each of them gets the same answers of an agent, or of a model, in its own way.
func TestAllRunnersWaitForTheSame(t *testing.T) {
	t.Parallel()
	const codexError = `{"sessionUpdate":"session_info_update","_meta":{"codex":{"threadStatus":{"type":"systemError"}}}}`
	said := func(id, text string) string {
		return fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","messageId":%q,"content":{"type":"text","text":%q}}`, id, text)
	}
	claudeFails := func(status int) string {
		failed := strings.Replace(claudeSucceeds, `"is_error":false`, `"is_error":true`, 1)
		return strings.Replace(failed, "null", fmt.Sprint(status), 1)
	}
	codexFails := func(status int) string {
		return fmt.Sprintf(`{"type":"thread.started","thread_id":"%s"}`+"\n"+`{"type":"item.completed","item":{"type":"error","message":"Model metadata not found."}}`+"\n"+
			`{"type":"turn.failed","error":{"message":"unexpected status %d %s: the model says so"}}`+"\n", session, status, http.StatusText(status))
	}
	agents := map[string]func(t *testing.T, status int) error{
		"http": func(t *testing.T, status int) error {
			_, err := newHTTP(t, answering(t, status, "no"), "").Run(t.Context(), engine.Turn{Message: "hi"})
			return err
		},
		"a2a": func(t *testing.T, status int) error {
			server := newA2AServer(t, a2aWays["REST"], nil)
			server.before = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "agent-card.json") {
					return false
				}
				w.WriteHeader(status)
				return true
			}
			_, err := newA2A(t, server.URL, nil).Run(t.Context(), a2aTurnOf("hi"))
			return err
		},
		"openai with sessions of the server": func(t *testing.T, status int) error {
			_, err := newOpenAI(t, answering(t, status, "{}"), func(o *OpenAI) { o.SessionHeader = "X-Session" }).Run(t.Context(), engine.Turn{Message: "hi"})
			return err
		},
	}
	models := map[string]func(t *testing.T, status int) error{
		"openai": func(t *testing.T, status int) error {
			_, err := newOpenAI(t, answering(t, status, "{}"), nil).Run(t.Context(), engine.Turn{Message: "hi"})
			return err
		},
		"openai, told in the answer": func(t *testing.T, status int) error {
			body := fmt.Sprintf(`{"error":{"message":"no","code":%d}}`, status)
			_, err := newOpenAI(t, answering(t, http.StatusOK, body), nil).Run(t.Context(), engine.Turn{Message: "hi"})
			return err
		},
		"openai, told in a stream": func(t *testing.T, status int) error {
			body := fmt.Sprintf("data: {\"error\":{\"message\":\"no\",\"code\":\"%d\"}}\n\ndata: [DONE]\n\n", status)
			_, err := newOpenAI(t, answering(t, http.StatusOK, body), nil).Run(t.Context(), engine.Turn{Message: "hi"})
			return err
		},
		"command claude": func(_ *testing.T, status int) error {
			return readPreset("claude", memoryTurn(), claudeFails(status), exited(1, "")).err
		},
		"command codex": func(_ *testing.T, status int) error {
			return readPreset("codex", memoryTurn(), codexFails(status), exited(1, "")).err
		},
		"acp claude": func(t *testing.T, status int) error {
			text := fmt.Sprintf("API Error: %d the model says so", status)
			switch status {
			case 429:
				text = "API Error: Request rejected (429) · the model says so"
			case 529:
				text = "API Error: Repeated 529 Overloaded errors."
			}
			return acpOutcome(t, "claude", &acpclient.Rejected{Code: -32603, Message: "Internal error: " + text}, said("64471bb3-bc5e-4f2a-910c-00e4f935983c", text))
		},
		"acp codex": func(t *testing.T, status int) error {
			return acpOutcome(t, "codex", nil, codexError, said("", fmt.Sprintf("unexpected status %d No: the model says so", status)))
		},
		"acp gemini": func(t *testing.T, status int) error {
			return acpOutcome(t, "gemini", &acpclient.Rejected{Code: status, Message: "no"})
		},
	}
	for _, kind := range []struct {
		runners map[string]func(t *testing.T, status int) error
		want    map[int]string
	}{
		{agents, map[int]string{400: "ends", 401: "ends", 403: "ends", 404: "ends", 429: "waits for time", 500: "ends", 502: "ends", 503: "waits for time", 504: "ends", 529: "waits for time"}},
		{models, map[int]string{400: "ends", 401: "ends", 403: "ends", 429: "waits for time", 500: "waits a while", 502: "waits a while", 503: "waits for time", 504: "waits a while", 529: "waits for time"}},
	} {
		for name, run := range kind.runners {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for status, want := range kind.want {
					if err := run(t, status); waitOf(err) != want {
						t.Errorf("%d: %s, want %s: %v", status, waitOf(err), want, err)
					}
				}
			})
		}
	}
	for status, want := range map[int]string{400: "ends", 429: "waits for time", 500: "waits a while", 503: "waits for time"} { // as its exit code has them
		end := readPreset("gemini", memoryTurn(), "", exited(status%256, "no"))
		if waitOf(end.err) != want {
			t.Errorf("command gemini, %d: %s, want %s: %v", status, waitOf(end.err), want, end.err)
		}
	}
	// What a model said or an agent did is not undone.
	const tool = `{"sessionUpdate":"tool_call","toolCallId":"1","kind":"execute"}`
	busy := &acpclient.Rejected{Code: -32603, Message: "Internal error: API Error: 529 {}"}
	for name, err := range map[string]error{
		"command claude":           readPreset("claude", memoryTurn(), claudeSays+claudeFails(529), exited(1, "")).err,
		"command codex":            readPreset("codex", memoryTurn(), codexSays+codexFails(529), exited(1, "")).err,
		"command codex, with tool": readPreset("codex", memoryTurn(), `{"type":"item.started","item":{"type":"command_execution"}}`+"\n"+codexFails(529), exited(1, "")).err,
		"acp claude":               acpOutcome(t, "claude", busy, said("msg_1", "Hello")),
		"acp claude, with tool":    acpOutcome(t, "claude", busy, tool),
		"acp codex":                acpOutcome(t, "codex", nil, said("msg_1", "Hello"), codexError, said("", "unexpected status 529 No")),
		"acp codex, with tool":     acpOutcome(t, "codex", nil, tool, codexError, said("", "unexpected status 529 No")),
		"openai":                   errorOf(newOpenAI(t, answering(t, 200, "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: {\"error\":{\"code\":529}}\n\n"), nil).Run(t.Context(), engine.Turn{Message: "hi"})),
	} {
		if waitOf(err) != "ends" {
			t.Errorf("%s: %s after text or a tool: %v", name, waitOf(err), err)
		}
	}
}

func errorOf(_ engine.Reply, err error) error { return err }

// A model that an agent cannot reach is waited for as one that a runner cannot reach.
func TestModelThatAnAgentCannotReachIsWaitedFor(t *testing.T) {
	t.Parallel()
	unreachable := httptest.NewServer(nil)
	unreachable.Close()
	claude := strings.Replace(strings.Replace(claudeSucceeds, `"is_error":false`, `"is_error":true`, 1), `"result":"Hello"`, `"result":"API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)"`, 1)
	codex := `{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}` + "\n"
	const codexUpdate = `{"sessionUpdate":"session_info_update","_meta":{"codex":{"error":{"message":"Reconnecting... waiting for network","additionalDetails":"Connection failed: error sending request","willRetry":true}}}}`
	claudeRejects := &acpclient.Rejected{Code: -32603, Message: "Internal error: API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)"}
	for name, err := range map[string]error{
		"openai":         errorOf(newOpenAI(t, unreachable.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})),
		"command claude": readPreset("claude", memoryTurn(), claude, exited(1, "")).err,
		"command codex":  readPreset("codex", memoryTurn(), codex, exited(1, "")).err,
		"acp claude":     acpOutcome(t, "claude", claudeRejects),
		"acp codex":      acpOutcome(t, "codex", nil, codexUpdate),
	} {
		if waitOf(err) != "waits for contact" {
			t.Errorf("%s: %s: %v", name, waitOf(err), err)
		}
	}
}

// A turn that waits leaves no session behind that has its message in it already.
func TestTurnThatWaitsBeginsNoSession(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{"We’re currently experiencing high demand, which may cause temporary errors.": "waits a while",
		"exceeded retry limit, last status: 429 Too Many Requests": "waits for time"} {
		if err := reportedRefusal(words, errReplyTooLarge); waitOf(err) != want {
			t.Errorf("%s: %s", words, waitOf(err))
		}
	}
	const begun = `echo '{"type":"thread.started","thread_id":"` + session + `"}'; `
	for script, want := range map[string]string{
		`echo '{"type":"turn.failed","error":{"message":"unexpected status 429 Too Many Requests"}}'; exit 1`:                                 "waits for time",
		`echo '{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}'; exec sleep 1000`: "waits for contact",
	} {
		turn := agentTurn("Hello")
		turn.MemoryPreset, turn.Chat = "general_chat", &fakeChat{}
		reply, err := newPreset(t, "codex", begun+script, nil).Run(t.Context(), turn)
		if waitOf(err) != want || reply.Session != "" {
			t.Errorf("got %+v, %v", reply, err)
		}
	}
}
