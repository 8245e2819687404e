package channels

import (
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// FuzzAnswersOfServices has the channels judge what comes back. Whatever that is, only a 2xx answer is a delivery, pauses
// are bounded, and a failure has a reason that can be shown.
func FuzzAnswersOfServices(f *testing.F) {
	for _, answer := range []string{
		`{"ok":true}`, `{"ok":false,"error_code":429,"parameters":{"retry_after":5}}`, `{"ok":false,"error_code":400,"parameters":{"migrate_to_chat_id":-1001}}`,
		`{"ok":false,"error":"channel_not_found"}`, `{"ok":false,"error":"ratelimited"}`, `{"id":"1"}`, `{"retry_after":0.65,"global":true,"code":0}`,
		`{"event_id":"$1"}`, `{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":2000}`, `{"errcode":"M_FORBIDDEN"}`, `{"retry_after":1e308}`,
		`{"message":"You have exceeded a secondary rate limit."}`, `{"message":"Resource not accessible by integration"}`,
		`{"errors":[{"message":"Entity not found","extensions":{"type":"invalid input","code":"RATELIMITED"}}]}`, `{"data":{"commentCreate":{"success":true}}}`,
		`{"error":"insufficient_scope"}`, `{"id":"api.post.create_post.root_id.app_error"}`, `{"error":{"code":"WorkflowNotFound"}}`, `[]`, `null`, `{`,
	} {
		for _, status := range []int{200, 400, 429, 500} {
			f.Add(status, answer)
		}
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 100 || status > 999 {
			return
		}
		var answer map[string]any
		if value, err := strictjson.Parse([]byte(body)); err == nil {
			answer, _ = value.(map[string]any)
		}
		for name, judge := range map[string]func(*outbound.Outcome, map[string]any){
			"telegram": judgeTelegram, "slack": judgeSlack, "discord": judgeDiscord,
			"github": func(o *outbound.Outcome, answer map[string]any) {
				if o.Delivered {
					return // another function reads those
				}
				judgeGitHub(o, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {body}}, answer)
			},
			"gitlab": func(o *outbound.Outcome, answer map[string]any) {
				if !o.Delivered {
					judgeGitLab(o, http.Header{"Ratelimit-Reset": {body}}, answer)
				}
			},
			"mattermost": func(o *outbound.Outcome, answer map[string]any) {
				if !o.Delivered {
					judgeMattermost(o, http.Header{"X-Ratelimit-Reset": {body}}, answer)
				}
			},
			"linear": func(o *outbound.Outcome, answer map[string]any) {
				judgeLinear(o, http.Header{"X-Ratelimit-Requests-Reset": {body}}, answer)
			},
			"teams":  judgeTeams,
			"matrix": func(o *outbound.Outcome, answer map[string]any) { judgeMatrix(o, answer, "there is no such room") },
		} {
			good := status >= 200 && status <= 299
			o := outbound.Outcome{Status: status, Delivered: good, Final: status >= 300 && status < 500}
			judge(&o, answer)
			switch {
			case o.Delivered && (!good || o.Final):
				t.Errorf("%s: %d %q is a delivery: %+v", name, status, body, o)
			case !o.Delivered && (o.Reason == "" || !utf8.ValidString(o.Reason) || len(o.Reason) > 500 || strings.ContainsAny(o.Reason, "\r\n")):
				t.Errorf("%s: %d %q has the reason %q", name, status, body, o.Reason)
			case o.RetryAfter < 0 || o.RetryAfter > 24*time.Hour:
				t.Errorf("%s: %d %q asks for a pause of %s", name, status, body, o.RetryAfter)
			}
		}
	})
}

// FuzzMask looks for a secret in what is left of an answer, also as it would be in a URL.
func FuzzMask(f *testing.F) {
	f.Add("before ", "a-secret", " after")
	f.Add("%61-", "a-secret", `a-secret\u0061-secret`)
	f.Add("&#97;-secre", "a-secret", "")
	f.Fuzz(func(t *testing.T, before, secret, after string) {
		if len(secret) < 4 || strings.ContainsRune(secret, '•') || strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return // no token looks like that
		}
		if masked := mask([]byte(before+secret+after), secret); bytes.Contains(masked, []byte(secret)) {
			t.Errorf("%q is in %q", secret, masked)
		}
	})
}

// FuzzMailServer talks to a server that says anything. An attempt ends, and keeps no more than it should of what was said.
func FuzzMailServer(f *testing.F) {
	plain := base64.StdEncoding.EncodeToString([]byte("\x00agent\x00a-password"))
	for _, words := range []string{
		"220 hi\r\n250 hi\r\n250 ok\r\n250 ok\r\n354 go\r\n250 taken\r\n221 bye\r\n", "220 hi\r\n250-hi\r\n250-SIZE 1\r\n250 AUTH PLAIN LOGIN CRAM-MD5\r\n235 in\r\n250 ok\r\n250 ok\r\n354 go\r\n250 ok\r\n",
		"220 hi\r\n250 AUTH LOGIN\r\n334 VXNlcm5hbWU6\r\n334 UGFzc3dvcmQ6\r\n535 " + plain + "\r\n", "220 hi\r\n250 AUTH CRAM-MD5\r\n334 !\r\n", "421 busy\r\n", "554 no\r\n", "220", "220-\r\n220-\r\n", "999 \x00\xff\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
		"220 hi\r\n250 STARTTLS\r\n220 go\r\n\x16\x03\x01",
	} {
		f.Add(words, true)
		f.Add(words, false)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	words := make(chan string)
	go func() {
		for said := range words {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, said)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	f.Fuzz(func(t *testing.T, said string, secure bool) {
		e := Email{Server: l.Addr().String(), From: "agent@example.com", TLS: tlsOff, Username: "agent", Password: "a-password", Timeout: caddy.Duration(10 * time.Second)}
		if secure {
			e.TLS = startTLS
		}
		if err := e.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		words <- said
		d := exampleDelivery()
		d.To = "somebody@example.com"
		err := e.Send(t.Context(), d)
		if err != nil && (!utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "a-password")) {
			t.Errorf("the reason is %q", err)
		}
		if len(d.LastAnswer) > 4<<10 || strings.Contains(d.LastAnswer, "a-password") || strings.Contains(d.LastAnswer, plain) {
			t.Errorf("kept is %q", d.LastAnswer)
		}
	})
}

// FuzzChats has the channels judge names of chats. One that passes stays within the place that it becomes in a path, and is allowed by
// an entry of allow_to only if it begins as the entry does.
func FuzzChats(f *testing.F) {
	for _, to := range []string{"acme/widgets#7", "acme/tools/widgets!8", "ENG-123", "acme/../x#1", "a/b#1/../2", "acme/x%2F..#1", "acme/x\n#1", "ａcme/x#1",
		"2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9", "4xp9fdt77pncbef59f4k1qe83o/4xp9fdt77pncbef59f4k1qe83o", "acme#/x#1", "acme/x#1#2", "acme/x!1#2"} {
		f.Add(to)
	}
	type chatChannel interface {
		ValidTo(to string) error
		AllowsTo(to string) bool
		Provision(caddy.Context) error
	}
	allowing := func(entry string) API {
		return API{URL: "http://x", Token: "x", Recipients: Recipients{AllowTo: []string{entry}}}
	}
	channels := map[string]chatChannel{ // by what every allowed chat begins with
		"acme/": &GitHub{API: allowing("acme/*")}, "acme/tools": &GitLab{API: allowing("acme/tools*")}, "ENG-": &Linear{API: allowing("ENG-*")},
		"4xp9fdt77pncbef59f4k1qe83o": &Mattermost{API: allowing("4xp9fdt77pncbef59f4k1qe83o")},
	}
	for _, c := range channels {
		if err := c.Provision(caddy.Context{}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, to string) {
		for start, c := range channels {
			if c.ValidTo(to) != nil {
				continue
			}
			if c.AllowsTo(to) != strings.HasPrefix(to, start) {
				t.Errorf("%T: %q is allowed: %v", c, to, c.AllowsTo(to))
			}
			if strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`\%?&`, r) }) {
				t.Errorf("%T takes %q", c, to)
			}
			for name := range strings.SplitSeq(to, "/") {
				if name == "" || name == "." || name == ".." {
					t.Errorf("%T takes %q", c, to)
				}
			}
		}
	})
}
