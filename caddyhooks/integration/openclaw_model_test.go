package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// fakeModel is a model as the gateway calls it, by OpenAI's protocol. It answers what a test has it answer to a message, and
// else repeats the message. It keeps every call.
type fakeModel struct {
	*httptest.Server

	mu      sync.Mutex
	scripts map[string][]modelStep // by a part of the message
	calls   []*modelCall
}

// modelStep is what the model does at a call. Without Status and Hang it says Text.
type modelStep struct {
	Text   string
	Status int
	Hang   bool          // says Text, and nothing more until the call is closed
	Wait   chan struct{} // says the first word of Text, and the rest when this is closed
}

// modelCall is a call that the model got.
type modelCall struct {
	Model    string
	Messages []modelMessage // without the gateway's own
	Asked    string         // the last message of the user
	System   string
	Schema   bool          // a response format was asked for
	Gone     chan struct{} // is closed when the call is over
	GoneAt   time.Time     // then
}

type modelMessage struct{ Role, Text string }

func startFakeModel(t testing.TB) *fakeModel {
	m := &fakeModel{scripts: make(map[string][]modelStep)}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

// answer has the model take these steps, one after the other, at calls whose message holds the given words. The last one is
// repeated.
func (m *fakeModel) answer(words string, steps ...modelStep) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts[words] = steps
}

// callsFor are the calls whose last message holds the given words.
func (m *fakeModel) callsFor(words string) (found []*modelCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, call := range m.calls {
		if strings.Contains(call.Asked, words) {
			found = append(found, call)
		}
	}
	return found
}

// waitFor waits for the first call whose last message holds the given words.
func (m *fakeModel) waitFor(t testing.TB, words string) (call *modelCall) {
	t.Helper()
	hookstest.Within(t, slowly, fmt.Sprintf("a call of the model with %q", words), func() bool {
		if calls := m.callsFor(words); len(calls) > 0 {
			call = calls[0]
		}
		return call != nil
	})
	return call
}

func (m *fakeModel) serve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		ResponseFormat *struct{} `json:"response_format"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	call := &modelCall{Model: body.Model, Schema: body.ResponseFormat != nil, Gone: make(chan struct{})}
	for _, message := range body.Messages {
		text := textOf(message.Content)
		switch {
		case message.Role == "system" || message.Role == "developer":
			call.System += text
			continue
		case strings.HasPrefix(text, "<<<BEGIN_OPENCLAW"):
			continue
		case message.Role == "user":
			text = asWritten(text)
			call.Asked = text
		}
		call.Messages = append(call.Messages, modelMessage{message.Role, text})
	}
	step := m.next(call)
	defer func() {
		call.GoneAt = time.Now()
		close(call.Gone)
	}()
	if step.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(step.Status)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"the model says %d","type":"server_error","param":null,"code":null}}`, step.Status)
		return
	}
	if !body.Stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "model": body.Model, "usage": modelUsage,
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": step.Text}}}})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(choices []any, usage any) {
		data, err := json.Marshal(map[string]any{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": body.Model, "choices": choices, "usage": usage})
		if err == nil {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
			_ = http.NewResponseController(w).Flush()
		}
	}
	for i, word := range strings.SplitAfter(step.Text, " ") {
		if i == 1 && step.Wait != nil {
			select {
			case <-step.Wait:
			case <-r.Context().Done():
				return
			}
		}
		send([]any{map[string]any{"index": 0, "delta": map[string]any{"role": "assistant", "content": word}}}, nil)
	}
	if step.Hang {
		<-r.Context().Done()
		return
	}
	send([]any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": "stop"}}, nil)
	send([]any{}, modelUsage)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

var modelUsage = map[string]int{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

// next keeps a call, and is what the model does at it.
func (m *fakeModel) next(call *modelCall) modelStep {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
	last, found := -1, ""
	for words := range m.scripts {
		if at := strings.LastIndex(call.Asked, words); at > last { // the gateway may put another message in front
			last, found = at, words
		}
	}
	if last < 0 {
		return modelStep{Text: "You said: " + call.Asked}
	}
	steps := m.scripts[found]
	if len(steps) > 1 {
		m.scripts[found] = steps[1:]
	}
	return steps[0]
}

// textOf is the text of a message, which is a string or a list of parts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts)
	for _, part := range parts {
		text += part.Text
	}
	return text
}

// The gateway puts the time in front of a message, and some facts after the last one.
var (
	stampOfGateway = regexp.MustCompile(`^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d [^\]]+\] `)
	factsOfGateway = regexp.MustCompile(`(?s)\n\nRuntime: agent=.*$`)
)

// asWritten is a message as it was sent to the gateway.
func asWritten(text string) string {
	return stampOfGateway.ReplaceAllString(factsOfGateway.ReplaceAllString(text, ""), "")
}
