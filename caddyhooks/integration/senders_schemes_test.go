package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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
	sender     string // as sign.mjs calls it
	auth       string // of the hook, with %s for its secrets
	lines      string // more of the hook
	recipe     string // of a sender that gives events no id: its lines in examples/senders recognise them
	kind       secretKind
	needed     []string        // headers without which a request is refused
	timed      time.Duration   // how old a signature may be; 0: it has no time
	ids        []string        // where the sender names an event: headers, or a path in the body; the first one is what sign.mjs sends
	sameBody   bool            // the id counts with the same body alone
	bodiless   bool            // the body is not signed
	success    int             // the status of the answer to a request that is accepted; 0: 202
	nobody     bool            // the scheme is of no sender in particular
	handshakes []handshakeTest // with which the sender tries a hook out
	body       func(n string, at time.Time) string
}

// handshakeTest is a request with which a sender tries a hook out.
type handshakeTest struct {
	method, query, body string
	headers             []string
	signed              bool   // as events are; otherwise it is answered whoever sends it
	hook                string // if it is not that of the sender
	status              int
	want                string // the body of the answer; "" for that of the sender's library
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
	issuerKey
)

// The claims of tokens of issuers.
const audience = "https://hooks.example.com"

var schemeTests = []schemeTest{
	{sender: "github", auth: "github %s", needed: []string{"X-Hub-Signature-256"}, ids: []string{"X-GitHub-Delivery"}},
	{sender: "gitlab", auth: "gitlab %s", needed: []string{"X-Gitlab-Token"}, ids: []string{"Idempotency-Key", "webhook-id"}, bodiless: true},
	{sender: "gitlab-signed", auth: "gitlab %s", kind: standardSecret, needed: standardHeaders("webhook"), timed: 5 * time.Minute, ids: []string{"webhook-id"}},
	{sender: "bitbucket", auth: "bitbucket %s", needed: []string{"X-Hub-Signature"}, ids: []string{"X-Request-UUID", "X-Request-Id"}},
	{sender: "stripe", auth: "stripe %s", needed: []string{"Stripe-Signature"}, timed: 5 * time.Minute, ids: []string{"id"}, body: func(n string, at time.Time) string {
		return fmt.Sprintf(`{"id":"evt_%s","object":"event","created":%d,"text":"original"}`, n, at.Unix())
	}},
	{sender: "slack", auth: "slack %s", needed: []string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, timed: 5 * time.Minute, ids: []string{"event_id"}, success: 200,
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`{"type":"event_callback","event_id":"Ev%s","event":{"text":"original"}}`, n)
		},
		handshakes: []handshakeTest{{method: "POST", signed: true, body: `{"token":"a","challenge":"3eZbrw1aBm2rZgRNFdxV","type":"url_verification"}`,
			status: 200, want: "3eZbrw1aBm2rZgRNFdxV"}}},
	{sender: "shopify", auth: "shopify %s", needed: []string{"X-Shopify-Hmac-Sha256"}, ids: []string{"X-Shopify-Webhook-Id", "X-Shopify-Event-Id"}},
	{sender: "linear", auth: "linear %s", needed: []string{"Linear-Signature"}, timed: time.Minute, ids: []string{"Linear-Delivery"}, success: 200, body: func(n string, at time.Time) string {
		return fmt.Sprintf(`{"type":"Issue","n":%q,"text":"original","webhookTimestamp":%d}`, n, at.UnixMilli())
	}},
	{sender: "sentry", auth: "sentry %s", needed: []string{"Sentry-Hook-Signature"}, ids: []string{"Request-ID"}},
	{sender: "pagerduty", auth: "pagerduty %s", needed: []string{"X-PagerDuty-Signature"}, ids: []string{"event.id"}, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"event":{"id":"01%s","event_type":"incident.triggered","data":{"title":"original"}}}`, n)
	}},
	{sender: "grafana", auth: "grafana %s", needed: []string{"X-Grafana-Alerting-Signature"}, recipe: "grafana", body: grafanaBody},
	{sender: "grafana-timestamp", auth: "grafana %s {\ntimestamp X-Grafana-Alerting-Timestamp 5m\n}",
		needed: []string{"X-Grafana-Alerting-Signature", "X-Grafana-Alerting-Timestamp"}, timed: 5 * time.Minute, recipe: "grafana", body: grafanaBody},
	{sender: "discord", auth: "discord %s", kind: ed25519Seed, needed: []string{"X-Signature-Ed25519", "X-Signature-Timestamp"}, timed: 5 * time.Minute, ids: []string{"id"},
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`{"id":"7860%s","type":2,"data":{"name":"original"}}`, n)
		},
		handshakes: []handshakeTest{
			{method: "POST", signed: true, body: `{"id":"1","application_id":"2","type":1,"token":"a","version":1}`, status: 200, want: `{"type":1}`},
			{method: "POST", signed: true, body: `{"version":1,"application_id":"2","type":0}`, status: 204},
		}},
	{sender: "telegram", auth: "telegram %s", needed: []string{"X-Telegram-Bot-Api-Secret-Token"}, ids: []string{"update_id"}, bodiless: true, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"update_id":%s,"poll":{"question":"original"}}`, n)
	}},
	{sender: "twilio", auth: "twilio %s", lines: "body form", needed: []string{"X-Twilio-Signature"}, ids: []string{"I-Twilio-Idempotency-Token"}, body: func(n string, _ time.Time) string {
		// Sorted and joined, repeated and empty fields, and letters of every kind.
		return "To=%2B15005550001&MediaUrl=b&MediaUrl=a&MediaUrl=b&Body=original+%E2%98%95+%26+%3D&From=%2B15005550006&Empty=&a=1&MessageSid=SM" + url.QueryEscape(n)
	}},
	{sender: "twilio-json", auth: "twilio %s", needed: []string{"X-Twilio-Signature"}, ids: []string{"I-Twilio-Idempotency-Token"}},
	{sender: "hubspot", auth: "hubspot %s", needed: []string{"X-HubSpot-Signature-v3", "X-HubSpot-Request-Timestamp"}, timed: 5 * time.Minute,
		recipe: "hubspot", body: payloadOfRecipe("hubspot", "46911", "CRM")},
	{sender: "zendesk", auth: "zendesk %s", needed: []string{"X-Zendesk-Webhook-Signature", "X-Zendesk-Webhook-Signature-Timestamp"}, timed: 5 * time.Minute,
		ids: []string{"X-Zendesk-Webhook-Invocation-Id"}},
	{sender: "calendly", auth: "calendly %s", needed: []string{"Calendly-Webhook-Signature"}, timed: 3 * time.Minute,
		recipe: "calendly", body: payloadOfRecipe("calendly", "AFHAE4RDHQMHXBVC", "Introduction")},
	{sender: "square", auth: "square %s", needed: []string{"X-Square-HmacSha256-Signature"}, ids: []string{"event_id"}, body: eventBody("event_id")},
	{sender: "typeform", auth: "typeform %s", needed: []string{"Typeform-Signature"}, ids: []string{"event_id"}, body: eventBody("event_id")},
	{sender: "intercom", auth: "intercom %s", needed: []string{"X-Hub-Signature"}, ids: []string{"id"}, body: eventBody("id"),
		handshakes: []handshakeTest{{method: "HEAD", status: 200}}},
	{sender: "mailgun", auth: "mailgun %s", timed: 5 * time.Minute, ids: []string{"event-data.id"}, bodiless: true, success: 200, body: func(n string, _ time.Time) string {
		return fmt.Sprintf(`{"event-data":{"id":%q,"event":"failed","reason":"original"}}`, n)
	}},
	{sender: "sendgrid", auth: "sendgrid %s", kind: ecdsaKey, ids: []string{"*.sg_event_id"},
		needed: []string{"X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"}, timed: 5 * time.Minute,
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`[{"sg_event_id":"a%s","reason":"original"},{"sg_event_id":"b%[1]s"}]`, n)
		}},
	{sender: "teams", auth: "teams %s", kind: base64Secret, needed: []string{"Authorization"}, ids: []string{"id"}, success: 200, body: eventBody("id")},
	{sender: "notion", auth: "notion %s", needed: []string{"X-Notion-Signature"}, ids: []string{"id"}, success: 200, body: eventBody("id"),
		handshakes: []handshakeTest{
			{method: "POST", signed: true, body: `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}`, status: 200, want: "{}"},
			{method: "POST", hook: "notion-without-secret", body: `{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}`, status: 200, want: "{}"},
		}},
	{sender: "zoom", auth: "zoom %s", needed: []string{"x-zm-signature", "x-zm-request-timestamp"}, timed: 5 * time.Minute, success: 200,
		recipe: "zoom", body: payloadOfRecipe("zoom", "4444AAAiAAAAAiAiAiiAii==", "Weekly"),
		handshakes: []handshakeTest{{method: "POST", signed: true, status: 200,
			body: `{"payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"},"event_ts":1654503849680,"event":"endpoint.url_validation"}`}}},
	{sender: "meta", auth: "meta %s {\nverify_token a-verify-token\n}", needed: []string{"X-Hub-Signature-256"}, success: 200,
		ids: []string{"entry.*.changes.*.value.messages.*.id"},
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`{"entry":[{"changes":[{"value":{"messages":[{"id":"wamid.%s","text":{"body":"original"}}]}}]}]}`, n)
		},
		handshakes: []handshakeTest{
			{method: "GET", query: "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=a-verify-token", status: 200, want: "1158201444"},
			{method: "GET", query: "?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=another", status: 401},
		}},
	{sender: "dropbox", auth: "dropbox %s", needed: []string{"X-Dropbox-Signature"}, success: 200,
		recipe: "dropbox", body: payloadOfRecipe("dropbox", "dbid:AAH4f99T0taONIb-OurWxbNQ6ywGRopQngc", "delta"),
		handshakes: []handshakeTest{{method: "GET", query: "?challenge=%3Ca%3E", status: 200, want: "<a>"}}},
	{sender: "graph", auth: "graph %s", bodiless: true, ids: []string{"value.*.id"},
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`{"value":[{"id":"a%s","changeType":"original"},{"id":"b%[1]s"}]}`, n)
		},
		handshakes: []handshakeTest{{method: "POST", query: "?validationToken=Validation%3A+1", status: 200, want: "Validation: 1"}}},
	{sender: "eventgrid", auth: "eventgrid %s", bodiless: true, ids: []string{"*.id"},
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`[{"id":"a%s","subject":"original"},{"id":"b%[1]s"}]`, n)
		},
		handshakes: []handshakeTest{
			{method: "POST", signed: true, headers: []string{"aeg-event-type", "SubscriptionValidation"}, status: 200, want: `{"validationResponse":"512d38b6"}`,
				body: `[{"id":"2d1781af","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6"}}]`},
			{method: "OPTIONS", headers: []string{"WebHook-Request-Origin", "eventgrid.azure.net"}, status: 200},
		}},
	{sender: "standard", auth: "standard %s", kind: standardSecret, needed: standardHeaders("webhook"), timed: 5 * time.Minute, ids: []string{"webhook-id"}},
	{sender: "svix", auth: "standard %s", kind: standardSecret, needed: standardHeaders("svix"), timed: 5 * time.Minute, ids: []string{"svix-id"}},
	{sender: "github-actions", auth: "oidc github-actions {\naudience " + audience + "\nclaim repository octo/shop\nkeys %s\n}", kind: issuerKey, nobody: true,
		needed: []string{"Authorization"}, timed: 5 * time.Minute, bodiless: true},
	{sender: "gitlab-ci", auth: "oidc https://gitlab.com {\naudience " + audience + "\nclaim project_path octo/shop\nkeys %s\n}", kind: issuerKey, nobody: true,
		needed: []string{"Authorization"}, timed: 5 * time.Minute, bodiless: true},
	{sender: "google", auth: "oidc google {\naudience " + audience + "\nclaim email push@octo.iam.gserviceaccount.com\nkeys %s\n}", kind: issuerKey, nobody: true,
		needed: []string{"Authorization"}, timed: 5 * time.Minute, bodiless: true, ids: []string{"message.messageId"},
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`{"message":{"messageId":%q,"data":"original"}}`, n)
		}},
	{sender: "token", auth: "token %s", needed: []string{"Authorization"}, bodiless: true, nobody: true, ids: []string{"Idempotency-Key"}, sameBody: true},
	{sender: "hmac", auth: "hmac X-Signature %[2]s sha256= {\nsecret %[1]s\nsigned \"{@header.X-Timestamp}.{@body}\"\ntimestamp X-Timestamp 5m\n}",
		needed: []string{"X-Signature", "X-Timestamp"}, timed: 5 * time.Minute, nobody: true},
	{sender: "hmac-rfc3339", auth: "hmac X-Signature %[2]s {\nsecret %[1]s\nsigned \"{@time}.{@body}\"\ntimestamp X-Timestamp 5m rfc3339\n}",
		needed: []string{"X-Signature", "X-Timestamp"}, timed: 5 * time.Minute, nobody: true},
	{sender: "hmac-entry", auth: "hmac X-Signature %[2]s v1= {\nsecret %[1]s\nsigned \"{@time}.{@body}\"\ntimestamp t= 5m milliseconds\nkey_encoding base64\n}",
		kind: base64Secret, needed: []string{"X-Signature"}, timed: 5 * time.Minute, nobody: true},
	{sender: "cloudevents", auth: "token %s", lines: "body cloudevents", needed: []string{"Authorization"}, bodiless: true, nobody: true, ids: []string{"id"},
		body: func(n string, _ time.Time) string {
			return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop","type":"order.paid","data":{"text":"original"}}`, n)
		},
		handshakes: []handshakeTest{{method: "OPTIONS", headers: []string{"WebHook-Request-Origin", "events.example.com"}, status: 200}}},
	{sender: "cloudevents-binary", auth: "token %s", lines: "body cloudevents", needed: []string{"Authorization"}, bodiless: true, nobody: true, ids: []string{"ce-id"}},
	{sender: "token-header", auth: "token %s {\nheader X-Api-Key\n}", needed: []string{"X-Api-Key"}, bodiless: true, nobody: true, ids: []string{"Idempotency-Key"}, sameBody: true},
	{sender: "hmac512", auth: "hmac X-Signature %[2]s {\nsecret %[1]s\nalgorithm sha512\n}", needed: []string{"X-Signature"}, nobody: true},
}

// eventBody is a body with the sender's id of the request in a member.
func eventBody(member string) func(n string, at time.Time) string {
	return func(n string, _ time.Time) string { return fmt.Sprintf(`{%q:"id-%s","text":"original"}`, member, n) }
}

var grafanaBody = payloadOfRecipe("grafana", "c6eadffa33fcdf37", "The disk of web-3 is full")

// payloadOfRecipe is the payload of a recipe on one line, with the number of the event at the end of what names it, and with a text that
// may differ when the event is repeated.
func payloadOfRecipe(recipe, id, text string) func(n string, at time.Time) string {
	return func(n string, _ time.Time) string {
		var payload bytes.Buffer
		if err := json.Compact(&payload, fileOfRecipe(recipe, "payload.json")); err != nil {
			panic(err)
		}
		return strings.NewReplacer(id, id+n, text, "original").Replace(payload.String())
	}
}

func fileOfRecipe(recipe, name string) []byte {
	data, err := os.ReadFile(filepath.Join(root, "examples", "senders", recipe, name))
	if err != nil {
		panic(err)
	}
	return data
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

// scheme is the name of the scheme.
func (c schemeTest) scheme() string { return strings.Fields(c.auth)[0] }

// hook is the hook for the sender, with the secrets of these names.
func (c schemeTest) hook(keys string, names ...string) string {
	var secrets []string
	for _, name := range names {
		_, secret := c.secret(name)
		secrets = append(secrets, secret)
	}
	if c.kind == issuerKey {
		secrets = []string{keys}
	}
	auth := fmt.Sprintf(c.auth, strings.Join(secrets, " "))
	if strings.Contains(c.auth, "%[2]s") {
		auth = fmt.Sprintf(c.auth, strings.Join(secrets[1:], " "), secrets[0])
		auth = strings.Replace(auth, "secret \n", "", 1)
	}
	lines := c.lines + "\nchat_id all"
	if c.recipe != "" {
		lines = strings.Join(c.recipeLines(), "\n")
	}
	return fmt.Sprintf("hook %s {\naction agent\nauth %s\n%s\ntemplate hello\n}\n", c.sender, auth, lines)
}

var runsOfRecipe = regexp.MustCompile(`(?m)^\t+((?:each|only|once|fold|chat_id) .*)$`)

// recipeLines are the lines of the recipe that say which events become runs. A turn of fold begins with the third run, instead of after a while.
func (c schemeTest) recipeLines() (lines []string) {
	for _, line := range runsOfRecipe.FindAllSubmatch(fileOfRecipe(c.recipe, "Caddyfile"), -1) {
		lines = append(lines, strings.Replace(string(line[1]), " latest", " 3 latest", 1))
	}
	return lines
}

// recognised is the directive of the recipe that recognises repeated events: once or fold, "" for none.
func (c schemeTest) recognised() string {
	if c.recipe != "" {
		for _, line := range c.recipeLines() {
			if directive, _, _ := strings.Cut(line, " "); directive == "once" || directive == "fold" {
				return directive
			}
		}
	}
	return ""
}

// schemeSite is a site with a hook for each sender.
type schemeSite struct {
	*hookstest.Server
	signer     *signer
	keys       string // the URL with the keys of issuers
	sent       atomic.Int64
	signatures sync.Map // that were sent, with their senders
}

func startSchemeSite(t *testing.T, secrets ...string) *schemeSite {
	t.Helper()
	public, _ := issuerKeyOf("old").Public().(ed25519.PublicKey)
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(keys.Close)
	s := &schemeSite{Server: hookstest.StartProcess(t, "respond 404"), signer: startSigner(t), keys: keys.URL}
	// Every request comes from another address: bad credentials from one are answered 429 after a while.
	s.Globals = "servers {\ntrusted_proxies static 127.0.0.1\n}\n"
	s.Load(s.hooks(secrets...))
	return s
}

// hooks are all hooks, which know the secrets of these names.
func (s *schemeSite) hooks(secrets ...string) string {
	hooks := "hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner echo\nstore memory\ncallbacks {\nallow 127.0.0.1\nports *\n}\n" +
		"hook notion-without-secret {\nauth notion\n}\n"
	for _, c := range schemeTests {
		hooks += c.hook(s.keys, secrets...)
	}
	return hooks + "}"
}

// unsignedBody is the body before it is signed, which is the same afterwards unless the signature is part of it.
func (c schemeTest) unsignedBody(n string, at time.Time) string {
	if c.body != nil {
		return c.body(n, at)
	}
	return fmt.Sprintf(`{"n":%q,"text":"original","at":%d}`, n, at.Unix())
}

// signed is the request of a number, as the sender makes it at a time.
func (s *schemeSite) signed(t testing.TB, c schemeTest, secret, n string, at time.Time) signedRequest {
	t.Helper()
	return s.signedBody(t, c, secret, n, at, c.unsignedBody(n, at))
}

// signedBody is a request with this body.
func (s *schemeSite) signedBody(t testing.TB, c schemeTest, secret, n string, at time.Time, body string) signedRequest {
	t.Helper()
	key, _ := c.secret(secret)
	q := question{c.sender, key, s.URL + "/api/hooks/" + c.sender, body, at.Unix(), "id-" + n}
	if c.kind == issuerKey {
		return signedRequest{url: q.URL, body: body, headers: []string{"Authorization", "Bearer " + issuedToken(c.sender, secret, at)}}
	}
	return s.signer.sign(t, q)
}

// issuerKeyOf is the key of an issuer.
func issuerKeyOf(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name[:1], ed25519.SeedSize)))
}

// issuedToken is a token of an issuer for a time.
func issuedToken(sender, secret string, at time.Time) string {
	claims := map[string]string{
		"github-actions": `"iss":"https://token.actions.githubusercontent.com","repository":"octo/shop"`,
		"gitlab-ci":      `"iss":"https://gitlab.com","project_path":"octo/shop"`,
		"google":         `"iss":"https://accounts.google.com","email":"push@octo.iam.gserviceaccount.com","email_verified":true`,
	}[sender]
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." +
		encode(fmt.Appendf(nil, `{%s,"aud":%q,"iat":%d,"exp":%d}`, claims, audience, at.Unix(), at.Add(4*time.Minute).Unix()))
	return signed + "." + encode(ed25519.Sign(issuerKeyOf(secret), []byte(signed)))
}

// send sends a request from an address of its own.
func (s *schemeSite) send(t testing.TB, r signedRequest) hookstest.Response {
	t.Helper()
	return s.sendAs(t, "POST", r)
}

func (s *schemeSite) sendAs(t testing.TB, method string, r signedRequest, headers ...string) hookstest.Response {
	t.Helper()
	n := s.sent.Add(1)
	headers = slices.Concat([]string{"X-Forwarded-For", fmt.Sprintf("10.%d.%d.1", n/250, n%250)}, headers, r.headers)
	resp, err := hookstest.TryRequest(method, r.url, r.body, headers...)
	for tries := 0; err != nil && tries < 5; tries++ { // a reload breaks connections
		resp, err = hookstest.TryRequest(method, r.url, r.body, headers...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp
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
