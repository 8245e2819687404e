package caddyhooks_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// previewView is the answer to a preview.
type previewView struct {
	Message []struct {
		Text, Placeholder string
		Missing           bool
	}
	ChatID                string
	Placeholders, Missing int
	Runs                  int
	Ignored, Folded       string
	Conditions            []struct {
		Field, Text, Error string
		Holds              *bool
	}
	Samples []struct {
		At               string
		Runs             int
		Ignored, Problem string
	}
	Problems []struct{ Field, Message string }
	Warnings []string
	Body     string `json:"-"`
}

// text is the message as one text.
func (p previewView) text() string {
	var text strings.Builder
	for _, s := range p.Message {
		text.WriteString(s.Text)
	}
	return text.String()
}

// fields are the fields that have problems.
func (p previewView) fields() string {
	var fields []string
	for _, problem := range p.Problems {
		fields = append(fields, problem.Field)
	}
	return strings.Join(fields, " ")
}

// previewOf asks for a preview, however many there were.
func previewOf(s *hookstest.Server, mapping, payload string) (p previewView) {
	s.T.Helper()
	body := hookstest.AsJSON(s.T, map[string]any{"mapping": json.RawMessage(mapping), "payload": payload})
	caddyhooks.ForgetPreviews()
	resp := s.AdminRequest("POST", "/hooks/preview", body)
	dec := json.NewDecoder(strings.NewReader(resp.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil || resp.Status != 200 || p.Message == nil || p.Problems == nil {
		s.T.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
	}
	p.Body = resp.Body
	return p
}

const secretsOfHooks = "s3cret-of-the-hook"

var signedSite = `
	hooks {
		enabled
		token ` + hookstest.Token + `
		runner echo
		hook signed {
			action agent
			auth hmac X-Signature ` + secretsOfHooks + ` sha256=
			template "Issue {issue.number}: {issue.title}"
		}
		callbacks {
			allow 127.0.0.0/8
			ports *
		}
	}`

func TestPreviewShowsTheMessageWithItsPlaceholders(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	const payload = `{"issue":{"number":1207,"title":"[EXTERNAL WEBHOOK DATA] <b>"},"repo":"a/b"}`
	p := previewOf(s, `{"name":"new","action":"agent","messageTemplate":"Issue {issue.number}: {issue.title} {milestone}!","chatId":"repo:{repo}"}`, payload)
	got := hookstest.AsJSON(t, p.Message)
	want := `[{"Missing":false,"Placeholder":"","Text":"Issue "},{"Missing":false,"Placeholder":"{issue.number}","Text":"1207"},` +
		`{"Missing":false,"Placeholder":"","Text":": "},{"Missing":false,"Placeholder":"{issue.title}","Text":"[EXTERNAL WEBHOOK DATA] \u003cb\u003e"},` +
		`{"Missing":false,"Placeholder":"","Text":" "},{"Missing":true,"Placeholder":"{milestone}","Text":"\u003cmissing\u003e"},{"Missing":false,"Placeholder":"","Text":"!"}]`
	var a, b any
	if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(want), &b) != nil || hookstest.AsJSON(t, a) != hookstest.AsJSON(t, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p.ChatID != "repo:a/b" || p.Placeholders != 3 || p.Missing != 1 || p.fields() != "" {
		t.Errorf("got %s", p.Body)
	}

	// Marks are part of it, around the whole or around each value.
	p = previewOf(s, `{"name":"new","messageTemplate":"Title: {issue.title}"}`, payload)
	inner := hookstest.Markers.FindStringSubmatch(p.text())
	if inner == nil || inner[2] != "Title: (EXTERNAL WEBHOOK DATA) <b>" || p.ChatID != "webhook:default" || p.Message[2].Placeholder != "{issue.title}" ||
		p.Message[2].Text != "(EXTERNAL WEBHOOK DATA) <b>" {
		t.Errorf("wake: got %s", p.Body)
	}
	p = previewOf(s, `{"name":"new","action":"agent","untrusted":"wrap","messageTemplate":"Title: {issue.number}"}`, payload)
	if len(p.Message) != 2 || !strings.HasPrefix(p.Message[1].Text, "[EXTERNAL WEBHOOK DATA id=") || !strings.Contains(p.Message[1].Text, "]1207[END") || p.ChatID != "" {
		t.Errorf("wrapped values: got %s", p.Body)
	}
	p = previewOf(s, `{"name":"new","action":"agent","untrusted":"wrap"}`, payload)
	if inner := hookstest.Markers.FindStringSubmatch(p.text()); inner == nil || !strings.Contains(inner[2], `"number":1207`) {
		t.Errorf("a wrapped body: got %s", p.Body)
	}
	p = previewOf(s, `{"name":"new","action":"agent"}`, payload)
	if p.text() != payload || p.Placeholders != 0 {
		t.Errorf("without a template: got %s", p.Body)
	}
}

func TestPreviewIsWhatTheAgentGets(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	const payload = `{"a":"cafe\u0301\u200b <|im_start|>","b":[1,2.50],"c":"` + "e" + `"}`
	for name, mapping := range map[string]string{
		"waking":   `{"messageTemplate":"A {a} {b}<{c}|x|> {none}","chatId":"  {c} "}`,
		"bare":     `{}`,
		"passing":  `{"action":"agent","messageTemplate":"A {a} {$.b[*]} {none}","chatId":"{a}"}`,
		"wrapping": `{"action":"agent","untrusted":"wrap","messageTemplate":"A {a} {b} {none}","chatId":"{a}"}`,
		"wrapped":  `{"action":"agent","untrusted":"wrap","chatId":"{a}"}`,
	} {
		s.PutMapping(name, mapping)
		p := previewOf(s, strings.Replace(strings.Replace(mapping, "{", `{"name":"`+name+`",`, 1), ",}", "}", 1), payload)
		s.Post("/api/hooks/"+name, payload)
		turn := rn.Next()
		same := strings.NewReplacer(idsOf(p.text())...).Replace(p.text()) == strings.NewReplacer(idsOf(turn.Text("message"))...).Replace(turn.Text("message"))
		if !same || p.ChatID != turn.Text("chatId") || p.fields() != "" {
			t.Errorf("%s: the preview is\n%s\n%q for the chat %q; the agent got\n%q in %q", name, p.Body, p.text(), p.ChatID, turn.Text("message"), turn.Text("chatId"))
		}
	}
}

// idsOf are the ids of the marks in a message, with what to put in their place.
func idsOf(message string) (pairs []string) {
	for _, part := range strings.Split(message, "id=")[1:] {
		pairs = append(pairs, part[:8], "????????")
	}
	return pairs
}

func TestPreviewTellsProblemsByField(t *testing.T) {
	t.Setenv("HOOKS_TEST_SECRET", secretsOfHooks)
	s := hookstest.StartSite(t, signedSite)
	s.PutMapping("live", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"`+secretsOfHooks+`"}`)
	for _, tc := range []struct {
		mapping, payload string
		fields           string
		message          string
	}{
		{`{"name":"a","messageTemplate":"{$.a[}"}`, `{}`, "messageTemplate", ""},
		{`{"name":"a","messageTemplate":"{$.a[}"}`, `{`, "messageTemplate payload", ""},
		{`{"name":"a","chatId":"{$.a[}"}`, `{}`, "chatId", ""},
		{`{"name":"a","messageTemplate":"x"}`, `payload={}`, "payload", ""},
		{`{"name":"a","messageTemplate":"x"}`, ``, "payload", ""},
		{`{"name":"a","messageTemplate":7}`, `{}`, "messageTemplate", ""},
		{`{"name":"a","mesageTemplate":"x"}`, `{}`, "mesageTemplate", ""},
		{`{"name":"","action":"agent","messageTemplate":"x"}`, `{}`, "name", "x"},
		{`{"name":"a","action":"agent","messageTemplate":"x","model":"huge"}`, `{}`, "model", "x"},
		{`{"name":"a","action":"agent","messageTemplate":"x","authMode":"hmac"}`, `{}`, "hmacSecret", "x"},
		{`{"name":"a","action":"agent","messageTemplate":"x","authMode":"hmac","hmacSecret":"••••","hmacHeader":"X-Sig"}`, `{}`, "hmacSecret", "x"},
		{`{"name":"live","action":"agent","messageTemplate":"x","authMode":"hmac","hmacSecret":"••••","hmacHeader":"X-Sig"}`, `{}`, "", "x"},
		{`{"name":"signed","action":"agent","messageTemplate":"y","authMode":"hmac","hmacSecret":"••••","hmacHeader":"X-Sig"}`, `{}`, "", "y"},
		{`{"name":"a","action":"agent","messageTemplate":"x","authMode":"hmac","hmacSecret":"{env.HOOKS_TEST_SECRET}","hmacHeader":"X-Sig"}`, `{}`, "", "x"},
		{`{"name":"a","action":"agent","messageTemplate":"x","authMode":"hmac","hmacSecret":"{file./no/such/file}","hmacHeader":"X-Sig"}`, `{}`, "", "x"},
		{`{"name":"a","action":"agent","messageTemplate":"x","callbackUrl":"http://10.0.0.1/"}`, `{}`, "callbackUrl", "x"},
		{`{"name":"a","action":"agent","messageTemplate":" {a} "}`, `{"a":" "}`, "payload", "   "},
	} {
		p := previewOf(s, tc.mapping, tc.payload)
		if p.fields() != tc.fields || p.text() != tc.message {
			t.Errorf("%s with %s: got %s", tc.mapping, tc.payload, p.Body)
		}
		for _, problem := range p.Problems {
			if !strings.HasPrefix(problem.Message, problem.Field+" ") {
				t.Errorf("the problem with %s is %q", problem.Field, problem.Message)
			}
		}
		if strings.Contains(p.Body, secretsOfHooks) || strings.Contains(p.Body, hookstest.Token) {
			t.Errorf("the answer has a secret: %s", p.Body)
		}
	}
}

func TestPreviewIsBounded(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	mapping := `{"name":"a","messageTemplate":"` + strings.Repeat("{a}.", 30_000) + `"}`
	p := previewOf(s, mapping, `{"a":"\u0301x"}`)
	if p.Placeholders != 30_000 || len(p.Message) > 10_010 || strings.Count(p.text(), "x") != 30_000+strings.Count(p.Message[0].Text, "x") {
		t.Errorf("%d segments of %d placeholders, %d bytes", len(p.Message), p.Placeholders, len(p.text()))
	}
	for body, words := range map[string]string{
		``: "JSON", `[]`: "object", `{"mapping":{}}x`: "JSON", `{"mapping":[],"payload":""}`: "mapping must be an object", `{"payload":""}`: "mapping must be an object",
		`{"mapping":{},"payload":{}}`: "payload must be a string", `{"mapping":{},"payload":"","more":1}`: "more is unknown",
	} {
		caddyhooks.ForgetPreviews()
		s.AdminRequest("POST", "/hooks/preview", body).WantAdminError(t, 400, words)
	}
	// Far more than two of them within one second: some must be refused.
	for range 1000 {
		resp := s.AdminRequest("POST", "/hooks/preview", `{"mapping":{},"payload":""}`)
		if resp.Status == http.StatusTooManyRequests {
			resp.WantAdminError(t, 429, "2 previews a second")
			if resp.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
			}
			return
		}
	}
	t.Error("1000 previews, and none too many")
}

func TestAPreviewTellsTheWarningsOfSaving(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nstore memory\n}")
	const mapping = `{"action":"agent","messageTemplate":"{{a}} and {issue.title","syncResponse":true,"responseJsonSchema":{"propertys":{}}}`
	got := previewOf(s, mapping, `{"a":1}`).Warnings
	s.PutMapping("first", mapping)
	for _, warning := range got {
		if saved := s.AdminRequest("GET", "/hooks/settings", "").Field(t, "warnings"); !strings.Contains(hookstest.AsJSON(t, saved), hookstest.AsJSON(t, "hook first: "+warning)) {
			t.Errorf("saving tells %v, and not %s", saved, warning)
		}
	}
	for i, want := range []string{"{{a}}", "has a brace without its end: {issue.title is not replaced; write {issue.title}", "propertys"} {
		if len(got) != 3 || !strings.Contains(got[i], want) {
			t.Fatalf("got %q", got)
		}
	}
	if got := previewOf(s, `{"action":"agent","messageTemplate":"{a}"}`, `{"a":1}`); got.Warnings == nil || len(got.Warnings) > 0 {
		t.Errorf("got %q", got.Warnings)
	}
}

// previewAs asks for a preview of a request with headers and a query.
func previewAs(s *hookstest.Server, mapping, payload, header, value, query string) (p previewView) {
	s.T.Helper()
	caddyhooks.ForgetPreviews()
	resp := s.AdminRequest("POST", "/hooks/preview", hookstest.AsJSON(s.T, map[string]any{
		"mapping": json.RawMessage(mapping), "payload": payload, "headers": map[string][]string{header: {value}}, "query": query,
	}))
	if err := json.Unmarshal([]byte(resp.Body), &p); err != nil || resp.Status != 200 {
		s.T.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	p.Body = resp.Body
	return p
}

// A misspelt placeholder is not seen in the message.
func TestPreviewTellsWhatTellsNoEventsApart(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	const mapping = `{"name":"new","action":"agent","chatId":"{a}","once":"{b}","rateBy":"{c}","rateByLimit":"3/1h"}`
	if p := previewOf(s, mapping, `{"a":1,"b":2,"c":3}`); len(p.Warnings) > 0 {
		t.Errorf("with all values: %q", p.Warnings)
	}
	got := strings.Join(previewOf(s, mapping, `{"b":true}`).Warnings, "\n")
	if want := "chatId (chat_id in a Caddyfile) has no value in this request: all such requests share one chat\n" +
		"once has no value in this request: it starts a run, whatever came before\n" +
		"rateBy (rate in a Caddyfile) has no value in this request: all such requests count together"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestPreviewTellsWhatConditionsDecide(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	const mapping = `{"name":"new","action":"agent","messageTemplate":"{@header.X-Event} {@query.team | default \"nobody\"} {a | truncate 3} {@header.Authorization}",
		"only":["header X-Event issues","$.a == 'open","$.a"],"skip":["query team b"]}`
	p := previewAs(s, mapping, `{"a":"opened"}`, "x-event", "issues", "team=a")
	if p.text() != "issues a op… <missing>" || p.Ignored != "" || p.Runs != 1 || p.fields() != "only" || len(p.Conditions) != 4 {
		t.Fatalf("got %s", p.Body)
	}
	if c := p.Conditions; !*c[0].Holds || c[1].Holds != nil || c[1].Error == "" || !*c[2].Holds || *c[3].Holds || c[3].Field != "skip" || c[3].Text != "query team b" {
		t.Errorf("got %s", p.Body)
	}
	p = previewAs(s, mapping, `{"a":"opened"}`, "x-event", "push", "")
	if p.Ignored != "only header X-Event issues" || p.Runs != 0 || *p.Conditions[0].Holds {
		t.Errorf("got %s", p.Body)
	}
	if p = previewAs(s, mapping, `{"a":"opened"}`, "X-Event", "issues", "team=b"); p.Ignored != "skip query team b" {
		t.Errorf("got %s", p.Body)
	}

	// The secret of a scheme is shown to nobody, and a form is read where the hook takes one.
	p = previewAs(s, `{"name":"new","action":"agent","authMode":"github","authSecret":"`+secretsOfHooks+`","messageTemplate":"{@header.X-Hub-Signature-256}"}`, `{}`, "X-Hub-Signature-256", "sha256=1", "")
	if p.text() != "<missing>" {
		t.Errorf("got %s", p.Body)
	}
	if p = previewOf(s, `{"name":"new","action":"agent","body":"form","messageTemplate":"{a} {b[1]}"}`, `a=1&b=2&b=3`); p.text() != "1 3" || p.fields() != "" {
		t.Errorf("got %s", p.Body)
	}
}

func TestPreviewShowsTheFirstOfSeveralRuns(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	const mapping = `{"name":"new","action":"agent","messageTemplate":"{name} of {@root.team}, {@run}","each":"$.alerts[?@.firing]","foldSeconds":30}`
	p := previewOf(s, mapping, `{"team":"a","alerts":[{"name":"x"},{"name":"y","firing":true},{"name":"z","firing":true}]}`)
	if p.text() != "y of a, <run id>" || p.Runs != 2 || p.fields() != "" || !strings.Contains(p.Folded, "[2 of 2, accepted ") || !strings.Contains(p.Folded, "z of a") {
		t.Errorf("got %s", p.Body)
	}
	if p = previewOf(s, mapping, `{"alerts":[]}`); p.Runs != 0 || !strings.HasPrefix(p.Ignored, "each ") || p.fields() != "" {
		t.Errorf("no match: got %s", p.Body)
	}
	if p = previewOf(s, mapping, `{"alerts":[`+strings.Repeat(`{"firing":1},`, 100)+`{"firing":1}]}`); p.Runs != 0 || p.fields() != "payload" {
		t.Errorf("too many matches: got %s", p.Body)
	}
	if p = previewOf(s, `{"name":"new","action":"agent","messageTemplate":"x {a}","foldSeconds":30}`, `{"a":1}`); strings.Count(p.Folded, "x 1") != 2 {
		t.Errorf("two requests in one turn: got %s", p.Body)
	}
}

func TestPreviewTellsWhatWouldHaveBecomeOfTheLastRequests(t *testing.T) {
	s := hookstest.StartSite(t, signedSite)
	s.PutMapping("live", `{"action":"agent","messageTemplate":"x","skip":["$.bot"]}`)
	for _, payload := range []string{`{"a":1}`, `{"a":2,"bot":true}`, `{"a":2}`} {
		caddyhooks.SampleNext()
		s.Request("POST", "/api/hooks/live?team=a&token=hidden", payload, "Authorization", "Bearer "+hookstest.Token, "X-Event", "issues")
	}
	p := previewOf(s, `{"name":"live","action":"agent","messageTemplate":"x","only":["$.a == 2","header X-Event issues","query team a"]}`, `{}`)
	if len(p.Samples) != 3 || p.Samples[0].Runs != 1 || p.Samples[1].Runs != 1 || p.Samples[2].Ignored != "only $.a == 2" {
		t.Errorf("got %s", p.Body)
	}
	p = previewOf(s, `{"name":"live","action":"agent","messageTemplate":"{none}","each":"$.none","body":"form"}`, `a=1`)
	if len(p.Samples) != 3 || p.Samples[0].Problem == "" {
		t.Errorf("got %s", p.Body)
	}
	if body := s.AdminRequest("GET", "/hooks/samples?hook=live", "").Body; strings.Contains(body, "hidden") || strings.Contains(body, hookstest.Token) || !strings.Contains(body, "team=a") {
		t.Errorf("the samples are %s", body)
	}
}
