// Package modeltest is a model that agents can ask without a network: it speaks the protocols of Anthropic, OpenAI and Gemini,
// answers what a test has it answer, and keeps every call.
package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long tests wait for an agent: on a busy machine some of them take a minute to start.
const Patience = 4 * time.Minute

// Model is the model. Without a script for a message it repeats the message.
type Model struct {
	URL string // where the protocols' own paths begin

	server  *httptest.Server
	closing chan struct{}

	mu      sync.Mutex
	scripts map[string][]Step // by a part of the message
	calls   []*Call
}

// Step is what the model does at a call: it says Text, unless it is told something else.
type Step struct {
	Text   string
	Status int             // answers with this status and an error as the protocol has it
	Hang   bool            // says Text, and nothing more until the call is closed; without Text not even a header
	Cut    bool            // says the first half of Text, and breaks the connection
	Wait   <-chan struct{} // says the first word of Text, and the rest when this is closed
	Tool   string          // has the agent run this command with its shell tool, and when the result comes takes the next step
	Ask    bool            // with Tool: asks for more than the agent's sandbox lets a command do, where that has to be said
	Read   string          // has the agent read this file with its tool for that, as Tool does with a command
	JSON   string          // answers with this document, by the tool for it where an agent offers one
}

// Call is a call that the model got.
type Call struct {
	Protocol string // "anthropic", "responses", "chat" or "gemini"
	Model    string
	System   string    // what is said to the model besides the messages
	Messages []Message // without what the agent adds of its own
	Asked    string    // the last message of the user
	Tools    []string  // the names of the tools that are offered
	Schema   bool      // an answer by a schema is asked for, in the request or by a tool
	Body     string    // all of the request
	Beside   bool      // the agent asks for itself, such as for the title of a session

	Gone   chan struct{} // is closed when the call is over
	GoneAt time.Time     // then
	Left   bool          // the caller closed the call before its end
}

// What the model says that each answer used, in the words of its protocol.
const (
	InputTokens   = 1000
	cachedTokens  = 900 // of them
	writtenTokens = 20  // to the cache
	OutputTokens  = 50
	ThoughtTokens = 30 // of them
)

// Message is a part of the conversation. The role is "user", "assistant" or, for what a tool put out, "tool".
type Message struct{ Role, Text string }

// User is a message of the user.
func User(text string) Message { return Message{"user", text} }

// Assistant is a message of the model.
func Assistant(text string) Message { return Message{"assistant", text} }

// Start starts a model that ends with the test.
func Start(t testing.TB) *Model {
	m := &Model{scripts: make(map[string][]Step), closing: make(chan struct{})}
	m.server = httptest.NewServer(http.HandlerFunc(m.serve))
	m.URL = m.server.URL
	t.Cleanup(func() {
		close(m.closing)
		m.server.CloseClientConnections()
		m.server.Close()
	})
	return m
}

// Answer has the model take these steps, one after the other, at calls whose message holds the given words. The last one is
// repeated.
func (m *Model) Answer(words string, steps ...Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts[words] = steps
}

// Calls are all calls so far.
func (m *Model) Calls() []*Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// CallsFor are the calls whose last message holds the given words, without those that an agent makes for itself.
func (m *Model) CallsFor(words string) (found []*Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, call := range m.calls {
		if !call.Beside && strings.Contains(call.Asked, words) {
			found = append(found, call)
		}
	}
	return found
}

// WaitFor waits for the first call whose last message holds the given words. It waits by itself, so that tests inside of the
// packages that a Caddy is made of can use it, too.
func (m *Model) WaitFor(t testing.TB, words string) (call *Call) {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if calls := m.CallsFor(words); len(calls) > 0 {
			return calls[0]
		}
	}
	t.Fatalf("the model was not asked %q within %v", words, Patience)
	return nil
}

// Holds reports whether a text is anywhere in the request.
func (c *Call) Holds(text string) bool {
	var body any
	return json.Unmarshal([]byte(c.Body), &body) == nil && holds(body, text)
}

func holds(value any, text string) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, text)
	case []any:
		for _, v := range value {
			if holds(v, text) {
				return true
			}
		}
	case map[string]any:
		for name, v := range value {
			if strings.Contains(name, text) || holds(v, text) {
				return true
			}
		}
	}
	return false
}

func (m *Model) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // to its end, so that the server notices when the caller goes away
	if err != nil {
		return
	}
	speaks := protocolOf(r)
	if speaks == nil {
		serveBeside(w, r)
		return
	}
	asked, err := speaks.read(r.URL.Path, body)
	if err != nil {
		fail(w, speaks, http.StatusBadRequest)
		return
	}
	call := asked.call(speaks, string(body))
	step := m.next(call)
	over := false
	defer func() {
		call.Left, call.GoneAt = !over && !step.Cut, time.Now()
		close(call.Gone)
	}()
	if step.Status != 0 {
		fail(w, speaks, step.Status)
		over = true
		return
	}
	c := &conversation{w: w, caller: r.Context(), closing: m.closing, step: step}
	over = c.carryOut(speaks, asked, answerOf(step, asked))
}

// next keeps a call, and is what the model does at it.
func (m *Model) next(call *Call) Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
	if call.Beside {
		return Step{Text: "A title"}
	}
	last, found := -1, ""
	for words := range m.scripts {
		if at := strings.LastIndex(call.Asked, words); at > last { // an agent may put another message in front
			last, found = at, words
		}
	}
	result, told := call.result()
	if last < 0 {
		if told {
			return Step{Text: "The tool said: " + result}
		}
		return Step{Text: "You said: " + call.Asked}
	}
	steps := m.scripts[found]
	if len(steps) > 1 {
		m.scripts[found] = steps[1:]
	}
	step := steps[0]
	if told && (step.Tool != "" || step.Read != "" || step.JSON != "") {
		return Step{Text: "The tool said: " + result} // else it would have the same once more
	}
	return step
}

// result is what a tool put out, if that is the news of a call.
func (c *Call) result() (text string, told bool) {
	if len(c.Messages) == 0 {
		return "", false
	}
	last := c.Messages[len(c.Messages)-1]
	return last.Text, last.Role == "tool"
}
