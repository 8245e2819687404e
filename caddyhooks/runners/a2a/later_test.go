package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// newPushA2A is a runner that puts tasks aside at once.
func newPushA2A(t *testing.T, url string) *A2A {
	t.Helper()
	a := newA2A(t, url, func(a *A2A) { a.Push = caddy.Duration(24 * time.Hour) })
	a.asideAfter, a.firstPoll = 0, time.Millisecond
	return a
}

// laterTurn is a turn that can be put aside, by an instance that no agent can reach.
func laterTurn(message string) engine.Turn {
	turn := turnOf(message)
	turn.Later = &engine.Later{Token: "reply-token-of-the-question"}
	return turn
}

func takenOn(t *testing.T, err error) *engine.TakenOnError {
	t.Helper()
	var taken *engine.TakenOnError
	if !errors.As(err, &taken) {
		t.Fatalf("the turn was not taken on: %v", err)
	}
	return taken
}

// worksUntil is an agent that works until it is told to answer.
func worksUntil(done <-chan struct{}) agentScript {
	return func(_ context.Context, ex *a2asrv.ExecutorContext, tell func(a2a.Event) bool) {
		tell(submit(ex))
		tell(artifact(ex, "a", false, a2a.NewTextPart("Hel")))
		<-done
		tell(artifact(ex, "a", true, a2a.NewTextPart("lo")))
		tell(become(ex, a2a.TaskStateCompleted, ""))
	}
}

// sent counts the messages that an agent got.
func (s *testServer) sent() (messages []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if strings.HasSuffix(asked.path, "message:send") || strings.Contains(asked.body, `"SendMessage"`) {
			messages = append(messages, asked.body)
		}
	}
	return messages
}

// lookUntil has the turn looked at until it is over.
func lookUntil(t *testing.T, a *A2A, turn engine.Turn) (engine.Reply, error) {
	t.Helper()
	for {
		reply, err := a.Run(t.Context(), turn)
		var taken *engine.TakenOnError
		if !errors.As(err, &taken) || taken.Ask != nil {
			return reply, err
		}
		turn.TakenOn, turn.Input = taken.State, ""
	}
}

func TestA2ATaskIsPutAside(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"REST", "JSON-RPC"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			server := newTestServer(t, bindings[name], worksUntil(done))
			turn := laterTurn("hi")
			turn.MemoryPreset = "general_chat"
			reply, err := newPushA2A(t, server.URL).Run(t.Context(), turn)
			first := takenOn(t, err)
			if first.Again != 2*time.Second || first.For != 24*time.Hour || first.Ask != nil || reply.Text != "" || reply.Session == "" {
				t.Errorf("got %+v, %+v", first, reply)
			}
			session := reply.Session

			// Another process goes on with it.
			a := newPushA2A(t, server.URL)
			turn.TakenOn, turn.Emit = first.State, func(p engine.Progress) { t.Errorf("emitted %q twice", p.Text) }
			reply, err = a.Run(t.Context(), turn)
			second := takenOn(t, err)
			if second.Again != 4*time.Second || second.For != 24*time.Hour || reply.Session != session {
				t.Errorf("got %+v, %+v", second, reply)
			}
			close(done)
			turn.TakenOn = second.State
			reply, err = lookUntil(t, a, turn)
			if err != nil || reply.Text != "Hello" || reply.Session != session || reply.SessionRenewed {
				t.Errorf("got %+v, %v", reply, err)
			}
			if sent := server.sent(); len(sent) != 1 || !strings.Contains(sent[0], `"messageId":"run:turn"`) ||
				!strings.Contains(sent[0], `"returnImmediately":true`) || strings.Contains(sent[0], "PushNotification") {
				t.Errorf("the agent got %s", sent)
			}
		})
	}
}

func TestA2AAgentThatAnswersSoonIsNotPutAside(t *testing.T) {
	t.Parallel()
	polled := make(chan struct{}, 1)
	server := newTestServer(t, bindings["REST"], worksUntil(polled))
	server.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/tasks/") {
			select {
			case polled <- struct{}{}:
			default:
			}
		}
		return false
	}
	a := newPushA2A(t, server.URL)
	a.asideAfter = time.Hour
	if reply, err := a.Run(t.Context(), laterTurn("hi")); err != nil || reply.Text != "Hello" {
		t.Errorf("got %+v, %v", reply, err)
	}
	a.asideAfter = 0
	folded := laterTurn("hi")
	folded.Later = nil
	polled = make(chan struct{}, 1)
	server.script = worksUntil(polled)
	if reply, err := a.Run(t.Context(), folded); err != nil || reply.Text != "Hello" {
		t.Errorf("a turn that cannot be put aside: %+v, %v", reply, err)
	}
}

// pushReceiver is where an agent sends news.
func pushReceiver(t *testing.T) (*httptest.Server, <-chan *http.Request) {
	t.Helper()
	got := make(chan *http.Request, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		got <- r
	}))
	t.Cleanup(receiver.Close)
	return receiver, got
}

func TestA2AAgentSendsNews(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"REST", "JSON-RPC"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver, news := pushReceiver(t)
			done := make(chan struct{})
			server := newTestServer(t, bindings[name], worksUntil(done))
			card := server.card
			server.card = func(base string) any {
				card, _ := card(base).(*a2a.AgentCard)
				card.Capabilities.PushNotifications = true
				return card
			}
			a := newPushA2A(t, server.URL)
			turn := laterTurn("hi")
			turn.Later.URL = receiver.URL + "/replies/q_0"
			_, err := a.Run(t.Context(), turn)
			taken := takenOn(t, err)
			if taken.Again != pushPause || taken.For != 24*time.Hour {
				t.Errorf("got %+v", taken)
			}
			first := <-news
			if first.URL.Path != "/replies/q_0" || first.Header.Get("A2a-Notification-Token") != turn.Later.Token ||
				first.Header.Get("Authorization") != "Bearer "+turn.Later.Token {
				t.Errorf("the news came as %s with %v", first.URL, first.Header)
			}

			// The first news was the answer to a question. The next one has another address.
			turn.TakenOn, turn.Later = taken.State, &engine.Later{URL: receiver.URL + "/replies/q_1", Token: "another-token"}
			_, err = a.Run(t.Context(), turn)
			taken = takenOn(t, err)
			if taken.Again != pushPause || taken.For >= 24*time.Hour || taken.For < 23*time.Hour {
				t.Errorf("got %+v", taken)
			}
			same := taken.For
			turn.TakenOn = taken.State
			_, err = a.Run(t.Context(), turn)
			if taken = takenOn(t, err); taken.For != same || taken.Again != pushPause {
				t.Errorf("got %+v, want the same time as before, %v", taken, same)
			}
			close(done)
			for next := range news {
				if next.URL.Path != "/replies/q_1" {
					continue
				}
				if got := next.Header.Get("A2a-Notification-Token"); got != "another-token" {
					t.Errorf("the news came with %s", got)
				}
				break
			}
			turn.TakenOn = taken.State
			if reply, err := lookUntil(t, a, turn); err != nil || reply.Text != "Hello" {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
}

// An agent whose card promises what it does not do is asked.
func TestA2AAgentThatTakesNoNextAddress(t *testing.T) {
	t.Parallel()
	task := `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}`
	server := newTestServer(t, bindings["REST"], nil)
	server.card = func(base string) any {
		card, _ := bindings["REST"].cardOf(base).(*a2a.AgentCard)
		card.Capabilities.PushNotifications = true
		return card
	}
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "agent-card.json"):
			return false
		case strings.Contains(r.URL.Path, "ush"):
			http.Error(w, "no", http.StatusNotImplemented)
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"task":`+task+`}`)
		default:
			_, _ = io.WriteString(w, task)
		}
		return true
	}
	a := newPushA2A(t, server.URL)
	turn := laterTurn("hi")
	for i := range maxPushes + 5 {
		turn.Later.URL = "https://hooks.example.com/replies/" + strings.Repeat("x", i+1)
		_, err := a.Run(t.Context(), turn)
		taken := takenOn(t, err)
		if pushed := taken.Again == pushPause; pushed != (i == 0) {
			t.Errorf("look %d: asked again after %v", i, taken.Again)
		}
		turn.TakenOn = taken.State
	}
	if tries := len(server.requests("/pushNotificationConfigs")); tries != maxPushes-1 {
		t.Errorf("the agent was told %d times where to send news", tries)
	}
	kept, err := readKeptTask(turn.TakenOn)
	if err != nil {
		t.Fatal(err)
	}
	kept.Until = time.Now().Add(-time.Second)
	state, _ := json.Marshal(kept)
	turn.TakenOn, turn.Later.URL = string(state), "https://hooks.example.com/replies/last"
	if _, err := a.Run(t.Context(), turn); err == nil || !strings.Contains(err.Error(), "did not answer within 24h0m0s") {
		t.Errorf("got %v", err)
	}
}

func TestA2ATaskThatWasPutAsideIsCancelled(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], stays(make(chan struct{}, 1)))
	a := newPushA2A(t, server.URL)
	_, err := a.Run(t.Context(), laterTurn("hi"))
	state := takenOn(t, err).State
	if err := a.Abandon(t.Context(), state); err != nil || !server.wasCanceled() {
		t.Errorf("got %v, cancelled: %t", err, server.wasCanceled())
	}
	for _, state := range []string{state, `{"task":"unknown"}`} { // it has ended, or is gone
		if err := a.Abandon(t.Context(), state); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
	for _, state := range []string{"", "-", "{}", `{"task":3}`, `{"task":"t","pause":-1}`} {
		if err := a.Abandon(t.Context(), state); !errors.Is(err, errKeptTask) {
			t.Errorf("%s: %v", state, err)
		}
		if state == "" {
			continue
		}
		turn := laterTurn("hi")
		turn.TakenOn = state
		if _, err := a.Run(t.Context(), turn); !errors.Is(err, errKeptTask) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

// Whoever cancels a run that can be put aside abandons its task. Other tasks are cancelled by the runner.
func TestA2ATurnThatEndsWhileItsTaskGoesOn(t *testing.T) {
	t.Parallel()
	for _, push := range []bool{true, false} {
		begun := make(chan struct{}, 1)
		server := newTestServer(t, bindings["REST"], stays(begun))
		a := newPushA2A(t, server.URL)
		a.asideAfter = time.Hour
		if !push {
			a.Push = 0
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		turn := laterTurn("hi")
		turn.Emit = func(engine.Progress) { cancel() }
		_, err := a.Run(ctx, turn)
		var taken *engine.TakenOnError
		if errors.As(err, &taken) != push || server.wasCanceled() == push {
			t.Errorf("push %t: got %v, cancelled: %t", push, err, server.wasCanceled())
		}
	}
}

func TestA2ALooksThatFail(t *testing.T) {
	t.Parallel()
	const state = `{"task":"t","context":"c","pause":4000000000,"for":60000000000,"until":"2126-01-02T03:04:05Z"}`
	for name, test := range map[string]struct {
		status int
		body   string
		want   string // the error, "" if the agent is asked again
	}{
		"busy":        {status: 503},
		"overrun":     {status: 429},
		"broken":      {status: 500},
		"no gateway":  {status: 502},
		"gone":        {status: 404, want: "asking for the state of the task: the task is gone: the runner answered 404"},
		"another key": {status: 401, want: "asking for the state of the task: the runner answered 401; token is not set"},
		"no JSON":     {status: 200, body: "hello", want: "asking for the state of the task: the answer is not that of an A2A agent"},
		"no task":     {status: 200, body: `{"id":"t","status":{"state":"TASK_STATE_DREAMING"}}`, want: "which the runner does not know"},
		"failed":      {status: 200, body: `{"id":"t","status":{"state":"TASK_STATE_FAILED"}}`, want: "the agent says that the task failed"},
	} {
		server := newTestServer(t, bindings["REST"], nil)
		server.before = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "agent-card.json") {
				return false
			}
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
			return true
		}
		turn := laterTurn("hi")
		turn.TakenOn = state
		_, err := newPushA2A(t, server.URL).Run(t.Context(), turn)
		if test.want != "" {
			var taken *engine.TakenOnError
			var unavailable *engine.UnavailableError
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.As(err, &taken) || errors.As(err, &unavailable) {
				t.Errorf("%s: got %v, want %s", name, err, test.want)
			}
			continue
		}
		if taken := takenOn(t, err); taken.Again != 8*time.Second || taken.For != time.Minute {
			t.Errorf("%s: got %+v", name, taken)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	a := newPushA2A(t, gone.URL)
	turn := laterTurn("hi")
	turn.TakenOn = state
	_, err := a.Run(t.Context(), turn) // the card cannot be read
	takenOn(t, err)
	turn.Input = "yes" // which was not sent, and must not be lost
	_, err = a.Run(t.Context(), turn)
	var unavailable *engine.UnavailableError
	if !errors.As(err, &unavailable) {
		t.Errorf("got %v", err)
	}
}

func TestA2ATaskWithALongNameIsNotPutAside(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], nil)
	polls := 0
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		task := `{"id":"` + strings.Repeat("t", maxTaskName+1) + `","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}`
		switch {
		case strings.HasSuffix(r.URL.Path, "agent-card.json"):
			return false
		case r.Method == http.MethodPost:
			task = `{"task":` + task + `}`
		default:
			if polls++; polls == 2 {
				task = strings.Replace(task, `{"state":"TASK_STATE_WORKING"}`, `{"state":"TASK_STATE_COMPLETED","message":{"parts":[{"text":"done"}]}}`, 1)
			}
		}
		_, _ = io.WriteString(w, task)
		return true
	}
	if reply, err := newPushA2A(t, server.URL).Run(t.Context(), laterTurn("hi")); err != nil || reply.Text != "done" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestA2AReplyTokenIsInNoError(t *testing.T) {
	t.Parallel()
	server := newTestServer(t, bindings["REST"], nil)
	server.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "agent-card.json") {
			return false
		}
		http.Error(w, "you sent reply-token-of-the-question", http.StatusBadRequest)
		return true
	}
	_, err := newPushA2A(t, server.URL).Run(t.Context(), laterTurn("hi"))
	if err == nil || !strings.Contains(err.Error(), "you sent REDACTED") {
		t.Errorf("got %v", err)
	}
}

func FuzzKeptTask(f *testing.F) {
	f.Add(`{"task":"t","context":"c","pause":1,"inputs":2,"until":"2026-01-02T03:04:05Z","for":3,"reply":"https://a.example","pushed":"b","pushes":4}`)
	f.Add(`{"task":""}`)
	f.Add("-")
	f.Fuzz(func(t *testing.T, text string) {
		kept, err := readKeptTask(text)
		if (err == nil) != (kept.Task != "") || kept.Pause < 0 || kept.For < 0 || kept.Inputs < 0 {
			t.Errorf("%q is %+v (%v)", text, kept, err)
		}
	})
}
