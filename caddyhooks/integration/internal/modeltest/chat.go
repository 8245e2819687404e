package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// chat is OpenAI's Chat Completions.
type chat struct{}

func (chat) name() string { return "chat" }

func (chat) read(_ string, body []byte) (*request, error) {
	var b struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name       string `json:"name"`
				Parameters schema `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
		ResponseFormat *struct{} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	r := &request{model: b.Model, stream: b.Stream, schema: b.ResponseFormat != nil}
	for _, message := range b.Messages {
		if message.Role == "tool" {
			r.messages = append(r.messages, Message{"tool", strings.Join(textsOf(message.Content), "")})
			continue
		}
		r.say(message.Role, textsOf(message.Content)...)
	}
	for _, t := range b.Tools {
		r.tools = append(r.tools, tool{t.Function.Name, t.Function.Parameters})
	}
	return r, nil
}

func (chat) message(a answer) (message object, finish string) {
	if a.tool == "" {
		return object{"role": "assistant", "content": a.text}, "stop"
	}
	args, _ := json.Marshal(a.args)
	call := object{"index": 0, "id": newID("call_"), "type": "function", "function": object{"name": a.tool, "arguments": string(args)}}
	return object{"role": "assistant", "content": nil, "tool_calls": []any{call}}, "tool_calls"
}

var usageOfChat = object{
	"prompt_tokens": InputTokens, "prompt_tokens_details": object{"cached_tokens": cachedTokens}, "completion_tokens": OutputTokens,
	"completion_tokens_details": object{"reasoning_tokens": ThoughtTokens}, "total_tokens": InputTokens + OutputTokens,
}

func (p chat) plain(r *request, a answer) any {
	message, finish := p.message(a)
	return object{"id": newID("chatcmpl-"), "object": "chat.completion", "created": time.Now().Unix(), "model": r.model, "usage": usageOfChat,
		"choices": []any{object{"index": 0, "finish_reason": finish, "message": message}}}
}

func (p chat) events(r *request, a answer) (before, words, after []event) {
	id, created := newID("chatcmpl-"), time.Now().Unix()
	chunk := func(usage any, choices ...any) event {
		return event{"", object{"id": id, "object": "chat.completion.chunk", "created": created, "model": r.model, "choices": append([]any{}, choices...), "usage": usage}}
	}
	message, finish := p.message(a)
	if a.tool != "" {
		words = []event{chunk(nil, object{"index": 0, "delta": message})}
	}
	for _, word := range wordsOf(a.text) {
		words = append(words, chunk(nil, object{"index": 0, "delta": object{"role": "assistant", "content": word}}))
	}
	after = []event{
		chunk(nil, object{"index": 0, "delta": object{}, "finish_reason": finish}),
		chunk(usageOfChat),
		{"", "[DONE]"},
	}
	return nil, words, after
}

func (chat) failure(status int, message string) any { return failureOfOpenAI(status, message) }

func failureOfOpenAI(status int, message string) any {
	kind, code := "server_error", any(nil)
	switch status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind, code = "invalid_request_error", "invalid_api_key"
	case http.StatusTooManyRequests:
		kind, code = "requests", "rate_limit_exceeded"
	}
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
}
