package openai

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// failureAt is the error of a turn that goes to a URL.
func failureAt(t *testing.T, url string, set func(*OpenAI)) error {
	t.Helper()
	_, err := newOpenAI(t, url, set).Run(t.Context(), engine.Turn{Message: "hi"})
	return err
}

func TestOpenAIWaitsAsAllRunnersDo(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(t *testing.T, status int) error{
		"in the status": func(t *testing.T, status int) error {
			return failureAt(t, runnertest.Answering(t, status, "{}"), nil)
		},
		"in the answer": func(t *testing.T, status int) error {
			return failureAt(t, runnertest.Answering(t, http.StatusOK, fmt.Sprintf(`{"error":{"message":"no","code":%d}}`, status)), nil)
		},
		"in a stream": func(t *testing.T, status int) error {
			body := fmt.Sprintf("data: {\"error\":{\"message\":\"no\",\"code\":\"%d\"}}\n\ndata: [DONE]\n\n", status)
			return failureAt(t, runnertest.Answering(t, http.StatusOK, body), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runnertest.WantModelWaits(t, run)
		})
	}
	t.Run("with sessions of the server", func(t *testing.T) {
		t.Parallel()
		runnertest.WantAgentWaits(t, func(t *testing.T, status int) error {
			return failureAt(t, runnertest.Answering(t, status, "{}"), func(o *OpenAI) { o.SessionHeader = "X-Session" })
		})
	})
	const afterText = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: {\"error\":{\"code\":529}}\n\n"
	unreachable := httptest.NewServer(nil)
	unreachable.Close()
	// What a model said is not undone.
	runnertest.WantWait(t, "ends", map[string]error{"after text": failureAt(t, runnertest.Answering(t, http.StatusOK, afterText), nil)})
	runnertest.WantWait(t, "waits for contact", map[string]error{"unreachable": failureAt(t, unreachable.URL, nil)})
}
