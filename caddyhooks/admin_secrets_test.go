package caddyhooks_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Every endpoint is asked, also those that will be added: each has to be answered 200 for one of the questions.
func TestNoAnswerOfTheAdminAPIHoldsASecret(t *testing.T) {
	const (
		runnerSecret  = "runner-secret-0123456789"
		channelSecret = "channel-secret-0123456789"
		signingSecret = "whsec_c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ=="
		querySecret   = "query-secret-0123456789"
		pathSecret    = "path-secret-0123456789"
		headerSecret  = "header-secret-0123456789"
		replacedQuery = "replaced-query-0123456789"
	)
	secrets := []string{runnerSecret, channelSecret, signingSecret, signingSecret[6:], querySecret, pathSecret, headerSecret, replacedQuery}
	rc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, "cannot POST "+r.URL.RequestURI())
	}))
	t.Cleanup(rc.Close)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "ok")
	})
	s := hookstest.StartSite(t, `hooks {
		store memory
		runner http `+rn.URL+` {
			token `+runnerSecret+`
		}
		channel team slack `+channelSecret+` {
			url `+rc.URL+`
		}
		callbacks {
			allow 127.0.0.0/8
			ports *
			secret `+signingSecret+`
		}
		hook pinned {
			auth hmac X-Signature `+loudSecret+`
		}
	}`)
	hookstest.AskBeforeStart(func(run *engine.Run) *engine.Question {
		if run.Message != "ask" {
			return nil
		}
		return &engine.Question{Text: "May it?", Choices: []string{engine.Yes, engine.No}}
	})
	s.PatchSettings(`{"enabled":true,"keepRefusedSeconds":3600,"token":["an old one","` + loudToken + `"]}`)
	s.PutMapping("live", `{"action":"agent","authMode":"hmac","hmacHeader":"X-Signature","hmacSecret":"`+loudSecret+`","callbackUrl":"`+rc.URL+`/seen?token=`+querySecret+`"}`)
	s.PutMapping("live", `{"action":"agent","authMode":"hmac","hmacHeader":"X-Signature","hmacSecret":"`+loudSecret+`","callbackUrl":"`+rc.URL+`/seen?token=`+replacedQuery+`"}`)
	s.PutMapping("live", `{"action":"agent","authMode":"hmac","hmacHeader":"X-Signature","hmacSecret":"••••","callbackUrl":"`+rc.URL+`/seen?••••","deliver":true,"channel":"team","to":"C1"}`)

	signed := func(body string) []string {
		return []string{"X-Signature", signature(loudSecret, body), "X-Other", headerSecret, "Idempotency-Key", "one"}
	}
	run, _ := s.Request("POST", "/api/hooks/live", `{"a":1}`, signed(`{"a":1}`)...).Field(t, "runId").(string)
	called, _ := s.Request("POST", "/api/hooks/agent", `{"message":"fail","chatId":"c","callbackUrl":"`+rc.URL+`/`+pathSecret+`?token=`+querySecret+`"}`,
		"X-Service-Token", loudToken, "X-Other", headerSecret, "Idempotency-Key", "two").Field(t, "runId").(string)
	s.Request("POST", "/api/hooks/live", `{"a":1}`, "X-Signature", signature(loudSecret, "other")).WantError(t, 401)
	s.Request("POST", "/api/hooks/agent", `{"message":"x"}`, "X-Service-Token", loudToken+"x").WantError(t, 401)
	s.Request("POST", "/api/hooks/agent", `{"message":"x","callbackUrl":"http://10.0.0.1/`+pathSecret+`?token=`+querySecret+`"}`, "X-Service-Token", loudToken).WantError(t, 400)
	hookstest.Eventually(t, "deliveries are given up", func() bool { return len(s.Deliveries("status=dead")) == 3 })

	bulk, _ := s.Bulk("do=drop&status=dead&host=other.example", "").Field(t, "id").(string)
	var kept struct{ Requests []struct{ ID string } }
	hookstest.Eventually(t, "refused requests are kept", func() bool {
		body := s.AdminRequest("GET", "/hooks/refused/requests", "").Body
		return json.Unmarshal([]byte(body), &kept) == nil && len(kept.Requests) > 0
	})
	asked, _ := s.Request("POST", "/api/hooks/agent", `{"message":"ask"}`, "X-Service-Token", loudToken).Field(t, "runId").(string)
	hookstest.Eventually(t, "a run waits", func() bool { return s.AdminRequest("GET", "/hooks/runs/"+asked, "").Field(t, "status") == "waiting" })
	ids := []string{"none", run, called, bulk, engine.QuestionID(asked, 0)}
	for _, request := range kept.Requests {
		ids = append(ids, request.ID)
	}
	for _, d := range s.Deliveries("") {
		ids = append(ids, d.ID)
	}
	// Values of parameters, by their name.
	values := map[string][]string{
		"hook": {"live", "pinned", "agent"}, "chatId": {"c"}, "q": {"fail", "ok", called}, "status": {"failed", "dead"}, "of": {"runs", "deliveries", "chat&chatId=c"},
		"range": {"1h"}, "topics": {"runs,deliveries,overview,settings"}, "limit": {"5"}, "since": {"1h"}, "channel": {"team"},
	}
	for _, e := range caddyhooks.AdminEndpoints() {
		method, path, _ := strings.Cut(e.Pattern, " ")
		if method != "GET" || path == "/backup" { // which has all of them; see TestABackupIsNotForDashboards
			continue
		}
		paths := []string{path}
		if strings.Contains(path, "{id}") {
			paths = nil
			for _, id := range ids {
				paths = append(paths, strings.ReplaceAll(path, "{id}", id))
			}
		}
		if strings.Contains(path, "{name}") {
			paths = []string{strings.ReplaceAll(path, "{name}", "live"), strings.ReplaceAll(path, "{name}", "pinned")}
		}
		queries := []string{""}
		for _, name := range e.Parameters {
			for _, value := range values[name] {
				queries = append(queries, "?"+name+"="+value)
			}
		}
		answered := false
		for _, path := range paths {
			for _, query := range queries {
				for _, accept := range []string{"*/*", "text/csv"} {
					status, text := wholeAnswer(t, s.Admin+"/hooks"+path+query, accept)
					answered = answered || status == 200
					hidden := secrets
					if strings.HasPrefix(path, "/deliveries/") { // where alone the path of a callback is shown
						hidden = slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return secret == pathSecret })
					}
					wantNoSecrets(t, "GET "+path+query, text, hidden...)
				}
			}
		}
		if !answered {
			t.Errorf("%s is never answered 200: add values for its parameters here", e.Pattern)
		}
	}
}

// wholeAnswer returns the headers and the body of an answer. Of a stream it reads the first event.
func wholeAnswer(t *testing.T, target, accept string) (status int, text string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	req, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	text = fmt.Sprint(resp.Header)
	for {
		line, err := body.ReadString('\n')
		text += line
		if err != nil || line == "\n" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			break
		}
	}
	if plain, err := url.QueryUnescape(text); err == nil {
		text += plain
	}
	return resp.StatusCode, text
}
