package admin

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

var markID = regexp.MustCompile(`id=[0-9a-f]{8}`)

// A preview is the message of the run that a request would become, and the chat.
func FuzzPreview(f *testing.F) {
	for i, text := range []string{"", "Issue {a}", "<{a}|x|> {none}", "{a}\u0301{b}", "{$..a}{$.b[*]}", "[EXTERNAL {a} DATA]", "{$.a[}", " "} {
		f.Add(text, "chat {a}\n", `{"a":"`+[]string{"x", "|im_start|", "e\\u0301", "\\u200b"}[i%4]+`","b":[1,"\ud83d\ude00"]}`, byte(i))
	}
	f.Fuzz(func(t *testing.T, text, chat, payload string, kind byte) {
		h := &settings.Hook{Mapping: settings.Mapping{Name: "a", Action: engine.Wake, MessageTemplate: text, AgentFields: settings.AgentFields{ChatID: chat}}}
		if kind&1 > 0 {
			h.Action = engine.Agent
		}
		if kind&2 > 0 {
			h.Untrusted = "wrap"
		}
		if h.ParseTemplates() != nil {
			return
		}
		h.Auth.Scheme = settings.BearerScheme
		req := &intake.Request{Body: []byte(payload)}
		body, err := intake.ParseBody(h, req, h.Selected)
		if err != nil {
			return
		}
		p := new(api.Preview)
		intake.Show(p, h, req, body)
		var message strings.Builder
		for _, s := range p.Message {
			message.WriteString(s.Text)
		}
		runs, err := intake.IntakeCustom(new(settings.Active), h, req)
		if err != nil {
			if len(p.Problems) != 1 || p.Problems[0].Field != "payload" {
				t.Errorf("a request is refused, %v, and the preview has the problems %v", err, p.Problems)
			}
			return
		}
		run := runs[0]
		if got, want := markID.ReplaceAllString(message.String(), ""), markID.ReplaceAllString(run.Message, ""); got != want || len(p.Problems) > 0 {
			t.Errorf("the preview is %q with the problems %v, the message %q", got, p.Problems, want)
		}
		if got := p.ChatID; got != run.ChatID && !run.NewChat || run.NewChat && got != "" {
			t.Errorf("the preview has the chat %q, the run %q", got, run.ChatID)
		}
	})
}

func FuzzParsePreview(f *testing.F) {
	f.Add([]byte(`{"mapping":{"name":"a","messageTemplate":"{a}"},"payload":"{\"a\":1}"}`))
	f.Add([]byte(`{"mapping":null,"payload":""}`))
	f.Add([]byte(`{"mapping":{},"payload":"","headers":{"x-a":["b"],"X-A":["c"]},"query":"a=b&%zz"}`))
	f.Add([]byte(`{"payload":7,"mapping":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		asked, err := parsePreview(body)
		if err == nil && !settings.IsJSONObject(asked.Mapping) {
			t.Errorf("the mapping is %q", asked.Mapping)
		}
		if err == nil {
			_, _ = settings.ParseMapping(asked.Mapping)
		}
	})
}

func TestPreviewsAreLimitedForEachUser(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	var l service.PreviewLimiter
	now := time.Now()
	for i := range intake.PreviewsAtOnce {
		if wait := l.Wait("a", now); wait > 0 {
			t.Errorf("preview %d has to wait for %v", i+1, wait)
		}
	}
	for range 5 { // to ask in vain does not make it worse
		if wait := l.Wait("a", now); wait != 500*time.Millisecond {
			t.Errorf("one too many has to wait for %v", wait)
		}
	}
	if wait := l.Wait("b", now); wait > 0 {
		t.Errorf("another user has to wait for %v", wait)
	}
	if wait := l.Wait("a", now.Add(500*time.Millisecond)); wait > 0 {
		t.Errorf("half a second later there is a wait of %v", wait)
	}
	for i := range 10 * intake.MaxPreviewLimits {
		l.Wait(fmt.Sprint("user ", i), now)
	}
	if n := len(l.ByUser); n > intake.MaxPreviewLimits {
		t.Errorf("%d users are known", n)
	}
	l.Wait("a", now.Add(time.Hour))
	if n := len(l.ByUser); n != 1 {
		t.Errorf("after an hour %d users are known", n)
	}
}
