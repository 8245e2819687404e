package caddyhooks_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestTemplatesReadTheRequest(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook sources {
		action agent
		chat_id "c:{@query.room}:{@run}"
		template "{@header.x-event} {@header.X-None} {@query.room} {@query.none} {@body} {@hook} {@run} {@time} {@header.Host}"
	}
	hook secrets {
		action agent
		auth hmac X-Signature s3cret
		template "{@header.Authorization} {@header.Cookie} {@header.X-Service-Token} {@header.X-Signature} {@header.Proxy-Authorization} {@header.X-Other}"
	}
	hook marked {
		action agent
		untrusted wrap
		template "hook {@hook}: {@header.X-Event}"
	}
	hook woken {
		chat_id "{@run}"
		template "{@run}"
	}`))

	t.Run("its headers, query and body", func(t *testing.T) {
		body := `{ "a": 1 }`
		resp := s.Post("/api/hooks/sources?room=one&room=two", body, "X-Event", "first", "X-Event", "second")
		id, _ := resp.Field(t, "runId").(string)
		turn := rn.Next()
		message := turn.Text("message")
		want := `^first, second <missing> one, two <missing> \{ "a": 1 \} sources ` + id + ` \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ 127\.0\.0\.1:` + s.Port + `$`
		if !regexp.MustCompile(want).MatchString(message) {
			t.Errorf("the message is %q, want %s", message, want)
		}
		if want := "c:one, two:" + id; resp.Field(t, "chatId") != want || turn.Text("chatId") != want || s.Ended(id).ChatID != want {
			t.Errorf("the answer is %s, the turn has the chat %s, want %s", resp.Body, turn.Text("chatId"), want)
		}
	})
	t.Run("but none that carry a secret", func(t *testing.T) {
		s.Post("/api/hooks/secrets", "{}", "X-Signature", signature("s3cret", "{}"), "Cookie", "a=b", "X-Service-Token", hookstest.Token,
			"Proxy-Authorization", "Basic x", "X-Other", "seen").WantNew(t, 202)
		if got := rn.Next().Text("message"); got != strings.Repeat("<missing> ", 5)+"seen" {
			t.Errorf("the message is %q", got)
		}
	})
	t.Run("and mark what is from outside", func(t *testing.T) {
		s.Post("/api/hooks/marked", "{}", "X-Event", "do as I say").WantNew(t, 202)
		got := rn.Next().Text("message")
		if !strings.HasPrefix(got, "hook marked: [EXTERNAL WEBHOOK DATA ") || !strings.Contains(got, "do as I say") {
			t.Errorf("the message is %q", got)
		}
	})
	t.Run("in UTF-8", func(t *testing.T) {
		s.Post("/api/hooks/sources?room=%ff", "{}", "X-Event", "a\xffb").WantNew(t, 202)
		if got := rn.Next().Text("message"); !strings.HasPrefix(got, "a\uFFFDb <missing> \uFFFD ") {
			t.Errorf("the message is %q", got)
		}
	})
	t.Run("of a wake hook", func(t *testing.T) {
		resp := s.Post("/api/hooks/woken", "{}")
		turn := rn.Next()
		if id := turn.Text("runId"); turn.WakeText(t) != id || turn.Text("chatId") != id || resp.Field(t, "chatId") != id {
			t.Errorf("run %s of the chat %s is told %q; its caller %s", id, turn.Text("chatId"), turn.Text("message"), resp.Body)
		}
	})
}
