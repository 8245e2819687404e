package caddyhooks_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestFormsBecomeObjects(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook form {
		action agent
		body form
		template "{From}: {Body}, {tag[1]} {none}"
	}
	hook plain {
		action agent
		body form
	}
	hook auto {
		action agent
		body auto
		only $.text
		template "{text}"
	}
	hook json {
		action agent
	}`))
	const formType = "application/x-www-form-urlencoded"
	send := func(hook, contentType, body string) hookstest.Response {
		return s.Post("/api/hooks/"+hook, body, "Content-Type", contentType)
	}
	for _, c := range []struct{ name, hook, contentType, body, message string }{
		{"fields", "form", formType, "From=%2B1&Body=hello+you%21&tag=a&tag=b", "+1: hello you!, b <missing>"},
		{"whatever the content type is", "form", "text/plain", "From=1", "1: <missing>, <missing> <missing>"},
		{"a payload", "form", formType, "payload=" + url.QueryEscape(`{"From":"GitHub","Body":[1]}`), "GitHub: [1], <missing> <missing>"},
		{"without a template", "plain", formType, "b=2&a=1&b=3", `{"a":"1","b":["2","3"]}`},
		{"a payload without a template", "plain", formType, "payload=" + url.QueryEscape(`{ "a": 1.0 }`), `{ "a": 1.0 }`},
		{"a field that is called payload", "plain", formType, "payload=" + url.QueryEscape(`{"a":`), `{"payload":"{\"a\":"}`},
		{"by the content type", "auto", formType + "; charset=utf-8", "text=form", "form"},
		{"JSON by the content type", "auto", "application/json", `{"text":"json"}`, "json"},
		{"JSON without a content type", "auto", "", `{"text":"json"}`, "json"},
		{"JSON that is not called so", "json", formType, `{"text":"json"}`, `{"text":"json"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if resp := send(c.hook, c.contentType, c.body); resp.Status != 202 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			if got := rn.Next().Text("message"); got != c.message {
				t.Errorf("the message is %q", got)
			}
		})
	}
	for _, c := range []struct {
		name, hook, contentType, body string
		words                         []string
	}{
		{"a form for a hook that takes none", "json", formType, "a=1", []string{"body form", "application/json"}},
		{"JSON for a hook that takes forms", "form", "application/json", `{"a":1}`, []string{"looks like JSON"}},
		{"a form that is not called so", "auto", "application/json", "a=1", []string{"looks like a form"}},
		{"broken escapes", "form", formType, "a=%zz", []string{"form"}},
		{"nothing", "form", formType, "", []string{"no fields"}},
		{"too many fields", "form", formType, strings.Repeat("a=1&", 1001), []string{"1000 fields"}},
	} {
		t.Run(c.name, func(t *testing.T) { send(c.hook, c.contentType, c.body).WantError(t, 400, c.words...) })
	}
	if resp := send("wake", formType, "a=1"); resp.Status != 400 || strings.Contains(resp.Body, "body form") {
		t.Errorf("wake answers %d %s", resp.Status, resp.Body)
	}
	wantIgnored(t, send("auto", formType, "other=1"))
	rn.WantNoTurn(s)
}
