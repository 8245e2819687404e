package integration

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// schemeTest is a sender, and the hook for it.
type schemeTest struct {
	sender   string // as sign.mjs calls it
	auth     string // of the hook, with %s for its secrets
	lines    string // more of the hook
	kind     secretKind
	needed   []string      // headers without which a request is refused
	timed    time.Duration // how old a signature may be; 0: it has no time
	repeats  bool          // the sender names its requests: one that is sent again, and signed anew, is not carried out again
	bodiless bool          // the body is not signed
	success  int           // the status of the answer to a request that is accepted; 0: 202
	body     func(n string, at time.Time) string
}

// accepted is the status of the answer to a request that is accepted.
func (c *schemeTest) accepted() int {
	if c.success != 0 {
		return c.success
	}
	return http.StatusAccepted
}

type secretKind int

const (
	plainSecret secretKind = iota
	standardSecret
	ed25519Seed
	ecdsaKey
	base64Secret
)

var schemeTests = []schemeTest{
	{sender: "github", auth: "github %s", needed: []string{"X-Hub-Signature-256"}, repeats: true},
	{sender: "gitlab", auth: "gitlab %s", needed: []string{"X-Gitlab-Token"}, repeats: true, bodiless: true},
	{sender: "gitlab-signed", auth: "gitlab %s", kind: standardSecret, needed: standardHeaders("webhook"), timed: 5 * time.Minute, repeats: true},
	{sender: "bitbucket", auth: "bitbucket %s", needed: []string{"X-Hub-Signature"}, repeats: true},
	{sender: "stripe", auth: "stripe %s", needed: []string{"Stripe-Signature"}, timed: 5 * time.Minute, repeats: true, body: func(n string, at time.Time) string {
		return fmt.Sprintf(`{"id":"evt_%s","object":"event","created":%d,"text":"original"}`, n, at.Unix())
	}},
	{sender: "slack", auth: "slack %s", needed: []string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, timed: 5 * time.Minute, repeats: true, success: 200, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"type":"event_callback","event_id":"Ev%s","event":{"text":"original"}}`, n)
	}},
	{sender: "shopify", auth: "shopify %s", needed: []string{"X-Shopify-Hmac-Sha256"}, repeats: true},
	{sender: "linear", auth: "linear %s", needed: []string{"Linear-Signature"}, timed: time.Minute, repeats: true, success: 200, body: func(n string, at time.Time) string {
		return fmt.Sprintf(`{"type":"Issue","n":%q,"text":"original","webhookTimestamp":%d}`, n, at.UnixMilli())
	}},
	{sender: "sentry", auth: "sentry %s", needed: []string{"Sentry-Hook-Signature"}, repeats: true},
	{sender: "pagerduty", auth: "pagerduty %s", needed: []string{"X-PagerDuty-Signature"}, repeats: true, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"event":{"id":"01%s","event_type":"incident.triggered","data":{"title":"original"}}}`, n)
	}},
	{sender: "grafana", auth: "grafana %s", needed: []string{"X-Grafana-Alerting-Signature"}},
	{sender: "grafana-timestamp", auth: "grafana %s {\ntimestamp X-Grafana-Alerting-Timestamp 5m\n}",
		needed: []string{"X-Grafana-Alerting-Signature", "X-Grafana-Alerting-Timestamp"}, timed: 5 * time.Minute},
	{sender: "discord", auth: "discord %s", kind: ed25519Seed, needed: []string{"X-Signature-Ed25519", "X-Signature-Timestamp"}, timed: 5 * time.Minute, repeats: true, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"id":"7860%s","type":2,"data":{"name":"original"}}`, n)
	}},
	{sender: "telegram", auth: "telegram %s", needed: []string{"X-Telegram-Bot-Api-Secret-Token"}, repeats: true, bodiless: true, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"update_id":%s,"poll":{"question":"original"}}`, n)
	}},
	{sender: "twilio", auth: "twilio %s", lines: "body form", needed: []string{"X-Twilio-Signature"}, body: func(n string, _ time.Time) string {
		// Sorted and joined, repeated and empty fields, and letters of every kind.
		return "To=%2B15005550001&MediaUrl=b&MediaUrl=a&MediaUrl=b&Body=original+%E2%98%95+%26+%3D&From=%2B15005550006&Empty=&a=1&MessageSid=SM" + url.QueryEscape(n)
	}},
	{sender: "twilio-json", auth: "twilio %s", needed: []string{"X-Twilio-Signature"}},
	{sender: "hubspot", auth: "hubspot %s", needed: []string{"X-HubSpot-Signature-v3", "X-HubSpot-Request-Timestamp"}, timed: 5 * time.Minute},
	{sender: "zendesk", auth: "zendesk %s", needed: []string{"X-Zendesk-Webhook-Signature", "X-Zendesk-Webhook-Signature-Timestamp"}, timed: 5 * time.Minute, repeats: true},
	{sender: "calendly", auth: "calendly %s", needed: []string{"Calendly-Webhook-Signature"}, timed: 3 * time.Minute},
	{sender: "square", auth: "square %s", needed: []string{"X-Square-HmacSha256-Signature"}, repeats: true, body: eventBody("event_id")},
	{sender: "typeform", auth: "typeform %s", needed: []string{"Typeform-Signature"}, repeats: true, body: eventBody("event_id")},
	{sender: "intercom", auth: "intercom %s", needed: []string{"X-Hub-Signature"}, repeats: true, body: eventBody("id")},
	{sender: "mailgun", auth: "mailgun %s", timed: 5 * time.Minute, repeats: true, bodiless: true, success: 200, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"event-data":{"id":%q,"event":"failed"}}`, n)
	}},
	{sender: "sendgrid", auth: "sendgrid %s", kind: ecdsaKey,
		needed: []string{"X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"}, timed: 5 * time.Minute},
	{sender: "teams", auth: "teams %s", kind: base64Secret, needed: []string{"Authorization"}, repeats: true, success: 200, body: eventBody("id")},
	{sender: "notion", auth: "notion %s", needed: []string{"X-Notion-Signature"}, repeats: true, success: 200, body: eventBody("id")},
	{sender: "zoom", auth: "zoom %s", needed: []string{"x-zm-signature", "x-zm-request-timestamp"}, timed: 5 * time.Minute, success: 200, body: eventBody("event")},
	{sender: "meta", auth: "meta %s {\nverify_token a-verify-token\n}", needed: []string{"X-Hub-Signature-256"}, success: 200},
	{sender: "dropbox", auth: "dropbox %s", needed: []string{"X-Dropbox-Signature"}, success: 200},
	{sender: "graph", auth: "graph %s", bodiless: true, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"value":[{"subscriptionId":%q},{"changeType":"created"}]}`, n)
	}},
	{sender: "eventgrid", auth: "eventgrid %s", bodiless: true},
	{sender: "standard", auth: "standard %s", kind: standardSecret, needed: standardHeaders("webhook"), timed: 5 * time.Minute, repeats: true},
	{sender: "svix", auth: "standard %s", kind: standardSecret, needed: standardHeaders("svix"), timed: 5 * time.Minute, repeats: true},
	{sender: "token", auth: "token %s", needed: []string{"Authorization"}, bodiless: true},
	{sender: "hmac", auth: "hmac X-Signature %[2]s sha256= {\nsecret %[1]s\nsigned \"{@header.X-Timestamp}.{@body}\"\ntimestamp X-Timestamp 5m\n}",
		needed: []string{"X-Signature", "X-Timestamp"}, timed: 5 * time.Minute},
	{sender: "hmac-entry", auth: "hmac X-Signature %[2]s v1= {\nsecret %[1]s\nsigned \"{@time}.{@body}\"\ntimestamp t= 5m milliseconds\nkey_encoding base64\n}",
		kind: base64Secret, needed: []string{"X-Signature"}, timed: 5 * time.Minute},
	{sender: "token-header", auth: "token %s {\nheader X-Api-Key\n}", needed: []string{"X-Api-Key"}, bodiless: true},
	{sender: "hmac512", auth: "hmac X-Signature %[2]s {\nsecret %[1]s\nalgorithm sha512\n}", needed: []string{"X-Signature"}},
}

// eventBody is a body with the sender's id of the request in a member.
func eventBody(member string) func(n string, at time.Time) string {
	return func(n string, _ time.Time) string { return fmt.Sprintf(`{%q:"id-%s","text":"original"}`, member, n) }
}

func standardHeaders(prefix string) []string {
	return []string{prefix + "-id", prefix + "-timestamp", prefix + "-signature"}
}

// secret is the sender's secret of a name, and what the hook is given of it.
func (c schemeTest) secret(name string) (sender, hook string) {
	switch c.kind {
	case standardSecret:
		secret := "whsec_" + map[string]string{"old": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "new": "C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "wrong": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}[name]
		return secret, secret
	case base64Secret:
		secret := base64.StdEncoding.EncodeToString([]byte(name + "-secret-of-" + c.sender))
		return secret, secret
	case ecdsaKey:
		sum := sha256.Sum256([]byte(name))
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), sum[:])
		if err != nil {
			panic(err)
		}
		private, _ := x509.MarshalPKCS8PrivateKey(key)
		public, _ := x509.MarshalPKIXPublicKey(key.Public())
		return base64.StdEncoding.EncodeToString(private), base64.StdEncoding.EncodeToString(public)
	case ed25519Seed:
		seed := []byte(strings.Repeat(name[:1], ed25519.SeedSize))
		return hex.EncodeToString(seed), hex.EncodeToString(ed25519.NewKeyFromSeed(seed)[ed25519.SeedSize:])
	}
	return name + "-secret-of-" + c.sender, name + "-secret-of-" + c.sender
}

// hook is the hook for the sender, with the secrets of these names.
func (c schemeTest) hook(names ...string) string {
	var secrets []string
	for _, name := range names {
		_, secret := c.secret(name)
		secrets = append(secrets, secret)
	}
	auth := fmt.Sprintf(c.auth, strings.Join(secrets, " "))
	if strings.Contains(c.auth, "%[2]s") {
		auth = fmt.Sprintf(c.auth, strings.Join(secrets[1:], " "), secrets[0])
		auth = strings.Replace(auth, "secret \n", "", 1)
	}
	return fmt.Sprintf("hook %s {\naction agent\nauth %s\n%s\ntemplate hello\nchat_id all\n}\n", c.sender, auth, c.lines)
}

// schemeSite is a site with a hook for each sender.
type schemeSite struct {
	*hookstest.Server
	signer     *signer
	sent       atomic.Int64
	signatures sync.Map // that were sent, with their senders
}

func startSchemeSite(t *testing.T, secrets ...string) *schemeSite {
	t.Helper()
	s := &schemeSite{Server: hookstest.StartProcess(t, "respond 404"), signer: startSigner(t)}
	// Every request comes from another address: bad credentials from one are answered 429 after a while.
	s.Globals = "servers {\ntrusted_proxies static 127.0.0.1\n}\n"
	s.load(secrets...)
	return s
}

// load loads hooks that know the secrets of these names.
func (s *schemeSite) load(secrets ...string) {
	s.T.Helper()
	s.Load(hooksOfSchemes(secrets...))
}

func hooksOfSchemes(secrets ...string) string {
	hooks := "hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner echo\nstore memory\n"
	for _, c := range schemeTests {
		hooks += c.hook(secrets...)
	}
	return hooks + "}"
}

// signed is the request of a number, as the sender makes it at a time.
func (s *schemeSite) signed(t testing.TB, c schemeTest, secret, n string, at time.Time) signedRequest {
	t.Helper()
	body := fmt.Sprintf(`{"n":%q,"text":"original","at":%d}`, n, at.Unix())
	if c.body != nil {
		body = c.body(n, at)
	}
	key, _ := c.secret(secret)
	return s.signer.sign(t, question{c.sender, key, s.URL + "/api/hooks/" + c.sender, body, at.Unix(), "id-" + n})
}

// send sends a request from an address of its own.
func (s *schemeSite) send(t testing.TB, r signedRequest) hookstest.Response {
	t.Helper()
	n := s.sent.Add(1)
	resp, err := r.send("X-Forwarded-For", fmt.Sprintf("10.%d.%d.1", n/250, n%250))
	for tries := 0; err != nil && tries < 5; tries++ { // a reload breaks connections
		resp, err = r.send("X-Forwarded-For", fmt.Sprintf("10.%d.%d.1", n/250, n%250))
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Every scheme accepts what the sender's own library signed or vouched for, once, and nothing else.
func TestSchemesAcceptTheirSendersAndNothingElse(t *testing.T) {
	t.Parallel()
	s := startSchemeSite(t, "old")
	var unvouched []string
	for _, c := range schemeTests {
		if s.signed(t, c, "old", "0", time.Now()).vouched == "" {
			unvouched = append(unvouched, c.sender)
		}
	}
	if want := []string{"gitlab", "sentry", "pagerduty", "grafana", "grafana-timestamp", "zendesk", "calendly", "typeform", "intercom", "mailgun", "teams",
		"dropbox", "graph", "eventgrid", "token", "hmac", "hmac-entry", "token-header", "hmac512"}; !slices.Equal(unvouched, want) {
		t.Errorf("no library vouches for %v, want %v", unvouched, want)
	}
	t.Run("senders", func(t *testing.T) {
		for _, c := range schemeTests {
			t.Run(c.sender, func(t *testing.T) {
				t.Parallel()
				s.check(t, c)
			})
		}
	})
	for _, path := range []string{"/hooks/refused", "/hooks/settings"} {
		shown := s.AdminRequest("GET", path, "").Body
		s.signatures.Range(func(signature, sender any) bool {
			if strings.Contains(shown, signature.(string)) {
				t.Errorf("%s shows a credential of %s", path, sender)
			}
			return true
		})
	}
}

// check sends requests of one sender, good ones and bad ones.
func (s *schemeSite) check(t *testing.T, c schemeTest) {
	refuse := func(what string, r signedRequest) {
		t.Helper()
		if resp := s.send(t, r); resp.Status != 401 {
			t.Errorf("%s: answered %d %s", what, resp.Status, resp.Body)
		}
	}
	now := time.Now()
	good := s.signed(t, c, "old", "1", now)
	for _, header := range c.needed {
		r := good
		i := slices.IndexFunc(r.headers, func(h string) bool { return strings.EqualFold(h, header) })
		if i < 0 {
			t.Fatalf("the sender sends no %s: %v", header, r.headers)
		}
		if value := r.headers[i+1]; len(value) > 15 { // and no time or number
			s.signatures.Store(value, c.sender)
		}
		r.headers = slices.Delete(slices.Clone(r.headers), i, i+2)
		refuse("without "+header, r)
		r.headers = append(slices.Clone(r.headers), header, "")
		refuse("with an empty "+header, r)
	}
	refuse("with a wrong secret", s.signed(t, c, "wrong", "2", now))
	if !c.bodiless {
		r := good
		r.body = strings.Replace(good.body, "original", "altered!", 1)
		if r.body == good.body {
			t.Fatalf("the body %s has nothing to alter", good.body)
		}
		refuse("with an altered body", r)
		r.body = good.body + " "
		if c.sender == "twilio" {
			r.body = good.body + "&b=2"
		}
		refuse("with a longer body", r)
	}
	if c.timed > 0 {
		refuse("from long ago", s.signed(t, c, "old", "3", now.Add(-c.timed-time.Minute)))
		refuse("from the future", s.signed(t, c, "old", "4", now.Add(c.timed+time.Minute)))
	}

	first := s.send(t, good)
	first.WantNew(t, c.accepted())
	runs := 1
	if c.repeats || c.timed > 0 {
		s.send(t, good).WantReplay(t, first)
	}
	if c.repeats {
		again := s.signed(t, c, "old", "1", now.Add(-2*time.Second))
		s.send(t, again).WantReplay(t, first)
	}
	if c.timed > 0 {
		s.send(t, s.signed(t, c, "old", "5", now.Add(-c.timed/2))).WantNew(t, c.accepted())
		runs++
	}
	s.send(t, s.signed(t, c, "old", "6", now)).WantNew(t, c.accepted())
	runs++
	if ids, _ := s.Listed("?hook=" + c.sender); len(ids) != runs {
		t.Errorf("there are %d runs, want %d", len(ids), runs)
	}
}

// The secrets of all hooks are replaced while their senders go on sending.
func TestSecretsOfSendersAreReplacedWithoutAGap(t *testing.T) {
	t.Parallel()
	s := startSchemeSite(t, "old")
	n := 0
	everybody := func(secret string, isGood bool) {
		t.Helper()
		for _, c := range schemeTests {
			n++
			status := http.StatusUnauthorized
			if isGood {
				status = c.accepted()
			}
			if resp := s.send(t, s.signed(t, c, secret, fmt.Sprint(n), time.Now())); resp.Status != status {
				t.Errorf("%s with the %s secret is answered %d %s, want %d", c.sender, secret, resp.Status, resp.Body, status)
			}
		}
	}
	during := func(secret string, load ...string) {
		t.Helper()
		var loading sync.WaitGroup
		defer loading.Wait()
		var loaded atomic.Bool
		loading.Go(func() {
			if err := s.TryLoad(hooksOfSchemes(load...)); err != nil {
				t.Errorf("loading the secrets %v: %v", load, err)
			}
			loaded.Store(true)
		})
		for over := false; !over; { // at least once after it
			over = loaded.Load()
			everybody(secret, true)
		}
	}
	everybody("new", false)
	during("old", "old", "new")
	everybody("old", true)
	everybody("new", true)
	during("new", "new", "old") // the order does not matter
	during("new", "new")
	everybody("new", true)
	everybody("old", false)
}

// Senders that want to know whether a hook is theirs get their answer, if they prove who they are, and no run.
func TestChallengesAreAnswered(t *testing.T) {
	t.Parallel()
	s := startSchemeSite(t, "old")
	for _, test := range []struct {
		name, sender, body string
		status             int
		contentType, want  string
	}{
		{"Slack", "slack", `{"token":"a","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`,
			200, "text/plain; charset=utf-8", "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"},
		{"Discord interactions", "discord", `{"id":"1","application_id":"2","type":1,"token":"a","version":1}`, 200, "application/json", `{"type":1}`},
		{"Discord webhook events", "discord", `{"version":1,"application_id":"2","type":0}`, 204, "", ""},
	} {
		c := schemeTests[slices.IndexFunc(schemeTests, func(c schemeTest) bool { return c.sender == test.sender })]
		c.body = func(string, time.Time) string { return test.body }
		for range 2 { // a challenge that is repeated is none that was carried out
			resp := s.send(t, s.signed(t, c, "old", "1", time.Now()))
			if resp.Status != test.status || strings.TrimSpace(resp.Body) != test.want || test.contentType != "" && !strings.HasPrefix(resp.Header.Get("Content-Type"), test.contentType) {
				t.Errorf("%s is answered %d %s %s", test.name, resp.Status, resp.Header.Get("Content-Type"), resp.Body)
			}
		}
		if resp := s.send(t, s.signed(t, c, "wrong", "1", time.Now())); resp.Status != 401 {
			t.Errorf("%s, forged, is answered %d %s", test.name, resp.Status, resp.Body)
		}
		if ids, _ := s.Listed("?hook=" + test.sender); len(ids) > 0 {
			t.Errorf("%s started the runs %v", test.name, ids)
		}
	}
}

// Zoom's own library answers its validation as the hook does.
func TestZoomValidatesTheHook(t *testing.T) {
	t.Parallel()
	s := startSchemeSite(t, "old", "new")
	c := schemeTests[slices.IndexFunc(schemeTests, func(c schemeTest) bool { return c.sender == "zoom" })]
	c.body = func(string, time.Time) string {
		return `{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`
	}
	for _, secret := range []string{"old", "new"} {
		signed := s.signed(t, c, secret, "1", time.Now())
		var got, want map[string]string
		resp := s.send(t, signed)
		if err := json.Unmarshal([]byte(resp.Body), &got); err != nil || resp.Status != 200 {
			t.Fatalf("answered %d %s", resp.Status, resp.Body)
		}
		if err := json.Unmarshal([]byte(signed.answer), &want); err != nil || len(want) != 2 || !maps.Equal(got, want) {
			t.Errorf("answered %v, and the library %v, %v", got, want, err)
		}
	}
}

// Twilio signs the URL that it called, which is not the one that a proxy calls.
func TestTwilioBehindAProxy(t *testing.T) {
	t.Parallel()
	s := startSchemeSite(t, "old")
	c := schemeTests[slices.IndexFunc(schemeTests, func(c schemeTest) bool { return c.sender == "twilio" })]
	key, _ := c.secret("old")
	signed := s.signer.sign(t, question{Sender: c.sender, Secret: key, URL: "https://hooks.example.com/api/hooks/twilio?a=%20b", Body: c.body("1", time.Now())})
	signed.url = s.URL + "/api/hooks/twilio?a=%20b"
	proxied := signed
	proxied.headers = append(slices.Clone(signed.headers), "X-Forwarded-Proto", "https", "X-Forwarded-Host", "hooks.example.com")
	if resp := s.send(t, proxied); resp.Status != 202 {
		t.Errorf("through a proxy: answered %d %s", resp.Status, resp.Body)
	}
	if resp := s.send(t, signed); resp.Status != 401 {
		t.Errorf("signed for another URL: answered %d %s", resp.Status, resp.Body)
	}
}
