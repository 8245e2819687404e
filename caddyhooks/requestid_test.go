package caddyhooks_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The id that a sender gives its request is kept with the run, wherever it is, and leads to it.
func TestRunsAreFoundByTheIDOfTheirSender(t *testing.T) {
	for _, store := range []string{"", "store memory"} {
		s := hookstest.StartSite(t, `hooks {
			enabled
			token `+hookstest.Token+`
			runner echo
			`+store+`
			hook github {
				action agent
				auth github s3cret
				template "{a}"
				skip "$.a == 'ignored'"
			}
			hook named {
				action agent
				auth github s3cret
				idempotency_header X-Own
			}
			hook telegram {
				action agent
				auth telegram s3cret
				template "{a}"
			}
		}`)
		github := func(hook, body string, headers ...string) hookstest.Response {
			return s.Request("POST", "/api/hooks/"+hook, body, append(headers, "X-Hub-Signature-256", "sha256="+hexSum("s3cret", body))...)
		}
		telegram := func(body string) hookstest.Response {
			return s.Request("POST", "/api/hooks/telegram", body, "X-Telegram-Bot-Api-Secret-Token", "s3cret")
		}
		const guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
		for _, c := range []struct {
			request string // as it is kept
			of      hookstest.Response
			as      string // what is looked for, if it is not that
		}{
			{guid, github("github", `{"a":"1"}`, "X-GitHub-Delivery", guid), ""},
			{"own-1", github("named", `{"a":"1"}`, "X-GitHub-Delivery", guid+"1", "X-Own", "own-1"), ""},
			{"own-2", github("named", `{"a":"2"}`, "X-GitHub-Delivery", "own-2"), ""},
			{"4711", telegram(`{"update_id":4711,"a":"1"}`), ""},
			{`odd\n\u202eid`, telegram(`{"update_id":"odd\n\u202eid","a":"1"}`), "odd\n\u202eid"},
			{strings.Repeat("x", 253) + "…", telegram(`{"update_id":"` + strings.Repeat("x", 300) + `","a":"1"}`), strings.Repeat("x", 300)},
			{"order 1", s.Post("/api/hooks/agent", `{"message":"a"}`, "Idempotency-Key", `"order 1"`), ""},
			{"msg_2b", s.Post("/api/hooks/agent", `{"message":"b"}`, "Webhook-Id", "msg_2b"), ""},
		} {
			id := acceptedRun(t, c.of)
			if got := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(t, "requestId"); got != c.request {
				t.Errorf("the request id is %v, want %s", got, c.request)
			}
			asked := c.as
			if asked == "" {
				asked = c.request
			}
			if ids, _ := s.Listed("?requestId=" + url.QueryEscape(asked)); !slices.Equal(ids, []string{id}) {
				t.Errorf("%.40q leads to %v, want %s", asked, ids, id)
			}
			if len(asked) > 256 {
				continue
			}
			if ids, _ := s.Listed("?q=" + url.QueryEscape(asked)); !slices.Equal(ids, []string{id}) {
				t.Errorf("a search for %.40q finds %v, want %s", asked, ids, id)
			}
		}
		if ids, _ := s.Listed("?requestId=72d3162e-cc78"); len(ids) > 0 {
			t.Errorf("a part of an id leads to %v", ids)
		}
		export := s.AdminRequest("GET", "/hooks/export?of=runs&q="+guid, "").Body
		if strings.Count(export, "\n") != 1 || !strings.Contains(export, `"requestId":"`+guid+`"`) {
			t.Errorf("the export is %s", export)
		}
		out, errs, err := command(t, "show", guid, "--address", s.Admin)
		wantExit(t, 0, errs, err)
		if !strings.Contains(out, "request id  "+guid) {
			t.Errorf("got %s", out)
		}
		for _, id := range []string{"msg_2b", "order 1"} {
			_, errs, err := command(t, "show", id, "--address", s.Admin)
			wantExit(t, 0, errs, err)
		}
		out, errs, err = command(t, "runs", "--search", guid, "--json", "--address", s.Admin)
		wantExit(t, 0, errs, err)
		if strings.Count(out, `"runId"`) != 1 {
			t.Errorf("got %s", out)
		}

		// A run that is run again is of the same request, and the newest is shown.
		first, _ := s.Listed("?q=" + guid)
		s.Ended(first[0])
		second := again(t, s, first[0], "")
		out, errs, err = command(t, "show", guid, "--address", s.Admin)
		wantExit(t, 0, errs, err, "This is the newest run of this request. Others are "+first[0])
		if !strings.Contains(out, second) {
			t.Errorf("got %s", out)
		}
		// What became no run is known by its id, too, unless nobody knows who sent it.
		github("github", `{"a":"ignored"}`, "X-GitHub-Delivery", "ignored-1")
		github("github", `{"a":"`, "X-GitHub-Delivery", "wrong-1")
		s.Request("POST", "/api/hooks/github", `{}`, "X-GitHub-Delivery", "unsigned-1")
		list := s.AdminRequest("GET", "/hooks/refused", "").Body
		for id, want := range map[string]bool{"ignored-1": true, "wrong-1": true, "unsigned-1": false} {
			if strings.Contains(list, `"requestId":"`+id+`"`) != want {
				t.Errorf("%s is listed: %t, want %t: %s", id, !want, want, list)
			}
		}
		s.Stop()
	}
}

func TestRunsAreFoundByTheirRunner(t *testing.T) {
	for _, store := range []string{"", "store memory"} {
		s := hookstest.StartSite(t, `hooks {
			enabled
			token `+hookstest.Token+`
			runner main echo
			runner other echo
			hook elsewhere {
				action agent
				runner other
				template "{a}"
			}
			`+store+`
		}`)
		usual := s.Accept(`{"message":"a"}`)
		other := acceptedRun(t, s.Post("/api/hooks/elsewhere", `{"a":"b"}`))
		s.Ended(usual)
		s.Ended(other)
		for query, want := range map[string][]string{"main": {usual}, "other": {other}, "main,other": {other, usual}, "none": nil} {
			if ids, _ := s.Listed("?runner=" + query); !slices.Equal(ids, want) {
				t.Errorf("runs of %s are %v, want %v", query, ids, want)
			}
		}
		out, errs, err := command(t, "export", "--of", "runs", "--format", "csv", "--runner", "other", "--address", s.Admin)
		wantExit(t, 0, errs, err)
		header, row, _ := strings.Cut(out, "\n")
		if !strings.HasSuffix(header, ",requestId,queuedMs,durationMs,usageRefused,inputTokens,outputTokens,cachedTokens,reasoningTokens,costUsd") || strings.Count(row, "\n") != 1 || !strings.Contains(row, other) {
			t.Errorf("got %s", out)
		}
		s.Stop()
	}
}
