package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// anthropic is the Messages API.
type anthropic struct{}

func (anthropic) name() string { return "anthropic" }

func (anthropic) read(_ string, body []byte) (*request, error) {
	var b struct {
		Model    string          `json:"model"`
		Stream   bool            `json:"stream"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string `json:"name"`
			InputSchema schema `json:"input_schema"`
		} `json:"tools"`
		OutputConfig struct {
			Format *struct{} `json:"format"`
		} `json:"output_config"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	r := &request{model: b.Model, stream: b.Stream, schema: b.OutputConfig.Format != nil}
	r.say("system", textsOf(b.System)...)
	for _, message := range b.Messages {
		var parts []struct {
			Type    string          `json:"type"`
			Content json.RawMessage `json:"content"`
		}
		_ = json.Unmarshal(message.Content, &parts)
		for _, part := range parts {
			if part.Type == "tool_result" {
				r.messages = append(r.messages, Message{"tool", strings.Join(textsOf(part.Content), "")})
			}
		}
		r.say(message.Role, textsOf(message.Content)...)
	}
	for _, t := range b.Tools {
		r.tools = append(r.tools, tool{t.Name, t.InputSchema})
	}
	return r, nil
}

func (anthropic) message(r *request, stop any, content ...any) object {
	return object{"id": newID("msg_"), "type": "message", "role": "assistant", "model": r.model, "content": append([]any{}, content...),
		"stop_reason": stop, "stop_sequence": nil, "usage": object{
			"input_tokens": InputTokens - cachedTokens - writtenTokens, "cache_read_input_tokens": cachedTokens, "cache_creation_input_tokens": writtenTokens,
			"output_tokens": OutputTokens}}
}

func (anthropic) block(a answer) (block object, stop string) {
	if a.tool != "" {
		return object{"type": "tool_use", "id": newID("toolu_"), "name": a.tool, "input": a.args}, "tool_use"
	}
	return object{"type": "text", "text": a.text}, "end_turn"
}

func (p anthropic) plain(r *request, a answer) any {
	block, stop := p.block(a)
	return p.message(r, stop, block)
}

func (p anthropic) events(r *request, a answer) (before, words, after []event) {
	send := func(name string, data object) event {
		data["type"] = name
		return event{name, data}
	}
	block, stop := p.block(a)
	delta := func(delta object) {
		words = append(words, send("content_block_delta", object{"index": 0, "delta": delta}))
	}
	if a.tool != "" {
		args, _ := json.Marshal(a.args)
		delta(object{"type": "input_json_delta", "partial_json": string(args)})
		block["input"] = object{}
	} else {
		for _, word := range wordsOf(a.text) {
			delta(object{"type": "text_delta", "text": word})
		}
		block["text"] = ""
	}
	before = []event{
		send("message_start", object{"message": p.message(r, nil)}),
		send("content_block_start", object{"index": 0, "content_block": block}),
	}
	after = []event{
		send("content_block_stop", object{"index": 0}),
		send("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": OutputTokens}}),
		send("message_stop", object{}),
	}
	return before, words, after
}

func (anthropic) failure(status int, message string) any {
	kind := "api_error"
	switch status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case 529: // Anthropic's own
		kind = "overloaded_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}
