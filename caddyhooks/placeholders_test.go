package caddyhooks_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestPlaceholdersTellLogsAndHeadersAboutAWebhook(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if strings.Contains(turn.Text("message"), "fail") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		hookstest.ReplyText("done")(w, nil, turn)
	})
	file := filepath.Join(t.TempDir(), "access.log")
	t.Setenv("NOT_FOR_CALLERS", "expanded")
	s := hookstest.StartSite(t, `
	log {
		output file `+file+`
	}
	log_append hook {http.hooks.name}
	log_append run {http.hooks.run_id}
	log_append chat {http.hooks.chat_id}
	log_append became {http.hooks.status}
	log_append site "a constant"
	@none path /nowhere
	log_append @none never "wrong"
	header >X-Hook "{http.hooks.name}"
	header >X-Run "{http.hooks.run_id}"
	header >X-Chat "{http.hooks.chat_id}"
	header >X-Became "{http.hooks.status}"
	respond /elsewhere elsewhere
	hooks first {
		path /first
	}
	`+hookstest.Hooks(rn, `
	hook only {
		only header X-Wanted
	}
	hook slack {
		auth slack s3cret
	}`))
	challenge := `{"type":"url_verification","challenge":"3eZbrw1a"}`
	id := s.Accept(`{"message":"a","chatId":"first"}`)
	lines := 1
	for _, c := range []struct {
		what, method, path, body string
		headers                  []string
		hook, chat, became       string
		logged                   string // if it is another status by then
		isRun                    bool
	}{
		{"a run in the background", "POST", "agent", `{"message":"a","chatId":"c1"}`, hookstest.Key("k"), "agent", "c1", "accepted", "", true},
		{"the same again", "POST", "agent", `{"message":"a","chatId":"c1"}`, hookstest.Key("k"), "agent", "c1", "replayed", "", true},
		{"the key of another body", "POST", "agent", `{"message":"b","chatId":"c1"}`, hookstest.Key("k"), "agent", "", "refused", "", false},
		{"wake", "POST", "wake", `{"text":"a","chatId":"{env.NOT_FOR_CALLERS}"}`, nil, "wake", "{env.NOT_FOR_CALLERS}", "accepted", "", true},
		{"a hostile chat", "POST", "wake", `{"text":"a","chatId":"x\"} ü%0aX-Evil: 1"}`, nil, "wake", `x"}%20%C3%BC%250aX-Evil:%201`, "accepted", "", true},
		{"a caller that waits", "POST", "agent", `{"message":"a","chatId":"c2","syncResponse":true}`, nil, "agent", "c2", "completed", "", true},
		{"a run that fails", "POST", "agent", `{"message":"fail","chatId":"c3","syncResponse":true}`, nil, "agent", "c3", "failed", "", true},
		{"a stream", "POST", "agent", `{"message":"a","chatId":"c4","syncResponse":true}`, []string{"Accept", "text/event-stream"}, "agent", "c4", "accepted", "completed", true},
		{"a stream of a run that fails", "POST", "agent", `{"message":"fail","chatId":"c5","syncResponse":true}`, []string{"Accept", "text/event-stream"}, "agent", "c5", "accepted", "failed", true},
		{"no message", "POST", "agent", `{}`, nil, "agent", "", "refused", "", false},
		{"no such hook", "POST", "made-up", `{}`, nil, "", "", "refused", "", false},
		{"a wrong method", "GET", "agent", "", nil, "agent", "", "refused", "", false},
		{"a condition", "POST", "only", `{}`, nil, "only", "", "ignored", "", false},
		{"a challenge", "POST", "slack", challenge, slackHeaders("s3cret", challenge, time.Now()), "slack", "", "challenge", "", false},
		{"the run API", "GET", "runs/" + id, "", nil, "", "", "run_api", "", false},
		{"no such run", "GET", "runs/none", "", nil, "", "", "refused", "", false},
		{"another page", "GET", "../../elsewhere", "", nil, "", "", "", "", false},
	} {
		path := "/api/hooks/" + c.path
		if strings.HasPrefix(c.path, "../..") {
			path = strings.TrimPrefix(c.path, "../..")
		}
		headers := c.headers
		if c.path != "slack" {
			headers = append(headers, "Authorization", "Bearer "+hookstest.Token)
		}
		resp := s.Request(c.method, path, c.body, headers...)
		h := resp.Header
		run := h.Get("X-Run")
		if h.Get("X-Hook") != c.hook || h.Get("X-Chat") != c.chat || h.Get("X-Became") != c.became || (run != "") != c.isRun || h.Get("X-Evil") != "" {
			t.Errorf("%s: the headers are %v", c.what, h)
		}
		lines++
		log := strings.Split(strings.TrimSpace(waitForLines(t, file, lines)), "\n")
		var entry struct{ Hook, Run, Chat, Became, Site, Never string }
		if err := json.Unmarshal([]byte(log[lines-1]), &entry); err != nil {
			t.Fatal(err)
		}
		want := c.became
		if c.logged != "" {
			want = c.logged
		}
		if entry.Hook != c.hook || entry.Run != run || entry.Chat != c.chat || entry.Became != want || entry.Site != "a constant" || entry.Never != "" {
			t.Errorf("%s: the log has %+v", c.what, entry)
		}
		if c.isRun && resp.Header.Get("X-Service-Run-Id") != "" && resp.Header.Get("X-Service-Run-Id") != run {
			t.Errorf("%s: the run is %s, and the header has %s", c.what, resp.Header.Get("X-Service-Run-Id"), run)
		}
	}
}

// While webhooks are off no name of a hook is told.
func TestPlaceholdersTellNothingWhileWebhooksAreOff(t *testing.T) {
	s := hookstest.StartSite(t, "header >X-Told \"{http.hooks.name}|{http.hooks.run_id}|{http.hooks.chat_id}|{http.hooks.status}\"\nhooks {\n hook there\n}")
	if told := s.Post("/api/hooks/there", "{}").Header.Get("X-Told"); told != "|||refused" {
		t.Errorf("told %q", told)
	}
}
