package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// sameTimes makes the times in what send prints equal.
func sameTimes(printed string) string {
	printed = regexp.MustCompile(`Try again in \d+ s`).ReplaceAllLiteralString(printed, "Try again in 3600 s")
	return regexp.MustCompile(`\b\d+ ms`).ReplaceAllLiteralString(printed, "12 ms")
}

const sendHooks = `
	hook github-issues {
		action agent
		auth github geheim-von-github
		chat_id "repo:{repository.full_name}"
		template "{issue.title}"
		skip "$.issue.number == 1"
	}
	hook stripe {
		auth stripe geheim-von-stripe
	}
	hook standard {
		auth standard whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
	}
	hook own {
		auth token geheimes-token
	}
	hook gitlab {
		auth gitlab geheim-von-gitlab
	}
	hook sms {
		auth twilio geheim-von-twilio
		body auto
	}
	hook signed {
		auth hmac X-Signature geheim-von-hmac v1= {
			signed "{@header.X-Nonce}.{@body}"
			timestamp X-Time
		}
	}
	hook discord {
		auth discord 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
	}
	hook anyone {
		auth none
		from 127.0.0.1
	}
	hook each {
		action agent
		each "$.items[*]"
	}
	hook ask {
		action agent
		sync
		template "{question}"
	}
	hook rare {
		rate 2/1h
	}`

func TestSendAsTheSenderWould(t *testing.T) {
	t.Setenv("HOOKS_SECRET", "")
	t.Setenv("HOOKS_TOKEN", "")
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == "fail" {
			w.WriteHeader(500)
		}
		_, _ = w.Write([]byte("The answer\nto " + turn.Text("message") + "\x1b[31m"))
	})
	s := hookstest.StartSite(t, hookstest.Hooks(rn, sendHooks))
	token := writeInput(t, "token", hookstest.Token+"\n")
	secret := func(text string) string { return writeInput(t, "secret", text) }
	issue := writeInput(t, "issue.json", issuePayload)
	form := writeInput(t, "form", "Body=hello&From=%2B49")
	for _, c := range []struct {
		name string // of a golden file
		args []string
		code int
	}{
		{"send", []string{"github-issues", "--payload", issue, "--secret-file", secret("geheim-von-github")}, 0},
		{"send-signed-by-caddy", []string{"github-issues", "--payload", issue}, 0},
		{"send-wrong-secret", []string{"github-issues", "--payload", issue, "--secret-file", secret("falsch")}, 1},
		{"send-ignored", []string{"github-issues", "--payload", writeInput(t, "first.json", `{"issue":{"number":1}}`)}, 0},
		{"send-missing", []string{"github-issues", "--payload", writeInput(t, "second.json", `{"issue":{"number":2}}`)}, 0},
		{"send-warning", []string{"wake", "--payload", writeInput(t, "misspelt.json", `{"text":"a","chatid":"c"}`), "--token-file", token}, 0},
		{"send-wake", []string{"wake", "--payload", writeInput(t, "wake.json", `{"text":"The backup is done","chatId":"it's me"}`), "--token-file", token}, 0},
		{"send-wrong-token", []string{"agent", "--payload", writeInput(t, "agent.json", `{"message":"hello"}`), "--token-file", secret("falsch")}, 1},
		{"send-each", []string{"each", "--payload", writeInput(t, "each.json", `{"items":[1,2]}`), "--token-file", token}, 0},
		{"send-sync", []string{"ask", "--payload", writeInput(t, "ask.json", `{"question":"life"}`), "--token-file", token}, 0},
		{"send-sync-failed", []string{"ask", "--payload", writeInput(t, "ask.json", `{"question":"fail"}`), "--token-file", token}, 1},
		{"send-again", []string{"wake", "--payload", writeInput(t, "wake.json", `{"text":"a"}`), "--token-file", token, "--header", "Idempotency-Key: 1", "--repeat", "3"}, 0},
		{"send-too-often", []string{"rare", "--payload", issue, "--token-file", token, "--repeat", "5"}, 1},
		{"send-accepted", []string{"stripe", "--payload", issue, "--secret-file", secret("geheim-von-stripe")}, 0},
		{"send-accepted", []string{"stripe", "--payload", writeInput(t, "event.json", `{}`)}, 0},
		{"send-accepted", []string{"standard", "--payload", issue}, 0},
		{"send-accepted", []string{"own", "--payload", issue, "--secret-file", secret("geheimes-token")}, 0},
		{"send-accepted", []string{"gitlab", "--payload", issue, "--secret-file", secret("geheim-von-gitlab")}, 0},
		{"send-accepted", []string{"sms", "--payload", form, "--secret-file", secret("geheim-von-twilio")}, 0},
		{"send-accepted", []string{"sms", "--payload", issue}, 0},
		{"send-accepted", []string{"signed", "--payload", issue, "--secret-file", secret("geheim-von-hmac")}, 0},
		{"send-accepted", []string{"anyone", "--payload", issue}, 0},
		{"send-discord", []string{"discord", "--payload", issue, "--secret-file", secret("3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29")}, 1},
		{"send-no-hook", []string{"none", "--payload", issue}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, err := command(t, append([]string{"send", "--address", s.Admin}, c.args...)...)
			wantExit(t, c.code, errs, err)
			wantGolden(t, c.name, sameTimes(out+"--- stderr\n"+errs), " --address "+s.Admin, "", s.URL, "https://example.com")
			if strings.Contains(out+errs, "geheim") || strings.Contains(out+errs, hookstest.Token) {
				t.Errorf("a secret is shown: %s%s", out, errs)
			}
		})
	}
}

func TestSendPrintsJSON(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, sendHooks))
	t.Setenv("HOOKS_TOKEN", hookstest.Token)
	agent := writeInput(t, "agent.json", `{"message":"hello","chatId":"a"}`)
	out, errs, err := command(t, "send", "agent", "--payload", agent, "--address", s.Admin, "--json")
	wantExit(t, 0, errs, err)
	var sent struct {
		Status              int
		RunID, ChatID, URL  string
		Ms                  float64
		Answer              map[string]string
		Sent                int
		Statuses            map[string]int
		MedianMs, LongestMs float64
	}
	if err := json.Unmarshal([]byte(out), &sent); err != nil || sent.Status != 202 || sent.RunID == "" || sent.Answer["runId"] != sent.RunID ||
		sent.ChatID != "a" || sent.URL != s.URL+"/api/hooks/agent" || sent.Ms <= 0 {
		t.Errorf("%v %s", err, out)
	}
	s.Ended(sent.RunID)
	out, errs, err = command(t, "send", "agent", "--payload", agent, "--address", s.Admin, "--json", "--repeat", "4")
	wantExit(t, 0, errs, err)
	if err := json.Unmarshal([]byte(out), &sent); err != nil || sent.Sent != 4 || sent.Statuses["202"] != 4 || sent.MedianMs <= 0 || sent.LongestMs < sent.MedianMs {
		t.Errorf("%v %s", err, out)
	}
	out, errs, err = command(t, "send", "agent", "--payload", writeInput(t, "empty.json", `{}`), "--address", s.Admin, "--json")
	wantExit(t, 1, errs, err, "refuses it: 400 The field message is missing")
	if err := json.Unmarshal([]byte(out), &sent); err != nil || sent.Status != 400 {
		t.Errorf("%v %s", err, out)
	}
}

func TestSendWithoutAskingCaddy(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, sendHooks))
	t.Setenv("HOOKS_TOKEN", hookstest.Token)
	t.Setenv("HOOKS_SECRET", "geheim-von-github")
	issue := writeInput(t, "issue.json", issuePayload)
	for _, args := range [][]string{
		{"wake", "--payload", writeInput(t, "wake.json", `{"text":"a"}`)},
		{"github-issues", "--payload", issue, "--auth", "github"},
	} {
		out, errs, err := command(t, append([]string{"send", "--address", "127.0.0.1:1", "--url", s.URL + "/api/hooks/"}, args...)...)
		wantExit(t, 0, errs, err)
		if !strings.HasPrefix(out, "20") {
			t.Errorf("got %s", out)
		}
	}
}

func TestSendRefuses(t *testing.T) {
	t.Setenv("HOOKS_SECRET", "")
	t.Setenv("HOOKS_TOKEN", "")
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.PutMapping("signed", `{"authMode":"github","authSecret":"geheim-von-github"}`)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://elsewhere.example/\u202e")
		w.WriteHeader(http.StatusPermanentRedirect)
	}))
	defer elsewhere.Close()
	welcome := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<h1>Welcome</h1>")
	}))
	defer welcome.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	tls := httptest.NewUnstartedServer(nil)
	tls.Config.ErrorLog = log.New(io.Discard, "", 0) // it would tell of a client that hangs up
	tls.StartTLS()
	defer tls.Close()
	payload := writeInput(t, "a.json", `{"text":"a"}`)
	token := writeInput(t, "token", "geheimes-token")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "the hook is missing: caddy hooks send HOOK {--payload FILE | --example}"},
		{[]string{"wake"}, 2, "--payload is missing"},
		{[]string{"wake", "--payload", payload, "--repeat", "0"}, 2, "--repeat must be from 1 to 100000"},
		{[]string{"wake", "--payload", payload, "--repeat", "many"}, 2, "--repeat"},
		{[]string{"wake", "--payload", payload, "--token", "geheim"}, 2, "can read the arguments of a command: put the token in a file"},
		{[]string{"wake", "--payload", payload, "--secret=geheim"}, 2, "can read the arguments of a command"},
		{[]string{"wake", "--payload", payload, "--header", "X-Service-Token: geheim"}, 2, "X-Service-Token carries a secret"},
		{[]string{"wake", "--payload", payload, "--url", "https://me:geheim@example.com/api/hooks"}, 2, "--url must not have a user and a password"},
		{[]string{"wake", "--payload", payload, "--url", "example.com"}, 2, "--url must be where the hooks are"},
		{[]string{"wake", "--payload", payload}, 2, "the token is missing: name a file with it by --token-file, or set HOOKS_TOKEN"},
		{[]string{"wake", "--payload", payload, "--secret-file", token}, 2, "wake takes the token, and no secret of its own: use --token-file"},
		{[]string{"signed", "--payload", payload, "--token-file", token}, 2, "signed takes a secret of its own, and not the token: use --secret-file"},
		{[]string{"wake", "--payload", payload, "--token-file", token}, 1, "since webhooks are off: "},
		{[]string{"wake", "--payload", payload, "--token-file", token, "--url", elsewhere.URL}, 1, `answers 308 and points to https://elsewhere.example/\u202e: use that by --url`},
		{[]string{"wake", "--payload", payload, "--token-file", token, "--url", welcome.URL}, 1, "/wake answers 200, but not as hooks do: say by --url where they are"},
		{[]string{"wake", "--payload", payload, "--token-file", token, "--url", welcome.URL, "--repeat", "2"}, 1, "2 of 2 were refused:"},
		{[]string{"wake", "--payload", payload, "--token-file", token, "--url", closed.URL}, 1, "does not answer: dial tcp"},
		{[]string{"wake", "--payload", payload, "--token-file", token, "--url", tls.URL}, 1, "set SSL_CERT_FILE to its root certificate"},
		{[]string{"a", "--payload", payload, "--secret-file", token, "--url", closed.URL, "--auth", "hmac"}, 1, "auth hmac: hmacHeader"},
		{[]string{"a", "--payload", payload, "--secret-file", token, "--url", closed.URL, "--auth", "none-such"}, 2, `there is no scheme "none-such"`},
		{[]string{"wake", "--payload", payload, "--token-file", token, "--instance", "other"}, 1, `there is no hooks instance "other"`},
	} {
		out, errs, err := command(t, append([]string{"send", "--address", s.Admin}, c.args...)...)
		wantExit(t, c.code, errs, err, c.want)
		if strings.Contains(out+errs, "geheim") {
			t.Errorf("%q shows a secret: %s%s", c.args, out, errs)
		}
	}
	_, errs, err := command(t, "send", "wake", "--payload", payload, "--token-file", token, "--address", "127.0.0.1:1")
	wantExit(t, 1, errs, err, "is Caddy running?")
}

func TestSendNeedsToKnowWhereTheSiteIs(t *testing.T) {
	s := hookstest.NewServer(t)
	s.Site = ":" + s.Port
	s.Load("hooks {\nrunner echo\n}")
	_, errs, err := command(t, "send", "wake", "--payload", writeInput(t, "a.json", `{}`), "--address", s.Admin)
	wantExit(t, 2, errs, err, "name that by --url, as in https://example.com/api/hooks")
}

// A port that http_port sets is where the site is called.
func TestCommandsKnowTheHTTPPort(t *testing.T) {
	t.Setenv("HOOKS_TOKEN", hookstest.Token)
	s := hookstest.NewServer(t)
	s.Globals, s.Site = "http_port "+s.Port, "http://127.0.0.1"
	s.Load("hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner echo\nstore memory\n}")
	url := "http://127.0.0.1:" + s.Port + "/api/hooks"
	out, errs, err := command(t, "status", "--address", s.Admin)
	if err != nil || !strings.Contains(out, url) {
		t.Errorf("status: %v %s\n%s", err, errs, out)
	}
	out, errs, err = command(t, "send", "wake", "--example", "--json", "--address", s.Admin)
	if err != nil || !strings.Contains(out, `"status": 200`) || !strings.Contains(out, url+"/wake") {
		t.Errorf("send: %v %s\n%s", err, errs, out)
	}
}

// Examples of all senders are accepted by hooks that look at what these senders send.
func TestExamplesAreWhatSendersSend(t *testing.T) {
	t.Setenv("HOOKS_SECRET", "")
	t.Setenv("HOOKS_TOKEN", hookstest.Token)
	secret := "whsec_" + strings.Repeat("MDEy", 12)
	file := writeInput(t, "secret", secret)
	kinds := map[string]string{ // what recipes look at
		"github": "header X-GitHub-Event issues pull_request", "gitlab": `header X-Gitlab-Event "Issue Hook"`, "bitbucket": "header X-Event-Key pullrequest:created",
		"stripe": "$.type == 'invoice.payment_failed'", "slack": "$.event.type == 'app_mention'", "shopify": "header X-Shopify-Topic orders/create",
		"linear": "header Linear-Event Issue", "sentry": "header Sentry-Hook-Resource event_alert", "pagerduty": "$.event.event_type == 'incident.triggered'",
		"grafana": "$.status == 'firing'", "telegram": "$.message.text", "twilio": "$.Body", "standard": "$.type == 'contact.created'",
		"hubspot": "$[0].subscriptionType == 'deal.creation'", "zendesk": "$.type == 'zen:event-type:ticket.created'", "calendly": "$.event == 'invitee.created'",
		"square": "$.type == 'dispute.created'", "typeform": "$.event_type == 'form_response'", "intercom": "$.topic == 'conversation.user.created'",
		"teams": "$.from.name", "notion": "$.type == 'comment.created'", "zoom": "$.event == 'recording.completed'", "dropbox": "$.list_folder.accounts",
		"meta": "$.entry[0].changes[0].value.messages", "eventgrid": "$[0].eventType == 'Microsoft.Storage.BlobCreated'",
		"hmac": "header X-Event ~ ^(deploy|build)$", "token": "query team blue", "bearer": "header X-Kind",
	}
	s := hookstest.NewServer(t)
	site := "hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner echo\nstore memory\n"
	for scheme, condition := range kinds {
		auth := scheme + " " + secret
		switch scheme {
		case "hmac":
			auth = "hmac X-Signature " + secret + " {\nsigned \"{@header.X-Event}.{@body}\"\n}"
		case "bearer":
			auth = scheme
		}
		site += "hook " + scheme + " {\naction agent\nauth " + auth + "\nbody auto\nonly `" + condition + "`\nskip `header X-Kind none`\n}\n"
	}
	s.Load(site + "}")
	for scheme := range kinds {
		args := []string{scheme, "--example", "--json", "--address", s.Admin}
		if scheme == "telegram" || scheme == "token" || scheme == "eventgrid" {
			args = append(args, "--secret-file", file) // which is sent as it is
		}
		for range 2 { // and the second one is no repetition
			out, errs, err := command(t, append([]string{"send"}, args...)...)
			if err != nil || !strings.Contains(out, `"runId"`) || strings.Contains(out, `"replayed"`) {
				t.Errorf("send %s: %v %s %s", scheme, err, errs, out)
			}
		}
		if out, errs, err := command(t, "try", scheme, "--example", "--json", "--address", s.Admin); err != nil || !strings.Contains(out, `"runId"`) {
			t.Errorf("try %s: %v %s %s", scheme, err, errs, out)
		}
	}
	for scheme, mapping := range map[string]string{ // of which the sender alone can sign, or has the signature in the body
		"discord":  strings.Repeat("d7", 32) + `","only":["$.data.name == 'ask'"]`,
		"sendgrid": sendgridKey + `","only":["$[0].event == 'bounce'"]`,
		"mailgun":  secret + `","only":["$['event-data'].event == 'failed'"]`,
		"graph":    secret + `","only":["$.value[0].changeType == 'created'"]`,
	} {
		s.PutMapping(scheme, `{"action":"agent","authMode":"`+scheme+`","authSecret":"`+mapping+`}`)
		if out, errs, err := command(t, "try", scheme, "--example", "--json", "--address", s.Admin); err != nil || !strings.Contains(out, `"runId"`) {
			t.Errorf("try %s: %v %s %s", scheme, err, errs, out)
		}
	}
	_, errs, err := command(t, "send", "github", "--example", "--payload", file, "--address", s.Admin)
	wantExit(t, 2, errs, err, "--example has a payload of its own")
}

func TestSendKeepsTokensOffOtherMachines(t *testing.T) {
	t.Setenv("HOOKS_SECRET", "")
	t.Setenv("HOOKS_TOKEN", "geheimes-token")
	other := "0.0.0.0:" + hookstest.FreePort(t) // no address of this machine that is known to be one, and yet nothing leaves it
	payload := writeInput(t, "payload.json", `{}`)
	told := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"urls":["http://` + other + `/api/hooks"],"on":true}`
		if r.URL.Path == "/hooks/instances" {
			answer = `["default"]`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(told.Close)
	for _, c := range []struct {
		args    string
		refused bool
	}{
		{"wake --url http://" + other, true},
		{"wake --address " + strings.TrimPrefix(told.URL, "http://"), true},
		{"gitlab --auth gitlab --url http://" + other + " --secret-file " + payload, true},
		{"github --auth github --url http://" + other + " --secret-file " + payload, false},
		{"wake --url http://" + other + " --insecure", false},
		{"wake --url https://" + other, false},
		{"wake --url http://127.0.0.1:" + hookstest.FreePort(t), false},
	} {
		// Nobody answers those that are not refused.
		_, errs, err := command(t, append([]string{"send", "--payload", payload}, strings.Fields(c.args)...)...)
		if err == nil || strings.Contains(errs, "over plain HTTP") != c.refused || strings.Contains(err.Error(), "does not answer") == c.refused {
			t.Errorf("send %s: %v %s", c.args, err, errs)
		}
	}
}

func TestSendPrefersHTTPS(t *testing.T) {
	t.Setenv("HOOKS_TOKEN", "geheimes-token")
	open, closed := "http://127.0.0.1:"+hookstest.FreePort(t), "https://127.0.0.1:"+hookstest.FreePort(t)
	told := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"urls":["` + open + `","` + closed + `"],"on":true}`
		if r.URL.Path == "/hooks/instances" {
			answer = `["default"]`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(told.Close)
	_, _, err := command(t, "send", "wake", "--payload", writeInput(t, "payload.json", `{}`), "--address", strings.TrimPrefix(told.URL, "http://"))
	if err == nil || !strings.HasPrefix(err.Error(), closed+"/wake does not answer") {
		t.Errorf("got %v", err)
	}
}

func TestShowSaysThatAPlaceholderFoundNothing(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner echo\nhook issues {\naction agent\ntemplate \"{issue.title}\"\n}\n}")
	for body, want := range map[string]bool{`{"issue":{"title":"a"}}`: false, `{"issue":{"titel":"a"}}`: true} {
		out, errs, err := command(t, "show", fmt.Sprint(s.Post("/api/hooks/issues", body).Field(t, "runId")), "--address", s.Admin)
		wantExit(t, 0, errs, err)
		if strings.Contains(out, "! <missing> stands for a placeholder that finds nothing in the payload\n") != want {
			t.Errorf("%s: printed\n%s", body, out)
		}
	}
}
