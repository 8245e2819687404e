package modeltest

import (
	"encoding/json"
	"strings"
	"time"
)

// responses is OpenAI's Responses API.
type responses struct{}

func (responses) name() string { return "responses" }

func (responses) read(_ string, body []byte) (*request, error) {
	type offered struct {
		Name       string `json:"name"`
		Parameters schema `json:"parameters"`
	}
	var b struct {
		Model        string    `json:"model"`
		Stream       bool      `json:"stream"`
		Instructions string    `json:"instructions"`
		Tools        []offered `json:"tools"`
		Text         struct {
			Format *struct {
				Type string `json:"type"`
			} `json:"format"`
		} `json:"text"`
		Input json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	r := &request{model: b.Model, stream: b.Stream, schema: b.Text.Format != nil && b.Text.Format.Type == "json_schema"}
	r.say("system", b.Instructions)
	var text string
	if json.Unmarshal(b.Input, &text) == nil {
		r.say("user", text)
		return r, nil
	}
	var input []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
		Tools   []offered       `json:"tools"`
	}
	if err := json.Unmarshal(b.Input, &input); err != nil {
		return nil, err
	}
	for _, item := range input {
		switch {
		case strings.HasSuffix(item.Type, "_call_output"):
			r.messages = append(r.messages, Message{"tool", strings.Join(textsOf(item.Output), "")})
		case item.Role != "":
			r.say(item.Role, textsOf(item.Content)...)
		}
		b.Tools = append(b.Tools, item.Tools...)
	}
	for _, t := range b.Tools {
		r.tools = append(r.tools, tool{t.Name, t.Parameters})
	}
	return r, nil
}

func (responses) item(a answer) object {
	if a.tool == "" {
		return object{"id": newID("msg_"), "type": "message", "status": "completed", "role": "assistant",
			"content": []any{object{"type": "output_text", "text": a.text, "annotations": []any{}}}}
	}
	args, _ := json.Marshal(a.args)
	return object{"id": newID("fc_"), "type": "function_call", "status": "completed", "call_id": newID("call_"), "name": a.tool, "arguments": string(args)}
}

func (responses) response(id, status string, r *request, output ...any) object {
	return object{"id": id, "object": "response", "created_at": time.Now().Unix(), "status": status, "model": r.model, "output": append([]any{}, output...),
		"usage": object{"input_tokens": InputTokens, "input_tokens_details": object{"cached_tokens": cachedTokens}, "output_tokens": OutputTokens,
			"output_tokens_details": object{"reasoning_tokens": ThoughtTokens}, "total_tokens": InputTokens + OutputTokens}}
}

func (p responses) plain(r *request, a answer) any {
	return p.response(newID("resp_"), "completed", r, p.item(a))
}

func (p responses) events(r *request, a answer) (before, words, after []event) {
	id, item, sequence := newID("resp_"), p.item(a), 0
	send := func(name string, data object) event {
		data["type"], data["sequence_number"], data["output_index"] = name, sequence, 0
		sequence++
		return event{name, data}
	}
	begun := object{"id": item["id"], "type": item["type"], "status": "in_progress"}
	if a.tool != "" {
		begun["call_id"], begun["name"], begun["arguments"] = item["call_id"], a.tool, ""
	} else {
		begun["role"], begun["content"] = "assistant", []any{}
	}
	before = []event{
		send("response.created", object{"response": p.response(id, "in_progress", r)}),
		send("response.output_item.added", object{"item": begun}),
	}
	if a.tool != "" {
		words = append(words, send("response.function_call_arguments.delta", object{"item_id": item["id"], "delta": item["arguments"]}),
			send("response.function_call_arguments.done", object{"item_id": item["id"], "arguments": item["arguments"]}))
	}
	for _, word := range wordsOf(a.text) {
		words = append(words, send("response.output_text.delta", object{"item_id": item["id"], "content_index": 0, "delta": word}))
	}
	if a.tool == "" {
		after = append(after, send("response.output_text.done", object{"item_id": item["id"], "content_index": 0, "text": a.text}))
	}
	after = append(after, send("response.output_item.done", object{"item": item}),
		send("response.completed", object{"response": p.response(id, "completed", r, item)}))
	return before, words, after
}

func (responses) failure(status int, message string) any { return failureOfOpenAI(status, message) }
