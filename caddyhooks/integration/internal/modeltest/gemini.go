package modeltest

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
)

// gemini is the Gemini API.
type gemini struct{}

const streamOfGemini = ":streamGenerateContent"

func (gemini) name() string { return "gemini" }

func (gemini) read(at string, body []byte) (*request, error) {
	type content struct {
		Role  string `json:"role"`
		Parts []struct {
			Text             string `json:"text"`
			Thought          bool   `json:"thought"`
			FunctionResponse *struct {
				Response json.RawMessage `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	}
	var b struct {
		Contents          []content `json:"contents"`
		SystemInstruction content   `json:"systemInstruction"`
		Tools             []struct {
			FunctionDeclarations []struct {
				Name                 string `json:"name"`
				Parameters           schema `json:"parameters"`
				ParametersJSONSchema schema `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		GenerationConfig struct {
			ResponseSchema     json.RawMessage `json:"responseSchema"`
			ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		} `json:"generationConfig"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	model, _, _ := strings.Cut(path.Base(at), ":")
	config := b.GenerationConfig
	r := &request{model: model, stream: strings.HasSuffix(at, streamOfGemini), schema: config.ResponseSchema != nil || config.ResponseJSONSchema != nil}
	for _, part := range b.SystemInstruction.Parts {
		r.say("system", part.Text)
	}
	for _, content := range b.Contents {
		var texts []string
		for _, part := range content.Parts {
			if !part.Thought {
				texts = append(texts, part.Text)
			}
		}
		r.say(content.Role, texts...)
		for _, part := range content.Parts {
			if part.FunctionResponse != nil {
				r.messages = append(r.messages, Message{"tool", string(part.FunctionResponse.Response)})
			}
		}
	}
	for _, t := range b.Tools {
		for _, f := range t.FunctionDeclarations {
			takes := f.ParametersJSONSchema
			if takes.Properties == nil {
				takes = f.Parameters
			}
			r.tools = append(r.tools, tool{f.Name, takes})
		}
	}
	return r, nil
}

func (gemini) piece(r *request, part object, finish any) object {
	candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}}
	if finish != nil {
		candidate["finishReason"] = finish
	}
	return object{"candidates": []any{candidate}, "modelVersion": r.model, "responseId": newID("r"),
		"usageMetadata": object{"promptTokenCount": InputTokens, "cachedContentTokenCount": cachedTokens, "candidatesTokenCount": OutputTokens - ThoughtTokens,
			"thoughtsTokenCount": ThoughtTokens, "totalTokenCount": InputTokens + OutputTokens}}
}

func (gemini) part(a answer) object {
	if a.tool != "" {
		return object{"functionCall": object{"id": newID("fc"), "name": a.tool, "args": a.args}}
	}
	return object{"text": a.text}
}

func (p gemini) plain(r *request, a answer) any { return p.piece(r, p.part(a), "STOP") }

func (p gemini) events(r *request, a answer) (before, words, after []event) {
	if a.tool != "" {
		return nil, nil, []event{{"", p.piece(r, p.part(a), "STOP")}}
	}
	for _, word := range wordsOf(a.text) {
		words = append(words, event{"", p.piece(r, object{"text": word}, nil)})
	}
	return nil, words, []event{{"", p.piece(r, object{"text": ""}, "STOP")}}
}

func (gemini) failure(status int, message string) any {
	kind := "INTERNAL"
	switch status {
	case http.StatusBadRequest:
		kind = "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		kind = "UNAUTHENTICATED"
	case http.StatusTooManyRequests:
		kind = "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable:
		kind = "UNAVAILABLE"
	}
	return object{"error": object{"code": status, "message": message, "status": kind}}
}
