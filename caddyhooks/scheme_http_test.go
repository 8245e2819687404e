package caddyhooks_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Twilio's
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func hexSum(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func stripeSignature(secret, body string, at time.Time) string {
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hexSum(secret, fmt.Sprintf("%d.%s", at.Unix(), body)))
}

func slackHeaders(secret, body string, at time.Time) []string {
	return []string{"X-Slack-Request-Timestamp", fmt.Sprint(at.Unix()), "X-Slack-Signature", "v0=" + hexSum(secret, fmt.Sprintf("v0:%d:%s", at.Unix(), body))}
}

const sendersSite = `
	workers 1
	hook github {
		action agent
		auth github ` + loudSecret + `
		template "{a} {@header.X-Hub-Signature-256} {@header.X-Hub-Signature} {@header.X-GitHub-Event}"
	}
	hook stripe {
		action agent
		auth stripe old-` + loudSecret + ` ` + loudSecret + `
	}
	hook slack {
		action agent
		auth slack ` + loudSecret + `
	}
	hook own {
		action agent
		auth token ` + loudSecret + `
	}
	hook open {
		action agent
		auth none
		from 127.0.0.1 ::1
	}
	hook elsewhere {
		action agent
		from 192.0.2.0/24
	}
	hook twilio {
		action agent
		auth twilio ` + loudSecret + `
		body form
	}`

// acceptedRun is the run of a request that was answered 202, or 200 for senders that want that.
func acceptedRun(t *testing.T, resp hookstest.Response) string {
	t.Helper()
	if resp.Status != 202 && resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	id, _ := resp.Field(t, "runId").(string)
	return id
}

func TestSendersCallTheirHooks(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, sendersSite))
	now := time.Now()
	const body = `{"a":"1","id":"evt_1"}`

	t.Run("the same delivery is one run, whatever its body", func(t *testing.T) {
		post := func(body, delivery string) string {
			return acceptedRun(t, s.Request("POST", "/api/hooks/github", body, "X-Hub-Signature-256", "sha256="+hexSum(loudSecret, body), "X-GitHub-Delivery", delivery))
		}
		first := post(body, "d1")
		if again := post(`{"a":"2"}`, "d1"); again != first {
			t.Error("a second run")
		}
		if other := post(body, "d2"); other == first {
			t.Error("another delivery is the same run")
		}
	})
	t.Run("an altered body and a wrong secret are refused", func(t *testing.T) {
		s.Request("POST", "/api/hooks/github", body+" ", "X-Hub-Signature-256", "sha256="+hexSum(loudSecret, body)).WantError(t, 401, "The signature is wrong.")
		s.Request("POST", "/api/hooks/github", body, "X-Hub-Signature-256", "sha256="+hexSum("other", body)).WantError(t, 401, "The signature is wrong.")
		s.Request("POST", "/api/hooks/github", body).WantError(t, 401, "missing")
		s.Request("POST", "/api/hooks/github", body, "Authorization", "Bearer "+hookstest.Token).WantError(t, 401, "missing")
	})
	t.Run("both secrets are good while one is replaced, and an old request is not", func(t *testing.T) {
		for i, secret := range []string{"old-" + loudSecret, loudSecret} {
			body := fmt.Sprintf(`{"id":"evt_r%d"}`, i)
			acceptedRun(t, s.Request("POST", "/api/hooks/stripe", body, "Stripe-Signature", stripeSignature(secret, body, now)))
		}
		s.Request("POST", "/api/hooks/stripe", body, "Stripe-Signature", stripeSignature(loudSecret, body, now.Add(-time.Hour))).WantError(t, 401, "The signature is wrong.")
		refused := s.AdminRequest("GET", "/hooks/refused", "").Body
		if !strings.Contains(refused, "the timestamp is older than 5m0s") {
			t.Errorf("operators are told %s", refused)
		}
		wantNoSecrets(t, "the list of refused requests", refused)
	})
	t.Run("a request that is recorded and sent again is the same run", func(t *testing.T) {
		const body = `{"no":"id"}`
		headers := slackHeaders(loudSecret, body, now)
		first := acceptedRun(t, s.Request("POST", "/api/hooks/slack", body, headers...))
		resp := s.Request("POST", "/api/hooks/slack", body, headers...)
		if again := acceptedRun(t, resp); again != first || resp.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got the run %s, %v", again, resp.Header)
		}
		if other := acceptedRun(t, s.Request("POST", "/api/hooks/slack", body, slackHeaders(loudSecret, body, now.Add(-time.Second))...)); other == first {
			t.Error("a request of another time is the same run")
		}
	})
	t.Run("a challenge is answered when it is signed", func(t *testing.T) {
		const body = `{"type":"url_verification","challenge":"abc"}`
		resp := s.Request("POST", "/api/hooks/slack", body, slackHeaders(loudSecret, body, now)...)
		if resp.Status != 200 || resp.Body != "abc" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("got %d %q %v", resp.Status, resp.Body, resp.Header)
		}
		s.Request("POST", "/api/hooks/slack", body, slackHeaders("other", body, now)...).WantError(t, 401)
	})
	t.Run("a token of its own opens one hook, and the shared one does not", func(t *testing.T) {
		acceptedRun(t, s.Request("POST", "/api/hooks/own", body, "Authorization", "Bearer "+loudSecret))
		acceptedRun(t, s.Request("POST", "/api/hooks/own", body, "X-Service-Token", loudSecret))
		s.Request("POST", "/api/hooks/own", body, "Authorization", "Bearer "+hookstest.Token).WantError(t, 401)
		s.Request("POST", "/api/hooks/agent", `{"message":"a"}`, "Authorization", "Bearer "+loudSecret).WantError(t, 401)
		s.Request("GET", "/api/hooks/runs/x", "", "Authorization", "Bearer "+loudSecret).WantError(t, 401)
	})
	t.Run("addresses", func(t *testing.T) {
		acceptedRun(t, s.Request("POST", "/api/hooks/open", body))
		s.Request("POST", "/api/hooks/elsewhere", body, "Authorization", "Bearer "+hookstest.Token).WantError(t, 403)
		s.Request("POST", "/api/hooks/elsewhere", body).WantError(t, 403)
	})
	t.Run("Twilio signs the URL that it called", func(t *testing.T) {
		mac := hmac.New(sha1.New, []byte(loudSecret))
		mac.Write([]byte(s.URL + "/api/hooks/twilio?x=1" + "BodyhiFrom+1"))
		signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
		form := []string{"Content-Type", "application/x-www-form-urlencoded", "X-Twilio-Signature", signature}
		acceptedRun(t, s.Request("POST", "/api/hooks/twilio?x=1", "From=%2B1&Body=hi", form...))
		s.Request("POST", "/api/hooks/twilio?x=2", "From=%2B1&Body=hi", form...).WantError(t, 401)
		s.Request("POST", "/api/hooks/twilio?x=1", "From=%2B1&Body=ho", form...).WantError(t, 401)
	})
	t.Run("templates do not see signatures", func(t *testing.T) {
		body := `{"a":"seen"}`
		id := acceptedRun(t, s.Request("POST", "/api/hooks/github", body, "X-Hub-Signature-256", "sha256="+hexSum(loudSecret, body), "X-Hub-Signature", "sha1=0", "X-GitHub-Event", "push"))
		message := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(t, "message")
		if message != "seen <missing> <missing> push" {
			t.Errorf("the message is %q", message)
		}
	})
}

func readLog(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func TestSignaturesOfSendersAreNotLogged(t *testing.T) {
	s, accessLog, _ := loggedSite(t, hookstest.StartRunner(t, nil), "hooks other {\n path /other\n enabled\n runner echo\n token "+loudToken+
		"\n hook a {\n auth github s3cret-of-github\n }\n hook b {\n auth standard whsec_c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ==\n }\n hook c {\n auth telegram s3cret-of-telegram\n }\n}")
	for _, hook := range []string{"a", "b", "c"} {
		s.Request("POST", "/other/"+hook, `{}`, "X-Hub-Signature-256", "sha256=loud-signature", "X-Hub-Signature", "loud-signature", "Webhook-Signature", "v1,loud-signature",
			"Svix-Signature", "loud-signature", "X-Telegram-Bot-Api-Secret-Token", "loud-signature").WantError(t, 401)
	}
	hookstest.Eventually(t, "requests are logged", func() bool { return strings.Count(readLog(t, accessLog), "/other/") >= 3 })
	wantNoSecrets(t, "the access log", readLog(t, accessLog), "loud-signature")
}

// Linear sends again whatever is not answered 200, and may switch the webhook off. Discord wants 204 for events, without a body.
func TestSendersGetTheStatusThatTheyTakeForSuccess(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	rn := hookstest.StartRunner(t, nil)
	site := ""
	for name, lines := range map[string]string{
		"agent": "action agent", "wake": "", "each": "action agent\neach $.items[*]", "sync": "action agent\nsync\nonly header X-Never",
		"ignored": "action agent\nonly header X-Never", "given": "action agent\nrespond 201 ok",
		"given-ignored": "action agent\nrespond 201 ok\nonly header X-Never",
	} {
		for _, scheme := range []string{"linear " + loudSecret, "slack " + loudSecret, "mailgun " + loudSecret, "github " + loudSecret, "discord " + hex.EncodeToString(public)} {
			sender, _, _ := strings.Cut(scheme, " ")
			site += fmt.Sprintf("hook %s-%s {\nauth %s\n%s\n}\n", sender, name, scheme, lines)
		}
	}
	s := hookstest.StartSite(t, hookstest.Hooks(rn, site))
	now := time.Now()
	sign := map[string]func(body, hook string) []string{
		"linear": func(body, hook string) []string {
			return []string{"Linear-Signature", hexSum(loudSecret, body), "Linear-Delivery", hook}
		},
		"slack": func(body, _ string) []string { return slackHeaders(loudSecret, body, now) },
		"github": func(body, hook string) []string {
			return []string{"X-Hub-Signature-256", "sha256=" + hexSum(loudSecret, body), "X-GitHub-Delivery", hook}
		},
		"mailgun": func(string, string) []string { return nil },
		"discord": func(body, _ string) []string {
			at := fmt.Sprint(now.Unix())
			return []string{"X-Signature-Timestamp", at, "X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(private, []byte(at+body)))}
		},
	}
	event := fmt.Sprintf(`{"type":1,"event":{},"items":[1,2],"webhookTimestamp":%d}`, now.UnixMilli())
	interaction := `{"type":2,"id":"7","items":[1,2]}`
	bounce := fmt.Sprintf(`{"signature":{"timestamp":%d,"token":"t","signature":%q},"items":[1,2]}`, now.Unix(), hexSum(loudSecret, fmt.Sprint(now.Unix(), "t")))
	for _, c := range []struct {
		sender, body string
		accepted     map[string]int // by hook
	}{
		{"linear", event, map[string]int{"agent": 200, "wake": 200, "each": 200, "sync": 200, "ignored": 200, "given": 201, "given-ignored": 201}},
		{"mailgun", bounce, map[string]int{"agent": 200, "wake": 200, "each": 200, "sync": 200, "ignored": 200, "given": 201, "given-ignored": 201}},
		{"slack", event, map[string]int{"agent": 200, "wake": 200, "each": 200, "sync": 200, "ignored": 200, "given": 201, "given-ignored": 201}},
		{"github", event, map[string]int{"agent": 202, "wake": 200, "each": 202, "sync": 200, "ignored": 200, "given": 201, "given-ignored": 201}},
		{"discord", event, map[string]int{"agent": 204, "wake": 204, "each": 204, "sync": 204, "ignored": 204, "given": 201, "given-ignored": 201}},
		{"discord", interaction, map[string]int{"agent": 202, "wake": 200, "each": 202, "sync": 200, "ignored": 200, "given": 201, "given-ignored": 201}},
	} {
		for name, want := range c.accepted {
			hook := c.sender + "-" + name
			post := func() hookstest.Response {
				return s.Request("POST", "/api/hooks/"+hook, c.body, sign[c.sender](c.body, hook)...)
			}
			first, again := post(), post()
			if first.Status != want || (first.Body == "") != (want == 204) {
				t.Errorf("%s: %s is answered %d %q, want %d", hook, c.body, first.Status, first.Body, want)
			}
			switch name {
			case "sync", "ignored", "given-ignored": // of which nothing is remembered
				again.WantNew(t, want)
			default:
				again.WantReplay(t, first)
			}
		}
	}
}

// handshakeSite has a hook for each sender that tries hooks out.
const handshakeSite = `
	hook zoom {
		action agent
		auth zoom old-` + loudSecret + ` ` + loudSecret + `
	}
	hook meta {
		action agent
		auth meta ` + loudSecret + ` {
			verify_token ` + loudSecret + `-to-verify
		}
	}
	hook unverified {
		auth meta ` + loudSecret + `
	}
	hook dropbox {
		auth dropbox ` + loudSecret + `
	}
	hook graph {
		action agent
		auth graph ` + loudSecret + `
	}
	hook elsewhere {
		auth dropbox ` + loudSecret + `
		from 192.0.2.0/24
	}
	hook eventgrid {
		auth eventgrid ` + loudSecret + `
	}
	hook notion {
		auth notion ` + loudSecret + `
	}
	hook intercom {
		auth intercom ` + loudSecret + `
	}
	hook github {
		auth github ` + loudSecret + `
	}`

func TestSendersTryHooksOut(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), handshakeSite))
	now := time.Now()
	zoom := func(secret, body string, at time.Time) []string {
		return []string{"x-zm-request-timestamp", fmt.Sprint(at.Unix()), "x-zm-signature", "v0=" + hexSum(secret, fmt.Sprintf("v0:%d:%s", at.Unix(), body))}
	}
	const validation = `{"payload":{"plainToken":"q\"g8"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`
	const subscription = `[{"id":"2d1781af","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6"}}]`
	const token = `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}`
	const meta = "/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
	azure := []string{"aeg-event-type", "SubscriptionValidation"}
	for _, c := range []struct {
		what, method, path, body string
		headers                  []string
		status                   int
		want                     string
	}{
		{"Zoom", "POST", "/zoom", validation, zoom(loudSecret, validation, now), 200, `{"plainToken":"q\"g8","encryptedToken":"` + hexSum(loudSecret, `q"g8`) + `"}`},
		{"Zoom, with the other secret", "POST", "/zoom", validation, zoom("old-"+loudSecret, validation, now), 200,
			`{"plainToken":"q\"g8","encryptedToken":"` + hexSum("old-"+loudSecret, `q"g8`) + `"}`},
		{"Zoom, forged", "POST", "/zoom", validation, zoom("forged", validation, now), 401, ""},
		{"Zoom, recorded", "POST", "/zoom", validation, zoom(loudSecret, validation, now.Add(-time.Hour)), 401, ""},
		{"Zoom, unsigned", "POST", "/zoom", validation, nil, 401, ""},
		{"Zoom with GET", "GET", "/zoom", "", nil, 405, ""},

		{"Meta", "GET", meta + loudSecret + "-to-verify", "", nil, 200, "1158201444"},
		{"Meta, with another token", "GET", meta + loudSecret, "", nil, 401, ""},
		{"Meta, without a token", "GET", meta, "", nil, 401, ""},
		{"Meta, without a challenge", "GET", "/meta?hub.mode=subscribe&hub.verify_token=" + loudSecret + "-to-verify", "", nil, 401, ""},
		{"Meta, nothing asked", "GET", "/meta", "", nil, 405, ""},
		{"Meta with PUT", "PUT", meta + loudSecret + "-to-verify", "", nil, 405, ""},
		{"Meta with OPTIONS", "OPTIONS", "/meta", "", nil, 405, ""},
		{"Meta where none is set", "GET", "/unverified?hub.mode=subscribe&hub.challenge=1&hub.verify_token=", "", nil, 401, ""},
		{"Meta with POST", "POST", meta + loudSecret + "-to-verify", "{}", nil, 401, ""},

		{"Dropbox", "GET", "/dropbox?challenge=%3Cscript%3E", "", nil, 200, "<script>"},
		{"Dropbox, nothing asked", "GET", "/dropbox", "", nil, 405, ""},
		{"Dropbox, too long", "GET", "/dropbox?challenge=" + strings.Repeat("a", 5000), "", nil, 401, ""},
		{"Dropbox with POST", "POST", "/dropbox?challenge=a", "{}", nil, 401, ""},
		{"Dropbox from elsewhere", "GET", "/elsewhere?challenge=a", "", nil, 403, ""},

		{"Graph", "POST", "/graph?validationToken=Validation%3A+Testing%2B1", "", nil, 200, "Validation: Testing+1"},
		{"Graph, with a body", "POST", "/graph?validationToken=a", `{"value":[{"clientState":"forged"}]}`, nil, 401, ""},
		{"Graph with GET", "GET", "/graph?validationToken=a", "", nil, 405, ""},

		{"Event Grid", "POST", "/eventgrid?access_token=" + loudSecret, subscription, azure, 200, `{"validationResponse":"512d38b6"}`},
		{"Event Grid, with a bearer token", "POST", "/eventgrid", subscription, append(azure, "Authorization", "Bearer "+loudSecret), 200, `{"validationResponse":"512d38b6"}`},
		{"Event Grid, forged", "POST", "/eventgrid?access_token=forged", subscription, azure, 401, ""},
		{"Event Grid, forged in the URL", "POST", "/eventgrid?access_token=forged", subscription, append(azure, "Authorization", "Bearer "+loudSecret), 401, ""},
		{"Event Grid, with two tokens", "POST", "/eventgrid?access_token=" + loudSecret + "&access_token=forged", subscription, azure, 401, ""},
		{"Event Grid, without a token", "POST", "/eventgrid", subscription, azure, 401, ""},
		{"CloudEvents", "OPTIONS", "/eventgrid", "", []string{"WebHook-Request-Origin", "eventgrid.azure.net", "WebHook-Request-Rate", "120"}, 200, ""},
		{"CloudEvents, nothing asked", "OPTIONS", "/eventgrid", "", nil, 405, ""},

		{"Notion, though there is a secret", "POST", "/notion", token, nil, 401, ""},
		{"Notion, signed", "POST", "/notion", token, []string{"X-Notion-Signature", "sha256=" + hexSum(loudSecret, token)}, 200, "{}"},
		{"Intercom", "HEAD", "/intercom", "", nil, 200, ""},
		{"Intercom with GET", "GET", "/intercom", "", nil, 405, ""},
		{"GitHub with HEAD", "HEAD", "/github", "", nil, 405, ""},
		{"GitHub with GET", "GET", "/github?challenge=a", "", nil, 405, ""},
		{"agent with GET", "GET", "/agent?challenge=a", "", nil, 405, ""},
	} {
		resp := s.Request(c.method, "/api/hooks"+c.path, c.body, c.headers...)
		if resp.Status != c.status || c.status == 200 && resp.Body != c.want {
			t.Errorf("%s: answered %d %q", c.what, resp.Status, resp.Body)
		}
		if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") || c.status == 200 && c.want != "" && resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: answered with %v", c.what, resp.Header)
		}
		if allow := resp.Header.Get("Allow"); c.status == 405 && allow != "POST" {
			t.Errorf("%s: Allow is %q", c.what, allow)
		}
		if c.what == "CloudEvents" && (resp.Header.Get("WebHook-Allowed-Origin") != "eventgrid.azure.net" || resp.Header.Get("WebHook-Allowed-Rate") != "*") {
			t.Errorf("%s: answered with %v", c.what, resp.Header)
		}
	}
	if ids, _ := s.Listed(""); len(ids) > 0 {
		t.Errorf("runs were started: %v", ids)
	}
	wantNoSecrets(t, "the list of refused requests", s.AdminRequest("GET", "/hooks/refused", "").Body)
	wantNoSecrets(t, "the settings", s.AdminRequest("GET", "/hooks/settings", "").Body)

	id := acceptedRun(t, s.Request("POST", "/api/hooks/graph", `{"value":[{"clientState":"`+loudSecret+`","resource":"r"}]}`))
	message := s.AdminRequest("GET", "/hooks/runs/"+id, "").Body
	wantNoSecrets(t, "the message", message)
	if !strings.Contains(message, "resource") {
		t.Errorf("the run is %s", message)
	}
}

// keptBodies are the requests that an instance keeps, as a user of the page sees each of them.
func keptBodies(t *testing.T, page dashboardPage, instance string) (all []string) {
	t.Helper()
	const path = "/refused/requests"
	var list struct{ Requests []keptRequest }
	if err := json.Unmarshal([]byte(page.api("GET", "instances/"+instance+path, "").Body), &list); err != nil {
		t.Fatal(err)
	}
	for _, request := range list.Requests {
		all = append(all, page.api("GET", "instances/"+instance+path+"/"+request.ID, "").Body)
	}
	return all
}

// The secret of Notion is known to Notion alone until it tells it to the hook. Operators see it at every node, and no log has it.
func TestNotionTellsItsSecret(t *testing.T) {
	data := uuid.NewString()
	node := func(name, secret string) string {
		return "hooks " + name + " {\n path /" + name + "\n enabled\n keep_refused 1h\n runner echo\n store shared " + data + "\n token " + loudToken +
			"\n hook notion {\n action agent\n auth notion " + secret + "\n }\n}\n"
	}
	site := basicAuth + "hooks_dashboard {\n read_only alice\n}\n"
	s, accessLog, log := loggedSite(t, hookstest.StartRunner(t, nil), site+node("a", "")+node("b", ""))
	const event = `{"id":"1","type":"page.created"}`
	post := func(node, body string, headers ...string) hookstest.Response {
		return s.Request("POST", "/"+node+"/notion", body, append(headers, pageOf(t, s).as("ops").headers...)...)
	}
	told := func(node, token string) hookstest.Response { return post(node, `{"verification_token":"`+token+`"}`) }
	shown := func(node string) string { return s.AdminRequest("GET", "/hooks/instances/"+node+"/overview", "").Body }
	post("a", event).WantError(t, 401, "This hook has no secret yet")
	post("a", event, "X-Notion-Signature", "sha256="+hexSum("", event)).WantError(t, 401)
	post("a", `{"type":"page.created","verification_token":"secret_in-an-event"}`).WantError(t, 401)
	for _, node := range []string{"a", "b", "a"} { // the same token may come again, at any node
		if resp := told(node, "secret_first"); resp.Status != 200 || resp.Body != "{}" {
			t.Errorf("answered %d %s", resp.Status, resp.Body)
		}
	}
	told("a", "secret_second").WantError(t, 401, "Another secret was told less than 10 minutes ago.")
	told("b", "secret_second").WantError(t, 401)
	told("a", "secret_"+strings.Repeat("x", 200)).WantError(t, 401)
	post("a", `{"a":[{"verif\u0069cation_token":{"b":"secret_third"}}]}`).WantError(t, 401)
	post("a", `{"verification_token":"secret_third"`).WantError(t, 401)
	for _, node := range []string{"a", "b"} {
		if text := shown(node); !strings.Contains(text, "secret_first") || strings.Contains(text, "secret_second") || !strings.Contains(text, "Notion told hook notion its secret") {
			t.Errorf("node %s shows %s", node, text)
		}
		if text := pageOf(t, s).as("ops").api("GET", "instances/"+node+"/overview", "").Body; !strings.Contains(text, "secret_first") {
			t.Errorf("the page of node %s shows %s", node, text)
		}
		wantNoSecrets(t, "a page that is read only", pageOf(t, s).as("alice").api("GET", "instances/"+node+"/overview", "").Body, "secret_first")
		for _, path := range []string{"/refused", "/settings", "/runs", "/mappings/notion", "/warnings"} {
			wantNoSecrets(t, path, s.AdminRequest("GET", "/hooks/instances/"+node+path, "").Body, "secret_first", "secret_second")
		}
	}
	reader := pageOf(t, s).as("alice")
	hookstest.Eventually(t, "a verification token that was refused is kept as a mask", func() bool {
		told("a", "secret_second")
		kept := strings.Join(keptBodies(t, reader, "a"), "\n")
		wantNoSecrets(t, "a kept request", kept, "secret_")
		return strings.Contains(kept, `{\"verification_token\":\"••••\"}`)
	})
	if out, _, err := command(t, "status", "--address", strings.TrimPrefix(s.Admin, "http://"), "--instance", "b"); err != nil || !strings.Contains(out, "secret_first") {
		t.Errorf("the command shows %s %v", out, err)
	}
	hookstest.Eventually(t, "it is logged that a secret was told", func() bool {
		return strings.Contains(readLog(t, log), "a sender told its secret; caddy hooks status shows it")
	})
	for _, token := range []string{"secret_first", "secret_second", "secret_in-an-event"} {
		if strings.Contains(readLog(t, log)+readLog(t, accessLog), token) {
			t.Errorf("a log has %s", token)
		}
	}

	s.Reload(basicAuth + node("a", "secret_first") + node("b", ""))
	wantNoSecrets(t, "a node whose hook has the secret", shown("a"), "secret_first")
	if text := shown("b"); !strings.Contains(text, "secret_first") {
		t.Errorf("the other node shows %s", text)
	}
}
