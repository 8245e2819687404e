package runners

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

func TestAgentsTellWhatWasUsed(t *testing.T) {
	t.Parallel()
	const (
		report = `{"model":"gpt-5","inputTokens":1200,"outputTokens":34,"cachedTokens":1000,"reasoningTokens":4,"costUsd":0.0123}`
		used   = "gpt-5: 1200 (1000 cached) in, 34 (4 reasoning) out $0.0123"
		events = "text/event-stream"
		plain  = "application/json"
	)
	type answer struct {
		status            int
		contentType, body string
		text, used        string // no text: the turn fails
	}
	tests := map[string]answer{
		"a report":            {200, plain, `{"text":"Hello","usage":` + report + `}`, "Hello", used},
		"several":             {200, plain, `{"usage":[` + report + `,{"model":"small","inputTokens":1,"outputTokens":0}],"text":"Hello"}`, "Hello", used + "; small: 1 (0 cached) in, 0 (0 reasoning) out"},
		"none":                {200, plain, `{"text":"Hello","usage":null}`, "Hello", ""},
		"an empty list":       {200, plain, `{"text":"Hello","usage":[]}`, "Hello", ""},
		"of another API":      {200, plain, `{"text":"Hello","usage":{"prompt_tokens":5}}`, "Hello", ""},
		"no text":             {200, plain, `{"usage":` + report + `}`, "", used},
		"an error":            {500, plain, `{"error":"out of money","usage":` + report + `}`, "", used},
		"an error in words":   {500, "text/plain", `{"usage":` + report + `}`, "", ""},
		"a result":            {200, events, "event: delta\ndata: Hel\n\nevent: result\ndata: {\"text\":\"Hello\",\"usage\":" + report + "}\n\n", "Hello", used},
		"a result of deltas":  {200, events, "event: delta\ndata: Hello\n\nevent: result\ndata: {\"usage\":" + report + "}\n\n", "Hello", used},
		"an error event":      {200, events, "event: error\ndata: {\"text\":\"no\",\"usage\":" + report + "}\n\n", "", used},
		"a text that is JSON": {200, events, "event: result\ndata: {\"use\":5}\n\n", `{"use":5}`, ""},
		"JSON with a usage":   {200, events, "event: result\ndata: {\"usage\":\"high\",\"cpu\":5}\n\n", `{"usage":"high","cpu":5}`, ""},
		"plain text":          {200, "text/plain", `{"text":"Hello","usage":` + report + `}`, `{"text":"Hello","usage":` + report + `}`, ""},
	}
	for _, number := range runnertest.HostileNumbers {
		tests["inputTokens "+number] = answer{200, plain, `{"text":"Hello","usage":{"inputTokens":` + number + `}}`, "Hello", "refused"}
		tests["costUsd "+number] = answer{200, plain, `{"text":"Hello","usage":[{"outputTokens":1,"costUsd":[` + number + `]}]}`, "Hello", "refused"}
		if number[0] != '[' && number[0] != '{' {
			tests["usage "+number] = answer{200, plain, `{"text":"Hello","usage":` + number + `}`, "Hello", "refused"}
		}
	}
	for name, test := range tests {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.contentType)
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}))
		reply, err := newHTTP(t, server.URL, "").Run(t.Context(), engine.Turn{Message: "hi"})
		server.Close()
		if (err == nil) != (test.text != "") || reply.Text != test.text || runnertest.Used(reply.Usage) != test.used {
			t.Errorf("%s: got %q, %v, used %s", name, reply.Text, err, runnertest.Used(reply.Usage))
		}
	}
}
