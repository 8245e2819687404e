package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// agentScript is what an agent of tests does with a message: it tells events, and hears when nobody wants them any more.
type agentScript func(ctx context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool)

// testServer is an agent of the A2A project's own server, and keeps what it was asked.
type testServer struct {
	*httptest.Server
	card     func(base string) any
	before   func(w http.ResponseWriter, r *http.Request) bool // may answer itself
	script   agentScript
	mu       sync.Mutex
	asked    []askedAgent
	canceled []a2a.TaskID
}

type askedAgent struct {
	path   string
	header http.Header
	body   string
}

func (s *testServer) Execute(ctx context.Context, ex *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		s.script(ctx, ex, func(event a2a.Event) bool { return yield(event, nil) })
	}
}

func (s *testServer) Cancel(_ context.Context, ex *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		s.mu.Lock()
		s.canceled = append(s.canceled, ex.TaskID)
		s.mu.Unlock()
		yield(a2a.NewStatusUpdateEvent(ex, a2a.TaskStateCanceled, nil), nil)
	}
}

func (s *testServer) wasCanceled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.canceled) > 0
}

// requests are those for paths that end so.
func (s *testServer) requests(path string) (found []askedAgent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if strings.HasSuffix(asked.path, path) {
			found = append(found, asked)
		}
	}
	return found
}

// binding is how an agent is spoken to.
type binding struct {
	binding a2a.TransportProtocol
	path    string
	streams bool
}

var bindings = map[string]binding{
	"JSON-RPC stream": {a2a.TransportProtocolJSONRPC, "/rpc", true},
	"JSON-RPC":        {a2a.TransportProtocolJSONRPC, "/rpc", false},
	"REST stream":     {a2a.TransportProtocolHTTPJSON, "/rest", true},
	"REST":            {a2a.TransportProtocolHTTPJSON, "/rest", false},
}

// cardOf is a card with one interface.
func (w binding) cardOf(base string) any {
	return &a2a.AgentCard{
		Name: "agent", Version: "1", DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Capabilities:        a2a.AgentCapabilities{Streaming: w.streams},
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(base+w.path, w.binding)},
		Skills:              []a2a.AgentSkill{},
	}
}

func newTestServer(t *testing.T, way binding, script agentScript) *testServer {
	t.Helper()
	s := &testServer{script: script, card: way.cardOf}
	handler := a2asrv.NewHandler(s, a2asrv.WithLogger(slog.New(slog.DiscardHandler)),
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})))
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	mux.HandleFunc("/.well-known/agent-card.json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.card("http://" + r.Host))
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		s.asked = append(s.asked, askedAgent{r.URL.Path, r.Header, string(body)})
		s.mu.Unlock()
		switch {
		case s.before != nil && s.before(w, r):
		case bytes.Contains(body, []byte(`"taskId":"`)) && r.Method == http.MethodPost && !bytes.Contains(body, []byte(`PushConfig"`)):
			serveWhenReady(mux, w, r, body)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// serveWhenReady has a message for a task answered. For a moment after a task was put down, the server says that it is still at work on it.
func serveWhenReady(next http.Handler, w http.ResponseWriter, r *http.Request, body []byte) {
	for {
		answer := httptest.NewRecorder()
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(answer, r)
		if bytes.Contains(answer.Body.Bytes(), []byte("already in progress")) {
			continue
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
}

func newA2A(t *testing.T, url string, set func(*A2A)) *A2A {
	t.Helper()
	a := &A2A{URL: url}
	if set != nil {
		set(a)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := a.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Validate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Cleanup() })
	return a
}

func turnOf(message string) engine.Turn {
	return engine.Turn{RunID: "run", ChatID: "c", Action: engine.Agent, Message: message, MemoryPreset: engine.MemoryDisabled}
}

// Steps of scripts.

func submit(ex *a2asrv.ExecutorContext) a2a.Event { return a2a.NewSubmittedTask(ex, ex.Message) }

func become(ex *a2asrv.ExecutorContext, state a2a.TaskState, words string) a2a.Event {
	var message *a2a.Message
	if words != "" {
		message = a2a.NewMessageForTask(a2a.MessageRoleAgent, ex, a2a.NewTextPart(words))
	}
	return a2a.NewStatusUpdateEvent(ex, state, message)
}

func artifact(ex *a2asrv.ExecutorContext, id string, more bool, parts ...*a2a.Part) a2a.Event {
	event := a2a.NewArtifactUpdateEvent(ex, a2a.ArtifactID(id), parts...)
	event.Append = more
	return event
}

// tellAll tells events one after the other.
func tellAll(events func(ex *a2asrv.ExecutorContext) []a2a.Event) agentScript {
	return func(_ context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
		for _, event := range events(ex) {
			if !tell(event) {
				return
			}
		}
	}
}

func sayMessage(parts ...*a2a.Part) agentScript {
	return tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
		return []a2a.Event{a2a.NewMessageForTask(a2a.MessageRoleAgent, ex, parts...)}
	})
}

func TestA2AAnswers(t *testing.T) {
	t.Parallel()
	text, working := a2a.NewTextPart, a2a.TaskStateWorking
	for what, tc := range map[string]struct {
		script  agentScript
		schema  string
		want    string
		emitted string // of a stream
	}{
		"a message": {script: sayMessage(text("Hello"), text("there")), want: "Hello\nthere"},
		"artifacts in pieces": {
			script: tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
				return []a2a.Event{
					submit(ex), become(ex, working, "thinking"),
					artifact(ex, "a", false, text("Hel")), artifact(ex, "a", true, text("lo")), artifact(ex, "a", true, text("!")),
					artifact(ex, "b", false, text("Bye")), become(ex, a2a.TaskStateCompleted, "done"),
				}
			}),
			want: "Hello!\n\nBye", emitted: "Hel|lo|!|\n\nBye",
		},
		"an artifact told anew": {
			script: tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
				return []a2a.Event{
					submit(ex), artifact(ex, "a", false, text("draft")), artifact(ex, "a", false, text("final")), become(ex, a2a.TaskStateCompleted, ""),
				}
			}),
			want: "final", emitted: "draft",
		},
		"the words of the last state": {
			script: tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
				return []a2a.Event{submit(ex), become(ex, working, "wait"), become(ex, a2a.TaskStateCompleted, "All done")}
			}),
			want: "All done",
		},
		"JSON and no text": {script: sayMessage(a2a.NewDataPart(map[string]any{"ok": true})), want: `{"ok":true}`},
		"JSON beside text": {script: sayMessage(text("fine"), a2a.NewDataPart(map[string]any{"ok": true})), want: "fine"},
		"JSON for a schema": {
			script: sayMessage(text("fine"), a2a.NewDataPart(map[string]any{"ok": "<1>"})), schema: `{"type":"object"}`, want: `{"ok":"<1>"}`,
		},
		"a file beside text": {script: sayMessage(text("see file"), a2a.NewRawPart([]byte("x"))), want: "see file"},
	} {
		for name, way := range bindings {
			t.Run(what+", "+name, func(t *testing.T) {
				t.Parallel()
				server := newTestServer(t, way, tc.script)
				var emitted []string
				sent := 0
				turn := turnOf("hi")
				turn.Sent = func() { sent++ }
				turn.Emit = func(p engine.Progress) { emitted = append(emitted, p.Text) }
				if tc.schema != "" {
					turn.ResponseSchema = json.RawMessage(tc.schema)
				}
				reply, err := newA2A(t, server.URL, nil).Run(t.Context(), turn)
				if err != nil || reply.Text != tc.want || reply.Session != "" || reply.SessionRenewed || sent != 1 {
					t.Fatalf("got %+v, %v, sent %d times; want %q", reply, err, sent, tc.want)
				}
				if got := strings.Join(emitted, "|"); way.streams && got != tc.emitted {
					t.Errorf("emitted %q, want %q", got, tc.emitted)
				}
			})
		}
	}
}

func TestA2ATasksThatGiveNoAnswer(t *testing.T) {
	t.Parallel()
	for state, tc := range map[a2a.TaskState]struct {
		want     string
		canceled bool
	}{
		a2a.TaskStateInputRequired: {"the agent asks for more input (input-required): Which file?; nobody is there to give it", true},
		a2a.TaskStateAuthRequired:  {"the agent asks for an authorization (auth-required): Which file?; nobody is there to give it", true},
		a2a.TaskStateFailed:        {"the agent says that the task failed: Which file?", false},
		a2a.TaskStateRejected:      {"the agent rejected the task: Which file?", false},
		a2a.TaskStateCanceled:      {"the agent canceled the task: Which file?", false},
	} {
		for name, way := range bindings {
			t.Run(string(state)+", "+name, func(t *testing.T) {
				t.Parallel()
				server := newTestServer(t, way, tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
					return []a2a.Event{submit(ex), artifact(ex, "a", false, a2a.NewTextPart("half")), become(ex, state, "Which file?")}
				}))
				reply, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
				if err == nil || err.Error() != tc.want || reply.Text != "" {
					t.Fatalf("got %+v, %v, want %s", reply, err, tc.want)
				}
				var unavailable *engine.UnavailableError
				if errors.As(err, &unavailable) {
					t.Error("the turn counts as not begun")
				}
				if server.wasCanceled() != tc.canceled {
					t.Errorf("cancelled: %t", !tc.canceled)
				}
			})
		}
	}
}

func TestA2AAnswersWithoutText(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		script agentScript
		want   string
	}{
		"blank": {sayMessage(a2a.NewTextPart(" \n")), "the agent's answer has no text"},
		"files": {sayMessage(a2a.NewFileURLPart("https://example.com/a.pdf", "application/pdf")), "the agent answered with files and no text; files are not read"},
		"a completed task": {tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
			return []a2a.Event{submit(ex), become(ex, a2a.TaskStateCompleted, "")}
		}), "the agent's answer has no text"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := newA2A(t, newTestServer(t, bindings["REST stream"], tc.script).URL, nil).Run(t.Context(), turnOf("hi"))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestA2ATurnOnTheWire(t *testing.T) {
	t.Parallel()
	for name, way := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, way, sayMessage(a2a.NewTextPart(`{"a":1}`)))
			a := newA2A(t, server.URL, func(a *A2A) { a.Token, a.Headers = "agent-token", map[string]string{"X-Team": "blue"} })
			turn := runnertest.ExampleTurn()
			turn.Chat = &runnertest.Chat{SessionID: "context-1"}
			if reply, err := a.Run(t.Context(), turn); err != nil || reply.Text != `{"a":1}` || reply.Session != "context-1" {
				t.Fatalf("got %+v, %v", reply, err)
			}
			cards, asked := server.requests("agent-card.json"), server.requests("")
			if len(cards) != 1 || len(asked) != 2 {
				t.Fatalf("%d cards of %d requests", len(cards), len(asked))
			}
			for _, request := range asked {
				for name, want := range map[string]string{"Authorization": "Bearer agent-token", "X-Team": "blue", "User-Agent": "caddyhooks"} {
					if got := request.header.Get(name); got != want {
						t.Errorf("%s has %s %q, want %q", request.path, name, got, want)
					}
				}
			}
			last := asked[1]
			if last.header.Get("A2a-Version") != "1.0" || last.header.Get("Traceparent") != turn.TraceParent {
				t.Errorf("got the headers %v", last.header)
			}
			var body struct {
				Params json.RawMessage
			}
			if err := json.Unmarshal([]byte(last.body), &body); err != nil {
				t.Fatal(err)
			}
			if way.binding == a2a.TransportProtocolHTTPJSON {
				body.Params = json.RawMessage(last.body)
			}
			var got any
			if err := json.Unmarshal(body.Params, &got); err != nil {
				t.Fatal(err)
			}
			configuration := map[string]any{"acceptedOutputModes": []any{"text/plain", "application/json"}, "historyLength": 0.0}
			if !way.streams {
				configuration["returnImmediately"] = true
			}
			want := map[string]any{
				"configuration": configuration,
				"message": map[string]any{
					"messageId": "run:turn", "contextId": "context-1", "role": "ROLE_USER",
					"parts": []any{map[string]any{"text": "be brief\n\n<hello> & \u2028"}},
					"metadata": map[string]any{
						"runId": "run", "phase": "turn", "hook": "github", "tier": "smart",
						"metadata": map[string]any{"n": 1.1}, "responseJsonSchema": map[string]any{"type": "object"},
					},
				},
			}
			if gotJSON, wantJSON := asJSON(t, got), asJSON(t, want); gotJSON != wantJSON {
				t.Errorf("got %s\nwant %s", gotJSON, wantJSON)
			}
		})
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestA2APasswordInTheURL(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], sayMessage(a2a.NewTextPart("Hello")))
	a := newA2A(t, strings.Replace(server.URL, "://", "://me:pass-word@", 1), nil)
	if _, err := a.Run(t.Context(), turnOf("hi")); err != nil {
		t.Fatal(err)
	}
	for _, asked := range server.requests("") {
		if got := asked.header.Get("Authorization"); got != "Basic bWU6cGFzcy13b3Jk" {
			t.Errorf("%s has %q", asked.path, got)
		}
	}
	if got := a.Redact("it is pass-word"); got != "it is REDACTED" || a.Address() != server.URL {
		t.Errorf("got %q at %s", got, a.Address())
	}
}

func TestA2AOverTLS(t *testing.T) {
	t.Parallel()
	plain := newTestServer(t, bindings["REST stream"], sayMessage(a2a.NewTextPart("Hello")))
	server := httptest.NewUnstartedServer(plain.Config.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	plain.card = func(string) any { return bindings["REST stream"].cardOf(server.URL) }
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if reply, err := newA2A(t, server.URL, func(a *A2A) { a.TLSCA = ca }).Run(t.Context(), turnOf("hi")); err != nil || reply.Text != "Hello" {
		t.Errorf("got %+v, %v", reply, err)
	}
	_, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
	var unavailable *engine.UnavailableError
	if !errors.As(err, &unavailable) {
		t.Errorf("without the authority: got %v", err)
	}
}

// An error in the middle of a stream is the agent's word, and the task is not waited for.
func TestA2AErrorInAStream(t *testing.T) {
	t.Parallel()
	const task = `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`
	for name, want := range map[string]string{
		"JSON-RPC stream": "the agent answered with an error, internal error: out of tokens",
		"REST stream":     "the agent answered with an error, internal error: out of tokens",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, bindings[name], nil)
			server.before = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "agent-card.json") {
					return false
				}
				w.Header().Set("Content-Type", sse.MediaType)
				if name == "REST stream" {
					_, _ = io.WriteString(w, "data: "+task+"\n\n"+`data: {"error":{"code":500,"status":"INTERNAL","message":"out of tokens"}}`+"\n\n")
				} else {
					_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":"1","result":`+task+"}\n\n"+`data: {"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"out of tokens"}}`+"\n\n")
				}
				return true
			}
			_, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if polls := len(server.requests("/tasks/t")); polls > 0 {
				t.Errorf("the task was asked for %d times", polls)
			}
		})
	}
}

// echoContext answers with the context and the message.
func echoContext(_ context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
	tell(a2a.NewMessageForTask(a2a.MessageRoleAgent, ex, a2a.NewTextPart(ex.ContextID+" "+ex.Message.Parts[0].Text())))
}

func TestA2AContextOfAChat(t *testing.T) {
	t.Parallel()
	for name, way := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newA2A(t, newTestServer(t, way, echoContext).URL, nil)
			ask := func(session, message string) engine.Reply {
				t.Helper()
				turn := turnOf(message)
				turn.MemoryPreset, turn.Chat = "ops_support", &runnertest.Chat{SessionID: session}
				reply, err := a.Run(t.Context(), turn)
				if err != nil {
					t.Fatal(err)
				}
				return reply
			}
			first, other := ask("", "a"), ask("", "b")
			if first.Session == "" || first.Session == other.Session || first.SessionRenewed || first.Text != first.Session+" a" {
				t.Fatalf("got %+v and %+v", first, other)
			}
			again := ask(first.Session, "c")
			if again.Session != first.Session || again.SessionRenewed || again.Text != first.Session+" c" {
				t.Errorf("got %+v after %+v", again, first)
			}
		})
	}
}

func TestA2ATurnsWithoutMemoryHaveNoContext(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], echoContext)
	a := newA2A(t, server.URL, nil)
	repair := turnOf("mend")
	repair.Repair, repair.System, repair.MemoryPreset = 2, "only JSON", "ops_support"
	for _, turn := range []engine.Turn{turnOf("hi"), repair} {
		turn.Chat = &runnertest.Chat{SessionID: "context-1"}
		if reply, err := a.Run(t.Context(), turn); err != nil || reply.Session != "" {
			t.Errorf("got %+v, %v", reply, err)
		}
	}
	asked := server.requests("message:send")
	if len(asked) != 2 {
		t.Fatalf("got %d messages", len(asked))
	}
	for i, words := range [][]string{{`"messageId":"run:turn"`, `"phase":"turn"`}, {`"messageId":"run:repair-2"`, `"phase":"repair"`, `"text":"only JSON\n\nmend"`}} {
		for _, word := range words {
			if !strings.Contains(asked[i].body, word) {
				t.Errorf("%s does not have %s", asked[i].body, word)
			}
		}
		if strings.Contains(asked[i].body, "context") {
			t.Errorf("a turn without memory has a context: %s", asked[i].body)
		}
	}
}

func TestA2AContextThatTheAgentLost(t *testing.T) {
	t.Parallel()
	refuse := func(status int, form, answer string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte("lost-context")) {
				return false
			}
			w.Header().Set("Content-Type", form)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, answer)
			return true
		}
	}
	const rpcError = `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"%s"}}`
	for what, tc := range map[string]struct {
		way    string
		before func(w http.ResponseWriter, r *http.Request) bool
		want   string // of an error
	}{
		"JSON-RPC":                {"JSON-RPC", refuse(200, "application/json", fmt.Sprintf(rpcError, -32602, "unknown contextId")), ""},
		"JSON-RPC stream":         {"JSON-RPC stream", refuse(200, "application/json", fmt.Sprintf(rpcError, -32602, "unknown contextId")), ""},
		"task not found":          {"JSON-RPC", refuse(200, "application/json", fmt.Sprintf(rpcError, -32001, "no such task")), ""},
		"REST":                    {"REST", refuse(404, "application/json", `{}`), ""},
		"REST, a bad request":     {"REST stream", refuse(400, "application/json", `{"error":{"code":400,"message":"Context does not exist"}}`), ""},
		"REST, another mistake":   {"REST", refuse(400, "text/plain", `no`), "the runner answered 400: no"},
		"JSON-RPC, another error": {"JSON-RPC", refuse(200, "application/json", fmt.Sprintf(rpcError, -32603, "disk full")), "the agent answered with an error, internal error: disk full"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, bindings[tc.way], echoContext)
			server.before = tc.before
			turn := turnOf("hi")
			turn.MemoryPreset, turn.Chat = "ops_support", &runnertest.Chat{SessionID: "lost-context"}
			reply, err := newA2A(t, server.URL, nil).Run(t.Context(), turn)
			if tc.want != "" {
				if err == nil || err.Error() != tc.want {
					t.Errorf("got %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil || !reply.SessionRenewed || reply.Session == "" || reply.Session == "lost-context" || reply.Text != reply.Session+" hi" {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
}

func TestA2AContextThatTheAgentChanges(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], nil)
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "message:send") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"message":{"messageId":"m","role":"ROLE_AGENT","contextId":"another","parts":[{"text":"hello"}]}}`)
		return true
	}
	turn := turnOf("hi")
	turn.MemoryPreset, turn.Chat = "ops_support", &runnertest.Chat{SessionID: "one"}
	reply, err := newA2A(t, server.URL, nil).Run(t.Context(), turn)
	if err != nil || reply.Session != "another" || !reply.SessionRenewed {
		t.Errorf("got %+v, %v", reply, err)
	}
}

// stays works until nobody wants it any more.
func stays(begun chan<- struct{}) agentScript {
	return func(ctx context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
		if tell(submit(ex)) && tell(become(ex, a2a.TaskStateWorking, "")) && tell(artifact(ex, "a", false, a2a.NewTextPart("half"))) {
			begun <- struct{}{}
			<-ctx.Done()
		}
	}
}

func TestA2ACancelledTurnCancelsTheTask(t *testing.T) {
	t.Parallel()
	for name, way := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{}, 1)
			server := newTestServer(t, way, stays(begun))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			turn := turnOf("hi")
			turn.Emit = func(engine.Progress) { cancel() }
			reply, err := newA2A(t, server.URL, nil).Run(ctx, turn)
			if err == nil || reply.Text != "" || !server.wasCanceled() {
				t.Errorf("got %+v, %v, cancelled: %t", reply, err, server.wasCanceled())
			}
		})
	}
}

// A turn that is cancelled while the message is on its way waits for the name of the task, so that it can cancel that.
func TestA2ATurnCancelledBeforeTheTaskHasAName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"JSON-RPC", "REST"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server := newTestServer(t, bindings[name], func(task context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
				cancel()
				tell(submit(ex))
				<-task.Done()
			})
			if reply, err := newA2A(t, server.URL, nil).Run(ctx, turnOf("hi")); err == nil || reply.Text != "" || !server.wasCanceled() {
				t.Errorf("got %+v, %v, cancelled: %t", reply, err, server.wasCanceled())
			}
		})
	}
}

func TestA2ASilentAgent(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	for name, way := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, way, stays(make(chan struct{}, 1)))
			server.before = func(_ http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/tasks/") || bytes.Contains(body, []byte(`"GetTask"`)) {
					<-r.Context().Done()
					return true
				}
				return false
			}
			a := newA2A(t, server.URL, func(a *A2A) { a.IdleTimeout = caddy.Duration(limit) })
			_, err := a.Run(t.Context(), turnOf("hi"))
			if err == nil || err.Error() != "the runner was silent for 1s" || !server.wasCanceled() {
				t.Errorf("got %v, cancelled: %t", err, server.wasCanceled())
			}
		})
	}
}

// A connection that breaks leaves the task alone: its end is asked for.
func TestA2AStreamThatBreaks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"JSON-RPC stream", "REST stream"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var server *testServer
			goOn := make(chan struct{})
			server = newTestServer(t, bindings[name], func(_ context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
				tell(submit(ex))
				tell(artifact(ex, "a", false, a2a.NewTextPart("Hel")))
				<-goOn
				tell(artifact(ex, "a", true, a2a.NewTextPart("lo")))
				tell(become(ex, a2a.TaskStateCompleted, ""))
			})
			var emitted []string
			turn := turnOf("hi")
			turn.Emit = func(p engine.Progress) {
				if emitted = append(emitted, p.Text); len(emitted) == 1 {
					server.CloseClientConnections()
					close(goOn)
				}
			}
			reply, err := newA2A(t, server.URL, nil).Run(t.Context(), turn)
			if err != nil || reply.Text != "Hello" || strings.Join(emitted, "|") != "Hel|lo" {
				t.Errorf("got %+v, %v, emitted %q", reply, err, emitted)
			}
		})
	}
}

// An agent that goes away for good in the middle of a turn fails it: the turn had begun.
func TestA2AAgentThatGoesAway(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST stream"], stays(make(chan struct{}, 1)))
	turn := turnOf("hi")
	turn.Emit = func(engine.Progress) {
		server.Listener.Close()
		server.CloseClientConnections()
	}
	a := newA2A(t, server.URL, nil)
	a.firstPoll = time.Millisecond
	_, err := a.Run(t.Context(), turn)
	var unavailable *engine.UnavailableError
	if err == nil || errors.As(err, &unavailable) || !strings.HasPrefix(err.Error(), "asking for the state of the task: reaching the runner: dial tcp ") {
		t.Errorf("got %v", err)
	}
}

// An agent that answers at once with a task under way is asked for its state until it has ended.
func TestA2ATaskIsPolled(t *testing.T) {
	t.Parallel()
	for _, binding := range []string{"REST", "JSON-RPC"} {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, bindings[binding], nil)
			polls := 0
			server.before = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "agent-card.json") {
					return false
				}
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				task := `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}`
				send := strings.HasSuffix(r.URL.Path, "message:send") || bytes.Contains(body, []byte(`"SendMessage"`))
				if !send {
					switch polls++; polls {
					case 1:
						w.WriteHeader(http.StatusServiceUnavailable)
						return true
					case 3:
						task = `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[null,{"artifactId":"a","parts":[null,{"text":"done"}]}]}`
					}
				}
				if send {
					task = `{"task":` + task + `}`
				}
				if binding == "JSON-RPC" {
					task = `{"jsonrpc":"2.0","id":"1","result":` + task + `}`
				}
				_, _ = io.WriteString(w, task)
				return true
			}
			reply, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
			if err != nil || reply.Text != "done" || polls != 3 {
				t.Errorf("got %+v, %v after %d polls", reply, err, polls)
			}
		})
	}
}

func TestA2AUnknownState(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], nil)
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "agent-card.json") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_DREAMING"}}}`)
		return true
	}
	_, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
	if err == nil || err.Error() != `the task is in the state "TASK_STATE_DREAMING", which the runner does not know` {
		t.Errorf("got %v", err)
	}
}

func TestA2AAnswersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	const pieces = 4
	piece := strings.Repeat("x", answers.MaxReply/pieces)
	for name, way := range bindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, way, tellAll(func(ex *a2asrv.ExecutorContext) []a2a.Event {
				events := []a2a.Event{submit(ex), artifact(ex, "a", false, a2a.NewTextPart(piece))}
				for range pieces {
					events = append(events, artifact(ex, "a", true, a2a.NewTextPart(piece)))
				}
				return append(events, become(ex, a2a.TaskStateCompleted, ""))
			}))
			_, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
			if err == nil || err.Error() != "reading the runner's answer: the answer is larger than 1048576 bytes" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What the client would collect without an end is cut off before.
func TestA2AEndlessAnswers(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		way, form, begin, more string
	}{
		"a document":          {"REST", "application/json", `{"message":{"messageId":"`, "x"},
		"an event":            {"REST stream", "text/event-stream", "data: {}", "\ndata: x"},
		"a line":              {"JSON-RPC stream", "text/event-stream", "data: ", "x"},
		"instead of a stream": {"JSON-RPC stream", "application/json", `{"a":"`, "x"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, bindings[tc.way], nil)
			written := 0
			server.before = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "agent-card.json") {
					return false
				}
				w.Header().Set("Content-Type", tc.form)
				_, _ = io.WriteString(w, tc.begin)
				chunk := []byte(strings.Repeat(tc.more, 64<<10))
				for written < 10*maxDocument {
					n, err := w.Write(chunk)
					if written += n; err != nil {
						break
					}
				}
				return true
			}
			_, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
			if err == nil || !strings.Contains(err.Error(), "larger than") {
				t.Errorf("got %v", err)
			}
			server.Close()
			if written >= 10*maxDocument {
				t.Error("it was read to its end")
			}
		})
	}
}

func TestA2AAgentsThatDoNotTakeATurnOn(t *testing.T) {
	t.Parallel()
	answer := func(status int, form, body string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", form)
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "https://elsewhere.example.com/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for what, tc := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
		busy   bool
		token  string
	}{
		"429":           {answer: answer(429, "text/plain", "slow down"), want: "the runner answered 429: slow down", busy: true},
		"503":           {answer: answer(503, "application/json", `{"error":"down"}`), want: `the runner answered 503: {"error":"down"}`, busy: true},
		"500":           {answer: answer(500, "text/plain", "oops"), want: "the runner answered 500: oops"},
		"401":           {answer: answer(401, "text/plain", "who are you?"), want: "the runner answered 401: who are you?; token is not set"},
		"403 and token": {answer: answer(403, "text/plain", "not t0ken-of-the-agent"), want: "the runner answered 403: not REDACTED; check the line token: the agent does not accept it", token: "t0ken-of-the-agent"},
		"a redirect":    {answer: answer(307, "text/plain", ""), want: "the runner answered 307; it must answer 200, and redirects are not followed"},
		"a page":        {answer: answer(200, "text/html", "<h1>Login</h1>"), want: "the runner answered 200 with text/html: <h1>Login</h1>; " + hintCard},
		"compressed":    {answer: func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br"); w.WriteHeader(200) }, want: "the runner's answer has a Content-Encoding; it must have none"},
	} {
		for name, way := range bindings {
			for _, where := range []string{"card", "message"} {
				t.Run(what+", "+name+", "+where, func(t *testing.T) {
					t.Parallel()
					server := newTestServer(t, way, nil)
					server.before = func(w http.ResponseWriter, r *http.Request) bool {
						if strings.HasSuffix(r.URL.Path, "agent-card.json") != (where == "card") {
							return false
						}
						tc.answer(w)
						return true
					}
					_, err := newA2A(t, server.URL, func(a *A2A) { a.Token = tc.token }).Run(t.Context(), turnOf("hi"))
					var unavailable *engine.UnavailableError
					want := tc.want
					if where == "card" {
						if strings.HasPrefix(want, "the runner answered ") && what != "a page" {
							want = "reading the agent card: " + want
						}
					}
					if err == nil || err.Error() != want || errors.As(err, &unavailable) != tc.busy {
						t.Fatalf("got %v, want %s", err, want)
					}
					if tc.busy && (!unavailable.Busy || unavailable.RetryAfter != 7*time.Second) {
						t.Errorf("got %+v", unavailable)
					}
				})
			}
		}
	}
}

func TestA2AAgentThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], echoContext)
	a := newA2A(t, server.URL, nil)
	if _, err := a.Run(t.Context(), turnOf("hi")); err != nil { // now the card is known
		t.Fatal(err)
	}
	_ = a.Cleanup() // a connection that is being closed would take the message
	server.Close()
	sent := 0
	turn := turnOf("hi")
	turn.Sent = func() { sent++ }
	for range 2 { // by the card that is known, and by none
		_, err := a.Run(t.Context(), turn)
		var unavailable *engine.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Busy || sent != 0 || !strings.HasPrefix(err.Error(), "reaching the runner: dial tcp ") {
			t.Errorf("got %v, sent %d times", err, sent)
		}
	}
}

func TestA2ACardIsKeptAndReadAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], echoContext)
	a := newA2A(t, server.URL, nil)
	ask := func() error {
		_, err := a.Run(t.Context(), turnOf("hi"))
		return err
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := ask(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(server.requests("agent-card.json")); n != 1 {
		t.Errorf("the card was read %d times", n)
	}
	// The agent moves to another interface.
	server.card = bindings["JSON-RPC"].cardOf
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/rest/") {
			http.NotFound(w, r)
			return true
		}
		return false
	}
	if err := ask(); err == nil {
		t.Error("a message to the old place had an answer")
	}
	if err := ask(); err != nil {
		t.Errorf("after the move: %v", err)
	}
	a.agents.until = time.Now().Add(-time.Second)
	if err := ask(); err != nil || len(server.requests("agent-card.json")) != 3 {
		t.Errorf("got %v, and the card was read %d times", err, len(server.requests("agent-card.json")))
	}
}

func TestA2ACards(t *testing.T) {
	t.Parallel()
	const agent = `{"supportedInterfaces":[%s],"capabilities":{}}`
	point := func(url, binding, version string) string {
		return fmt.Sprintf(`{"url":%q,"protocolBinding":%q,"protocolVersion":%q}`, url, binding, version)
	}
	for what, tc := range map[string]struct {
		card  string // HERE stands for the place of the server
		want  string // of the error
		allow string
	}{
		"with more than we know":   {card: fmt.Sprintf(agent, "null,"+point("HERE/x", "GRPC", "1.0")+","+point("HERE/rest", "HTTP+JSON", "1.1")), want: ""},
		"not JSON":                 {card: `hello`, want: "the agent card is not the JSON of one: hello"},
		"a list":                   {card: `[]`, want: "the agent card is not the JSON of one: []"},
		"cut":                      {card: `{"supportedInterfaces":[`, want: `the agent card is not the JSON of one: {"supportedInterfaces":[`},
		"empty":                    {card: `{}`, want: "the agent card has no interface of A2A 1.0 over JSONRPC or HTTP+JSON"},
		"gRPC only":                {card: fmt.Sprintf(agent, point("HERE", "GRPC", "1.0")), want: "the agent card has no interface of A2A 1.0 over JSONRPC or HTTP+JSON: GRPC 1.0"},
		"of a later version":       {card: fmt.Sprintf(agent, point("HERE", "JSONRPC", "2.0")), want: "the agent card has no interface of A2A 1.0 over JSONRPC or HTTP+JSON: JSONRPC 2.0"},
		"of the version before":    {card: `{"protocolVersion":"0.3.0","url":"HERE","preferredTransport":"JSONRPC"}`, want: `the agent card is one of A2A "0.3.0"; the runner speaks A2A 1.0`},
		"of another place":         {card: fmt.Sprintf(agent, point("https://thief.example.com/rest", "HTTP+JSON", "1.0")), want: "the agent card of HERE points to another place: https://thief.example.com; nothing is sent there unless the line allow_to names it"},
		"of another port":          {card: fmt.Sprintf(agent, point("http://127.0.0.1:1/rest", "HTTP+JSON", "1.0")), want: "the agent card of HERE points to another place: http://127.0.0.1:1; nothing is sent there unless the line allow_to names it"},
		"without a host":           {card: fmt.Sprintf(agent, point("/rest", "HTTP+JSON", "1.0")), want: "the agent card of HERE points to another place: ://; nothing is sent there unless the line allow_to names it"},
		"of another place and own": {card: fmt.Sprintf(agent, point("https://thief.example.com/", "HTTP+JSON", "1.0")+","+point("HERE/rpc", "JSONRPC", "1.0")), want: ""},
		"of a place that is named": {card: fmt.Sprintf(agent, point("http://127.0.0.1:1/rest", "HTTP+JSON", "1.0")), allow: "http://127.0.0.1:1/", want: "reaching the runner: dial tcp 127.0.0.1:1: connect: connection refused"},
		"huge":                     {card: `{"name":"` + strings.Repeat("x", 2*maxCard) + `"}`, want: "reading the agent card: the answer is larger than 1048576 bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(t, bindings["REST"], sayMessage(a2a.NewTextPart("Hello")))
			server.before = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "agent-card.json") {
					return false
				}
				_, _ = io.WriteString(w, strings.ReplaceAll(tc.card, "HERE", server.URL))
				return true
			}
			a := newA2A(t, server.URL, func(a *A2A) {
				if tc.allow != "" {
					a.AllowTo = []string{tc.allow}
				}
			})
			reply, err := a.Run(t.Context(), turnOf("hi"))
			want := strings.ReplaceAll(tc.want, "HERE", server.URL)
			if err == nil && (want != "" || reply.Text != "Hello") || err != nil && err.Error() != want {
				t.Errorf("got %+v, %v, want %s", reply, err, want)
			}
		})
	}
}

func TestA2ACardURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://a.example.com":                 "https://a.example.com/.well-known/agent-card.json",
		"https://a.example.com/":                "https://a.example.com/.well-known/agent-card.json",
		"https://a.example.com/team/agent?k=v":  "https://a.example.com/team/agent/.well-known/agent-card.json?k=v",
		"https://a.example.com/cards/blue.json": "https://a.example.com/cards/blue.json",
		"https://user:pw@a.example.com/":        "https://a.example.com/.well-known/agent-card.json",
	} {
		if got, _ := cardURL(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	for address, want := range map[string]string{
		"HTTPS://A.example.com:443/x": "https://a.example.com", "http://a:80": "http://a", "http://a:443": "http://a:443",
		"http://[::1]:9000/x": "http://[::1]:9000", "https://user:pw@a/": "https://a",
	} {
		if got := httpcall.OriginOf(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

func TestA2AMistakesInTheConfiguration(t *testing.T) {
	t.Parallel()
	const url = "https://agent.example.com"
	for want, a := range map[string]*A2A{
		"runner a2a: the token names the environment variable NOT_SET_X, which is not set": {URL: url, Token: "{env.NOT_SET_X}"},
		"runner a2a: the token has spaces or other characters in it that cannot be sent":   {URL: url, Token: "a b"},
		"runner a2a needs the URL of an agent or of its card, which starts with http:// or https:// and names a host": {
			URL: "{env.NOT_SET_X}",
		},
		"runner a2a: allow_to takes the beginnings of URLs, up to the host and port, as in: allow_to https://agents.example.com": {
			URL: url, AllowTo: []string{"agents.example.com"},
		},
		"runner a2a: reading tls_ca: open /nowhere.pem: no such file or directory":        {URL: url, ServerTLS: httpcall.ServerTLS{TLSCA: "/nowhere.pem"}},
		"runner a2a: idle_timeout must not be negative":                                   {URL: url, IdleTimeout: -1},
		"runner a2a: token and header Authorization are the same header; use one of them": {URL: url, Token: "a", Headers: map[string]string{"authorization": "b"}},
		"runner a2a: header Host is set by the runner itself":                             {URL: url, Headers: map[string]string{"host": "b"}},
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		err := a.Provision(ctx)
		if err == nil {
			err = a.Validate()
		}
		cancel()
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Whatever events an agent sends, the answer is good text, and what was emitted is its beginning unless it is known to differ.
func FuzzA2AAnswer(f *testing.F) {
	for _, events := range [][]string{
		{`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"a"},{"data":{"b":1}},{"raw":"eA=="}]}}`},
		{
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"}}}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"Hel"}]}}}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","append":true,"artifact":{"artifactId":"a","parts":[{"text":"lo"}]}}}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","append":true,"lastChunk":true,"artifact":{"artifactId":"b","parts":[null,{"text":""},{"text":"x"}]}}}`,
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}}`,
		},
		{
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"artifacts":[null,{"artifactId":"a","parts":[{"text":"x"}]}]}}`,
			`{"artifactUpdate":{"artifact":null}}`,
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"},"artifacts":[]}}`,
		},
		{`{"statusUpdate":{"status":{"state":"?"}}}`}, {`{"task":{}}`}, {`{}`},
	} {
		f.Add(strings.Join(events, "\n"), false)
		f.Add(strings.Join(events, "\n"), true)
	}
	f.Fuzz(func(t *testing.T, lines string, schema bool) {
		var emitted strings.Builder
		answer := &turnAnswer{schema: schema, emit: func(p engine.Progress) {
			if p.Text == "" {
				t.Error("emitted nothing")
			}
			emitted.WriteString(p.Text)
		}}
		for line := range strings.Lines(lines) {
			var response a2a.StreamResponse
			if json.Unmarshal([]byte(line), &response) != nil {
				continue
			}
			if answer.add(response.Event) != nil {
				return
			}
			if answer.ended() {
				break
			}
		}
		if !answer.diverged && answer.artifactText() != emitted.String() {
			t.Errorf("emitted %q of %q", emitted.String(), answer.artifactText())
		}
		text, err := answer.result()
		if err == nil && (strings.TrimSpace(text) == "" || len(text) > answers.MaxReply || strings.ToValidUTF8(text, "") != text) {
			t.Errorf("got %q", text)
		}
		if err != nil && (text != "" || strings.ContainsAny(err.Error(), "\r\n\x00\x1b")) {
			t.Errorf("got %q and %q", text, err)
		}
	})
}

// Whatever a card says, only places that are named are spoken to.
func FuzzA2ACard(f *testing.F) {
	for _, card := range []string{
		`{"supportedInterfaces":[{"url":"http://agent.example.com/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
		`{"supportedInterfaces":[{"url":"http://agent.example.com@thief.example.com/","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`,
		`{"url":"x"}`, `[]`, `{"supportedInterfaces":[null]}`,
	} {
		f.Add([]byte(card))
	}
	a := &A2A{origins: []string{"http://agent.example.com"}}
	if err := a.Connect(&a.ServerTLS, func(t *http.Transport) http.RoundTripper { return t }); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		card, err := parseCard(data)
		if err != nil {
			return
		}
		agent, err := a.choose(t.Context(), card)
		if (agent == nil) == (err == nil) {
			t.Fatalf("got %v, %v", agent, err)
		}
		own := slices.ContainsFunc(card.Interfaces, func(way *a2a.AgentInterface) bool {
			return way != nil && strings.HasPrefix(strings.ToLower(way.URL), "http://")
		})
		if err == nil && !own {
			t.Errorf("the card %s was taken", data)
		}
	})
}
