package modeltest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// protocol is how an agent asks a model.
type protocol interface {
	name() string

	// read reads a request.
	read(path string, body []byte) (*request, error)

	// plain is an answer in one piece.
	plain(r *request, a answer) any

	// events are an answer in pieces: what comes before it, its words, and what comes after.
	events(r *request, a answer) (before, words, after []event)

	// failure is the body of an answer with another status than 200.
	failure(status int, message string) any
}

// event is a piece of a stream. A string is sent as it is, all else as JSON.
type event struct {
	name string
	data any
}

// answer is what the model says: a text, or the call of a tool.
type answer struct {
	text string
	tool string
	args map[string]any
}

// request is what the model is asked.
type request struct {
	model    string
	stream   bool
	system   string
	messages []Message
	tools    []tool
	schema   bool
}

// tool is a tool that an agent offers, with the schema of what it takes.
type tool struct {
	name   string
	schema schema
}

type schema struct {
	Type       any               `json:"type"` // a string, or a list of them
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
}

// protocolOf is the protocol of a request, nil if it does not ask for an answer.
func protocolOf(r *http.Request) protocol {
	path := r.URL.Path
	switch {
	case r.Method != http.MethodPost:
	case strings.HasSuffix(path, "/messages"):
		return anthropic{}
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, streamOfGemini):
		return gemini{}
	}
	return nil
}

// serveBeside answers what agents ask besides.
func serveBeside(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/responses"): // Codex asks for a websocket first
		w.WriteHeader(http.StatusUpgradeRequired)
	case strings.HasSuffix(path, "/count_tokens"), strings.HasSuffix(path, ":countTokens"):
		writeJSON(w, http.StatusOK, object{"input_tokens": 10, "totalTokens": 10})
	case strings.HasSuffix(path, "/models"):
		writeJSON(w, http.StatusOK, object{"object": "list", "data": []any{}, "models": []any{}, "has_more": false})
	case path == "/":
		w.WriteHeader(http.StatusOK)
	default:
		writeJSON(w, http.StatusNotFound, object{"error": object{"message": "there is no " + path, "type": "not_found_error"}})
	}
}

// call is the request as it is kept.
func (r *request) call(by protocol, body string) *Call {
	c := &Call{Protocol: by.name(), Model: r.model, System: r.system, Messages: r.messages, Schema: r.schema, Body: body, Gone: make(chan struct{})}
	for _, message := range r.messages {
		if message.Role == "user" {
			c.Asked = message.Text
		}
	}
	for _, tool := range r.tools {
		c.Tools = append(c.Tools, tool.name)
		c.Schema = c.Schema || tool.name == toolForJSON
	}
	c.Beside = isForTitle(c)
	return c
}

// say adds a message, or what is said besides the messages. Notes of the agent do not count as either.
func (r *request) say(role string, parts ...string) {
	text := ""
	for _, part := range parts {
		text += withoutNotes(part)
	}
	switch role {
	case "system", "developer":
		r.system += strings.Join(parts, "")
		return
	case "model":
		role = "assistant"
	}
	if text != "" {
		r.messages = append(r.messages, Message{role, text})
	}
}

// toolForJSON is how Claude Code has the model answer by a schema.
const toolForJSON = "StructuredOutput"

// answerOf is what a step says to a request.
func answerOf(step Step, r *request) answer {
	switch {
	case step.Tool != "":
		for _, tool := range r.tools {
			if slices.Contains(shellTools, strings.ToLower(tool.name)) {
				args := tool.schema.with(step.Tool)
				if _, ok := tool.schema.Properties["sandbox_permissions"]; ok && step.Ask { // Codex
					args["sandbox_permissions"], args["justification"] = "require_escalated", "as asked"
				}
				return answer{tool: tool.name, args: args}
			}
		}
		return answer{text: "There is no shell."}
	case step.Read != "":
		for _, tool := range r.tools {
			if tool.name == "Read" { // Claude Code
				return answer{tool: tool.name, args: map[string]any{"file_path": step.Read}}
			}
		}
		return answer{text: "There is no tool that reads."}
	case step.JSON != "":
		for _, tool := range r.tools {
			var args map[string]any
			if tool.name == toolForJSON && json.Unmarshal([]byte(step.JSON), &args) == nil {
				return answer{tool: tool.name, args: args}
			}
		}
		return answer{text: step.JSON}
	}
	return answer{text: step.Text}
}

// shellTools are the names that agents give to the tool that runs a command.
var shellTools = []string{"bash", "shell", "shell_command", "exec_command", "run_shell_command", "run_command", "terminal"}

// longEnough is how long a command may take, in milliseconds, where an agent wants to know.
const longEnough = 600_000

// with are the arguments with which a shell tool runs a command.
func (s schema) with(command string) map[string]any {
	args := make(map[string]any)
	for name, p := range s.Properties {
		required := slices.Contains(s.Required, name)
		kind := fmt.Sprint(p.Type)
		switch {
		case (name == "command" || name == "cmd") && strings.Contains(kind, "array"):
			args[name] = []string{"sh", "-c", command}
		case name == "command" || name == "cmd":
			args[name] = command
		case strings.Contains(name, "timeout"), name == "yield_time_ms":
			args[name] = longEnough
		case !required:
		case strings.EqualFold(kind, "string"):
			args[name] = "as asked"
		case strings.EqualFold(kind, "boolean"):
			args[name] = false
		}
	}
	return args
}

// conversation is an answer on its way.
type conversation struct {
	w       http.ResponseWriter
	caller  context.Context
	closing <-chan struct{}
	step    Step
}

// carryOut answers, and reports whether the caller stayed to the end.
func (c *conversation) carryOut(speaks protocol, r *request, a answer) bool {
	if c.step.Hang && c.step.Text == "" {
		return c.waitFor(nil)
	}
	if !r.stream {
		if c.step.Cut {
			panic(http.ErrAbortHandler)
		}
		if c.step.Hang {
			return c.waitFor(nil)
		}
		if !c.waitFor(c.step.Wait) {
			return false
		}
		writeJSON(c.w, http.StatusOK, speaks.plain(r, a))
		return c.caller.Err() == nil
	}
	c.w.Header().Set("Content-Type", "text/event-stream")
	before, words, after := speaks.events(r, a)
	c.send(before...)
	for i, word := range words {
		if c.step.Cut && i >= len(words)/2 {
			panic(http.ErrAbortHandler)
		}
		if i == 1 && c.step.Wait != nil && !c.waitFor(c.step.Wait) {
			return false
		}
		c.send(word)
	}
	if c.step.Hang {
		return c.waitFor(nil)
	}
	c.send(after...)
	return c.caller.Err() == nil
}

// waitFor waits for a channel to be closed, and reports whether the caller is still there then.
func (c *conversation) waitFor(signal <-chan struct{}) bool {
	if signal == nil && !c.step.Hang {
		return true
	}
	select {
	case <-signal:
		return true
	case <-c.caller.Done():
	case <-c.closing:
	}
	return false
}

func (c *conversation) send(events ...event) {
	for _, e := range events {
		text, ok := e.data.(string)
		if !ok {
			data, err := json.Marshal(e.data)
			if err != nil {
				panic(err)
			}
			text = string(data)
		}
		if e.name != "" {
			_, _ = fmt.Fprintf(c.w, "event: %s\n", e.name)
		}
		_, _ = fmt.Fprintf(c.w, "data: %s\n\n", text)
	}
	_ = http.NewResponseController(c.w).Flush()
}

type object = map[string]any

func fail(w http.ResponseWriter, speaks protocol, status int) {
	writeJSON(w, status, speaks.failure(status, fmt.Sprintf("the model says %d", status)))
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// newID is an id that no other thing has.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// wordsOf are the words of a text, each with the space after it.
func wordsOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.SplitAfter(text, " ")
}
