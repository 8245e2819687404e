package openai

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// modelResponse is a response of the Responses API, as far as it has come.
type modelResponse struct {
	id, status string
	problem    any    // its error
	incomplete string // why it is incomplete
	output     []any
	used       usage.Report
}

// responseFields are the members of a response that matter. The others are checked, and take no memory.
var responseFields = func() *strictjson.Selection {
	const most = 10_000 // items: calls of tools and reasoning are among them
	fields := strictjson.Members("object", "id", "status", "message", "detail", "code")
	fields.Member("error").SelectAll()
	fields.Member("incomplete_details").Member("reason")
	item := fields.Member("output").Item(most)
	item.Member("type")
	content := item.Member("content").Item(most)
	for _, name := range []string{"type", "text", "refusal"} {
		content.Member(name)
	}
	responseUsage.selectFrom(fields)
	return fields
}()

// parseResponse reads a response, or the error that stands in its place.
func parseResponse(data []byte) (*modelResponse, error) {
	value, err := strictjson.ParseSelected(data, responseFields)
	document, ok := value.(map[string]any)
	switch {
	case err != nil:
		return nil, httpcall.ReadingError(&answers.Error{Problem: "it is not a JSON object: " + err.Error(), Text: answers.Beginning(data)})
	case !ok:
		return nil, httpcall.ReadingError(&answers.Error{Problem: "it is not a JSON object", Text: answers.Beginning(data)})
	}
	r := &modelResponse{problem: document["error"]}
	r.id, _ = document["id"].(string)
	r.status, _ = document["status"].(string)
	if r.status == "" {
		if problem := documentError(document); problem != nil {
			return nil, problem
		}
	}
	if !validResponseID(r.id) || r.status == "" {
		const problem, hint = "it is not a response with an id and a status", "background needs OpenAI's Responses API"
		return nil, httpcall.ReadingError(&answers.Error{Problem: problem, Text: answers.Beginning(data), Hint: hint})
	}
	details, _ := document["incomplete_details"].(map[string]any)
	r.incomplete, _ = details["reason"].(string)
	r.output, _ = document["output"].([]any)
	responseUsage.read(document, &r.used)
	return r, nil
}

var responseID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~:=+-]*$`)

// validResponseID reports whether a text can stand in a URL as the id of a response.
func validResponseID(id string) bool { return len(id) <= 1024 && responseID.MatchString(id) }

// ended reports whether the server will do no more. It does more if nothing is known, which is nil.
func (r *modelResponse) ended() bool {
	return r != nil && r.status != "queued" && r.status != "in_progress"
}

// result is the text of a response that has ended, or why there is none. emit may be nil.
func (r *modelResponse) result(emit func(engine.Progress)) (string, error) {
	text, err := r.text(emit)
	if err != nil {
		return "", httpcall.ReadingError(err)
	}
	return text, nil
}

func (r *modelResponse) text(emit func(engine.Progress)) (string, error) {
	switch r.status {
	case "completed":
	case "failed":
		raw, _ := turns.EncodeJSON(r.problem)
		if r.problem == nil {
			raw = nil
		}
		return "", &answers.Error{Problem: "the server says that the response failed", Text: errorText(errorMessage(r.problem), string(raw))}
	case "incomplete":
		return "", r.cutOff()
	case "cancelled", "canceled":
		return "", errors.New("the response was cancelled at the server")
	default:
		return "", fmt.Errorf("the response has the status %.40q, which the runner does not know", r.status)
	}
	c := &completion{chosen: true, emit: emit}
	for _, value := range r.output {
		item, _ := value.(map[string]any)
		switch item["type"] {
		case "message":
			if err := c.addContent(item["content"]); err != nil {
				return "", err
			}
		case "function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request":
			c.tools = true // which a client has to carry out
		case "reasoning":
			c.reasoned = true
		}
		if c.text.Len()+c.refusal.Len() > answers.MaxReply {
			return "", answers.ErrTooLarge
		}
	}
	return c.result()
}

// cutOff is why a response is incomplete.
func (r *modelResponse) cutOff() error {
	switch r.incomplete {
	case "max_output_tokens":
		const problem = "it was cut off at the largest number of tokens (incomplete, max_output_tokens)"
		return &answers.Error{Problem: problem, Hint: "max_output_tokens in body can allow for more"}
	case "content_filter":
		return errors.New("a content filter stopped it (incomplete, content_filter)")
	default:
		return &answers.Error{Problem: "the response is incomplete", Text: r.incomplete}
	}
}
