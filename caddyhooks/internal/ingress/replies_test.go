package ingress

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func TestPushesOfAgents(t *testing.T) {
	t.Parallel()
	for body, news := range map[string]bool{
		`{"kind":"task","status":{"state":"working"}}`:                            false,
		`{"kind":"task","status":{"state":"completed"}}`:                          true,
		`{"kind":"status-update","status":{"state":"input-required"}}`:            true,
		`{"jsonrpc":"2.0","result":{"status":{"state":"submitted"}}}`:             false,
		`{"statusUpdate":{"taskId":"1","status":{"state":"TASK_STATE_WORKING"}}}`: false,
		`{"task":{"status":{"state":"TASK_STATE_FAILED"}}}`:                       true,
		`{}`: true,
	} {
		if answer, _, err := parseReply([]byte(body), true); err != nil || (answer != nil) != news || news && answer.Via != engine.AnsweredByPush {
			t.Errorf("%s: %+v, %v", body, answer, err)
		}
	}
}

func TestPreferredAnswers(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"respond-async": true, "Respond-Async": true, "wait=10, respond-async": true, `respond-async; foo="a"`: true,
		"": false, "respond-asyncx": false, "return=minimal": false,
	} {
		if got := prefersAsync([]string{value}); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

// Whatever comes is an answer within its bounds, progress, news, or an error that says what is wrong.
func FuzzReplies(f *testing.F) {
	for _, body := range []string{`{"text":"a"}`, `{"error":""}`, `{"progress":"half"}`, `{"text":null,"error":"x"}`, `{"status":{"state":"working"}}`,
		`{"text":"` + strings.Repeat("x", 5000) + `"}`, `[`, `{"text":"\ud800"}`} {
		f.Add([]byte(body), false)
		f.Add([]byte(body), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, pushed bool) {
		answer, progress, err := parseReply(body, pushed)
		var refused *api.Error
		switch {
		case err != nil:
			if !errors.As(err, &refused) || refused.Status != 400 && refused.Status != 413 {
				t.Errorf("the error is %v", err)
			}
		case pushed:
			if progress != "" || answer != nil && (answer.Text != "" || answer.Error != "") {
				t.Errorf("a push became %+v, %q", answer, progress)
			}
		case answer == nil:
			if len(progress) > maxReplyError {
				t.Errorf("progress has %d bytes", len(progress))
			}
		case len(answer.Text) > maxReplyText || len(answer.Error) > maxReplyError || answer.Text != "" && answer.Error != "":
			t.Errorf("the answer is %+v", answer)
		}
		if given, err := parseAnswer(body); err != nil && given != "" {
			t.Errorf("%q with %v", given, err)
		}
	})
}
