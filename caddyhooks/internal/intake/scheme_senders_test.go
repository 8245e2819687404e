package intake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// signedRequest signs a body as a sender does, independently of package auth. The first header has the signature.
type signedRequest func(secret, body string, at time.Time) (headers []string)

func sum256(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func hex256(secret, text string) string { return hex.EncodeToString(sum256(secret, text)) }

// discordKey is a private key made from a public one's secret, for tests alone.
func discordKey(seed string) ed25519.PrivateKey {
	sum := sha256.Sum256([]byte(seed))
	return ed25519.NewKeyFromSeed(sum[:])
}

func signStandard(family string) signedRequest {
	return func(secret, body string, at time.Time) []string {
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		signature := base64.StdEncoding.EncodeToString(sum256(string(key), fmt.Sprintf("msg_1.%d.%s", at.Unix(), body)))
		return []string{family + "Signature", "v1," + signature, family + "Id", "msg_1", family + "Timestamp", fmt.Sprint(at.Unix())}
	}
}

const twilioURL = "https://example.com/api/hooks/twilio?a=b"

// How each sender signs, two secrets of it, and what it says beside the table.
var senderTests = map[string]struct {
	sign           signedRequest
	secret, second string
	body           string
	mapping        func(m *settings.Mapping)
	token          bool // the body is not signed
}{
	"github": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Hub-Signature-256", "sha256=" + hex256(secret, body)}
	}},
	"bitbucket": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Hub-Signature", "sha256=" + hex256(secret, body)}
	}},
	"gitlab": {sign: func(secret, _ string, _ time.Time) []string { return []string{"X-Gitlab-Token", secret} }, token: true},
	"gitlab signed": {sign: signStandard("Webhook-"), secret: "whsec_c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ==",
		second: "whsec_b3RoZXItc2VjcmV0LTAxMjM0NTY3ODk="},
	"stripe": {sign: func(secret, body string, at time.Time) []string {
		return []string{"Stripe-Signature", fmt.Sprintf("t=%d,v1=%s,v0=%s", at.Unix(), hex256(secret, fmt.Sprintf("%d.%s", at.Unix(), body)),
			strings.Repeat("0", 64))}
	}, secret: "whsec_test_secret"},
	"slack": {sign: func(secret, body string, at time.Time) []string {
		return []string{"X-Slack-Signature", "v0=" + hex256(secret, fmt.Sprintf("v0:%d:%s", at.Unix(), body)), "X-Slack-Request-Timestamp",
			fmt.Sprint(at.Unix())}
	}},
	"shopify": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(sum256(secret, body))}
	}},
	"linear": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"Linear-Signature", hex256(secret, body)}
	}, body: `{"webhookTimestamp":%d}`},
	"sentry": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"Sentry-Hook-Signature", hex256(secret, body)}
	}},
	"pagerduty": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Pagerduty-Signature", "v1=" + strings.Repeat("0", 64) + ",v1=" + hex256(secret, body)}
	}},
	"grafana": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Grafana-Alerting-Signature", hex256(secret, body)}
	}},
	"grafana timed": {sign: func(secret, body string, at time.Time) []string {
		return []string{"X-Grafana-Alerting-Signature", hex256(secret, fmt.Sprintf("%d:%s", at.Unix(), body)), "X-Time", fmt.Sprint(at.Unix())}
	}, mapping: func(m *settings.Mapping) { m.TimestampHeader = "x-time" }},
	"discord": {sign: func(secret, body string, at time.Time) []string {
		key := discordKey("first")
		if secret != hex.EncodeToString(key.Public().(ed25519.PublicKey)) {
			key = discordKey("second")
		}
		return []string{"X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(key, []byte(fmt.Sprint(at.Unix(), "")+body))),
			"X-Signature-Timestamp", fmt.Sprint(at.Unix())}
	}, secret: hex.EncodeToString(discordKey("first").Public().(ed25519.PublicKey)),
		second: hex.EncodeToString(discordKey("second").Public().(ed25519.PublicKey))},
	"telegram": {sign: func(secret, _ string, _ time.Time) []string {
		return []string{"X-Telegram-Bot-Api-Secret-Token", secret}
	}, token: true},
	"twilio": {sign: func(secret, _ string, _ time.Time) []string {
		mac := hmac.New(sha1.New, []byte(secret))
		mac.Write([]byte(twilioURL + "BodyhelloFrom+1SidaSidb"))
		return []string{"X-Twilio-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil))}
	}, body: "From=%%2B1&Sid=b&Sid=a&Sid=b&Body=hello"},
	"standard": {sign: signStandard("Webhook-"), secret: "whsec_c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ==",
		second: "b3RoZXItc2VjcmV0LTAxMjM0NTY3ODk="},
	"standard svix": {sign: signStandard("Svix-"), secret: "whsec_c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ==",
		second: "b3RoZXItc2VjcmV0LTAxMjM0NTY3ODk="},
	"hubspot": {sign: func(secret, body string, at time.Time) []string {
		return []string{"X-HubSpot-Signature-v3", base64.StdEncoding.EncodeToString(sum256(secret, fmt.Sprint("POST", twilioURL, body, at.UnixMilli()))),
			"X-HubSpot-Request-Timestamp", fmt.Sprint(at.UnixMilli())}
	}},
	"zendesk": {sign: func(secret, body string, at time.Time) []string {
		stamp := at.UTC().Format(time.RFC3339)
		return []string{"X-Zendesk-Webhook-Signature", base64.StdEncoding.EncodeToString(sum256(secret, stamp+body)),
			"X-Zendesk-Webhook-Signature-Timestamp", stamp}
	}},
	"calendly": {sign: func(secret, body string, at time.Time) []string {
		return []string{"Calendly-Webhook-Signature", fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex256(secret, fmt.Sprintf("%d.%s", at.Unix(), body)))}
	}},
	"square": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Square-Hmacsha256-Signature", base64.StdEncoding.EncodeToString(sum256(secret, twilioURL+body))}
	}},
	"typeform": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"Typeform-Signature", "sha256=" + base64.StdEncoding.EncodeToString(sum256(secret, body))}
	}},
	"intercom": {sign: func(secret, body string, _ time.Time) []string {
		mac := hmac.New(sha1.New, []byte(secret))
		mac.Write([]byte(body))
		return []string{"X-Hub-Signature", "sha1=" + hex.EncodeToString(mac.Sum(nil))}
	}},
	"sendgrid": {sign: func(secret, body string, at time.Time) []string {
		key := sendgridKey("first")
		if secret != sendgridPublic("first") {
			key = sendgridKey("second")
		}
		digest := sha256.Sum256([]byte(fmt.Sprint(at.Unix(), body)))
		signature, _ := key.Sign(nil, digest[:], crypto.SHA256) // the same each time
		return []string{"X-Twilio-Email-Event-Webhook-Signature", base64.StdEncoding.EncodeToString(signature),
			"X-Twilio-Email-Event-Webhook-Timestamp", fmt.Sprint(at.Unix())}
	}, secret: sendgridPublic("first"), second: sendgridPublic("second")},
	"teams": {sign: func(secret, body string, _ time.Time) []string {
		key, _ := base64.StdEncoding.DecodeString(secret)
		return []string{"Authorization", "HMAC " + base64.StdEncoding.EncodeToString(sum256(string(key), body))}
	}, secret: "c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ==", second: "b3RoZXItc2VjcmV0LTAxMjM0NTY3ODk="},
	"notion": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Notion-Signature", "sha256=" + hex256(secret, body)}
	}},
	"zoom": {sign: func(secret, body string, at time.Time) []string {
		return []string{"x-zm-signature", "v0=" + hex256(secret, fmt.Sprintf("v0:%d:%s", at.Unix(), body)), "x-zm-request-timestamp", fmt.Sprint(at.Unix())}
	}},
	"meta": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Hub-Signature-256", "sha256=" + hex256(secret, body)}
	}},
	"dropbox": {sign: func(secret, body string, _ time.Time) []string {
		return []string{"X-Dropbox-Signature", hex256(secret, body)}
	}},
	"eventgrid": {sign: func(secret, _ string, _ time.Time) []string { return []string{"X-Service-Token", secret} }, token: true},
	"hmac entry": {sign: func(secret, body string, at time.Time) []string {
		return []string{"X-Sig", fmt.Sprintf("ts=%d,v1=%s", at.UnixMilli(), hex256(secret, fmt.Sprintf("%d.%s", at.UnixMilli(), body)))}
	}, mapping: func(m *settings.Mapping) {
		m.HMACHeader, m.HMACSecret, m.AuthSecret, m.HMACPrefix = "X-Sig", m.AuthSecret, nil, "v1="
		m.TimestampHeader, m.TimestampFormat, m.Signed = "ts=", "milliseconds", "{@time}.{@body}"
	}},
	"hmac rfc3339": {sign: func(secret, body string, at time.Time) []string {
		key, _ := base64.StdEncoding.DecodeString(secret)
		stamp := at.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano)
		return []string{"X-Sig", hex256(string(key), stamp+body), "X-Time", stamp}
	}, secret: "c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ==", second: "b3RoZXItc2VjcmV0LTAxMjM0NTY3ODk=", mapping: func(m *settings.Mapping) {
		m.HMACHeader, m.HMACSecret, m.AuthSecret, m.KeyEncoding = "X-Sig", m.AuthSecret, nil, "base64"
		m.TimestampHeader, m.TimestampFormat, m.Signed = "X-Time", "rfc3339", "{@header.X-Time}{@body}"
	}},
	"token header": {sign: func(secret, _ string, _ time.Time) []string { return []string{"X-Api-Key", secret} }, token: true,
		mapping: func(m *settings.Mapping) { m.AuthHeader = "x-api-key" }},
	"hmac timed": {sign: func(secret, body string, at time.Time) []string {
		return []string{"X-Sig", hex256(secret, fmt.Sprintf("%d.%s", at.Unix(), body)), "X-Time", fmt.Sprint(at.Unix())}
	}, mapping: func(m *settings.Mapping) {
		m.HMACHeader, m.HMACSecret, m.AuthSecret = "X-Sig", m.AuthSecret, nil
		m.TimestampHeader, m.Signed = "X-Time", "{@header.x-time}.{@body}"
	}},
	"token": {sign: func(secret, _ string, _ time.Time) []string { return []string{"Authorization", "Bearer " + secret} }, token: true},
}

// sendgridKey is a private key for tests alone.
func sendgridKey(seed string) *ecdsa.PrivateKey {
	sum := sha256.Sum256([]byte(seed))
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), sum[:])
	if err != nil {
		panic(err)
	}
	return key
}

func sendgridPublic(seed string) string {
	der, err := x509.MarshalPKIXPublicKey(sendgridKey(seed).Public())
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func TestEverySenderIsTested(t *testing.T) {
	t.Parallel()
	for _, s := range settings.Senders {
		if _, ok := senderTests[s.Name]; !ok && s.Headers != nil { // those without are in TestSendersWithASignatureInTheBody
			t.Errorf("%s is not", s.Name)
		}
	}
}

func TestSendersAreTakenAndForgersAreNot(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for name, c := range senderTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := c.secret, c.second
			if first == "" {
				first = "first-secret-0123456789"
			}
			if second == "" {
				second = "second-secret-0123456789"
			}
			scheme, _, _ := strings.Cut(name, " ")
			compile := func(secrets ...string) settings.Authentication {
				m := &settings.Mapping{Name: "a", AuthMode: scheme, AuthSecret: secrets}
				if c.mapping != nil {
					c.mapping(m)
				}
				a, err := m.Authentication(settings.HookSecrets{Tokens: auth.NewTokens("shared-token"),
					Resolve: func(s string) (string, error) { return s, nil }})
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			bodyAt := func(at time.Time) string {
				if c.body == "" {
					return `{"a":1}`
				}
				body := fmt.Sprintf(c.body, at.UnixMilli())
				body, _, _ = strings.Cut(body, "%!(EXTRA")
				return body
			}
			request := func(body string, headers []string) *auth.Request {
				header := make(http.Header)
				for i := 0; i < len(headers); i += 2 {
					header.Set(headers[i], headers[i+1])
				}
				return &auth.Request{Header: header, Body: []byte(body), Now: now, URL: func() string { return twilioURL }}
			}
			want := func(what string, a settings.Authentication, req *auth.Request, ok, missing bool) {
				t.Helper()
				if got := a.Verifier.Verify(req); got.OK != ok || got.Missing != missing || ok != (got.Reason == "") {
					t.Errorf("%s: got %+v", what, got)
				}
			}
			a, body := compile(first), bodyAt(now)
			good := c.sign(first, body, now)
			want("a good request", a, request(body, good), true, false)
			want("the second secret", compile(second, first), request(body, good), true, false)
			want("eight secrets", compile(append(slices.Repeat([]string{second}, 7), first)...), request(body, good), true, false)
			want("another secret", compile(second), request(body, good), false, false)
			want("nothing", a, request(body, nil), false, true)
			want("the shared token", a, request(body, []string{"Authorization", "Bearer shared-token", "X-Service-Token", "shared-token"}), false,
				!slices.Contains([]string{"token", "eventgrid", "teams"}, name)) // which read the same headers
			if !c.token {
				want("an altered body", a, request(strings.Replace(body, "a", "b", 1), good), false, false)
				want("more after the body", a, request(body+" ", good), false, false)
			}
			for i := 0; i < len(good); i += 2 {
				without := slices.Delete(slices.Clone(good), i, i+2)
				want("without "+good[i], a, request(body, without), false, true)
				for _, value := range []string{"x", ",", " ", "v1=", "t=,v1=", "0" + good[i+1] + "0", strings.Repeat("0", 64), "\x00",
					strings.Repeat("9", 400)} {
					malformed := slices.Clone(good)
					malformed[i+1] = value
					if got := a.Verifier.Verify(request(body, malformed)); got.OK {
						t.Errorf("%s: %q is taken", good[i], value)
					}
				}
			}
			_, timed := a.Verifier.(auth.Timed)
			key := a.ReplayKey("hook", request(body, good))
			if isTimed := key != nil; isTimed != (timed && !bytesEqualAt(c.sign, first, bodyAt)) {
				t.Errorf("has a key for replays: %v", isTimed)
			} else if isTimed {
				for off, ok := range map[time.Duration]bool{-a.Tolerance: true, a.Tolerance: true, -a.Tolerance - time.Second: false, a.Tolerance +
					time.Second: false, -time.Hour * 24 * 365: false} {
					body := bodyAt(now.Add(off))
					want(fmt.Sprint("off by ", off), a, request(body, c.sign(first, body, now.Add(off))), ok, false)
				}
				if again := a.ReplayKey("hook", request(body, good)); *again != *key {
					t.Error("the same request has another key")
				}
				other := bodyAt(now.Add(time.Second))
				if later := a.ReplayKey("hook", request(other, c.sign(first, other, now.Add(time.Second)))); later.ID == key.ID {
					t.Error("a later request has the same key")
				}
				if elsewhere := a.ReplayKey("other", request(body, good)); elsewhere.ID == key.ID {
					t.Error("a request to another hook has the same key")
				}
			}
			if !a.HidesHeader(good[0]) && good[0] != "Authorization" {
				t.Errorf("%s is not hidden", good[0])
			}
			if signer, ok := a.Verifier.(auth.Signer); ok && !c.token {
				made := request(body, nil)
				headers, url := signer.Sign(made)
				for _, h := range headers {
					made.Header.Set(h.Name, h.Value)
				}
				made.URL = func() string { return url }
				if !a.HidesHeader(headers[len(headers)-1].Name) {
					t.Errorf("the signature is not the last of %v", headers)
				}
				want("a request signed here", a, made, true, false)
			} else if !c.token && scheme != "discord" && scheme != "sendgrid" {
				t.Error("cannot sign")
			}
		})
	}
}

// Mailgun and Microsoft Graph have no header. Neither signs the body, so a signature of Mailgun's is good once.
func TestSendersWithASignatureInTheBody(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	mailgun := func(secret, token string, at time.Time) string {
		return fmt.Sprintf(`{"signature":{"timestamp":"%d","token":%q,"signature":"%s"},"event-data":{"id":"e1"}}`, at.Unix(), token,
			hex256(secret, fmt.Sprint(at.Unix(), token)))
	}
	form := func(secret string) string {
		return fmt.Sprintf("sender=a&timestamp=%d&token=abc&signature=%s", now.Unix(), hex256(secret, fmt.Sprint(now.Unix(), "abc")))
	}
	good := mailgun("first", "123abc", now)
	const graph = `{"value":[{"clientState":"first","changeType":"created"},{"clientState":"second"}]}`
	for _, c := range []struct {
		what, scheme, body string
		ok, missing        bool
	}{
		{"a good request", "mailgun", good, true, false},
		{"the second secret", "mailgun", mailgun("second", "t", now), true, false},
		{"a form", "mailgun", form("first"), true, false},
		{"a form of another secret", "mailgun", form("other"), false, false},
		{"another secret", "mailgun", mailgun("other", "t", now), false, false},
		{"one bit", "mailgun", strings.Replace(good, "123abc", "123abb", 1), false, false},
		{"digits of the token as part of the time", "mailgun", strings.Replace(strings.Replace(good, `"123abc`, `"abc`, 1), "1700000000", "1700000000123", 1), false, false},
		{"old", "mailgun", mailgun("first", "t", now.Add(-5*time.Minute-time.Second)), false, false},
		{"ahead", "mailgun", mailgun("first", "t", now.Add(5*time.Minute+time.Second)), false, false},
		{"within the tolerance", "mailgun", mailgun("first", "t", now.Add(-5*time.Minute)), true, false},
		{"unsigned", "mailgun", `{"event-data":{}}`, false, true},
		{"an empty body", "mailgun", ``, false, true},
		{"no JSON and no form", "mailgun", `{%zz`, false, true},
		{"without a token", "mailgun", strings.Replace(good, `"token":"123abc",`, "", 1), false, true},
		{"a signature that is no text", "mailgun", `{"signature":{"timestamp":1,"token":["a"],"signature":{}}}`, false, true},

		{"two secrets", "graph", graph, true, false},
		{"one bit", "graph", strings.Replace(graph, `"first"`, `"firsu"`, 1), false, false},
		{"one bit of the last", "graph", strings.Replace(graph, `"second"`, `"secone"`, 1), false, false},
		{"a secret that is escaped", "graph", `{"value":[{"clientState":"\u0066irst"}]}`, true, false},
		{"one notification without", "graph", `{"value":[{"clientState":"first"},{}]}`, false, true},
		{"none", "graph", `{"value":[]}`, false, true},
		{"beside the notifications", "graph", `{"value":[{}],"clientState":"first"}`, false, true},
		{"twice", "graph", `{"value":[{"clientState":"other","clientState":"first"}]}`, false, true},
		{"a number", "graph", `{"value":[{"clientState":1}]}`, false, true},
		{"no JSON", "graph", `first`, false, true},
		{"no object", "graph", `[{"clientState":"first"}]`, false, true},
	} {
		m := &settings.Mapping{AuthMode: c.scheme, AuthSecret: settings.Secrets{"first", "second"}}
		a, err := m.Authentication(settings.HookSecrets{Resolve: func(s string) (string, error) { return s, nil }})
		if err != nil {
			t.Fatal(err)
		}
		req := &auth.Request{Header: make(http.Header), Body: []byte(c.body), Now: now}
		if got := a.Verifier.Verify(req); got.OK != c.ok || got.Missing != c.missing || c.ok != (got.Reason == "") {
			t.Errorf("%s, %s: got %+v", c.scheme, c.what, got)
		}
		if c.scheme == "mailgun" && c.ok {
			altered := &auth.Request{Header: req.Header, Body: []byte(strings.NewReplacer(`"e1"`, `"e2"`, "sender=a", "sender=b").Replace(c.body)), Now: now}
			if key := a.ReplayKey("hook", altered); key == nil || *key != *a.ReplayKey("hook", req) {
				t.Errorf("%s: another body with the same signature is no replay", c.what)
			}
		}
		if shown := string(a.WithoutSecrets([]byte(c.body))); c.scheme == "graph" && c.ok && strings.Contains(shown, `:"first"`) {
			t.Errorf("%s: the secret stays in %s", c.what, shown)
		}
	}
}

// bytesEqualAt reports whether a request of another time is the same, so that it cannot have a timestamp.
func bytesEqualAt(sign signedRequest, secret string, bodyAt func(time.Time) string) bool {
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	return bodyAt(a) == bodyAt(b) && slices.Equal(sign(secret, bodyAt(a), a), sign(secret, bodyAt(b), b))
}

func TestVectorsOfSenders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme, secret, body string
		at                   int64
		headers              []string
	}{
		{"github", "It's a Secret to Everybody", "Hello, World!", 0,
			[]string{"X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		{"standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `{"test": 2432232314}`, 1614265330,
			[]string{"Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330", "Webhook-Signature",
				"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}},
		{"slack", "8f742231b10e8888abcd99yyyzzz85a5",
			"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c", 1531420618,
			[]string{"X-Slack-Request-Timestamp", "1531420618", "X-Slack-Signature",
				"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"}},
		{"sendgrid", "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==",
			`[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",` +
				`"sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0",` +
				`"smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]` + "\r\n", 1600112502,
			[]string{"X-Twilio-Email-Event-Webhook-Timestamp", "1600112502", "X-Twilio-Email-Event-Webhook-Signature",
				"MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="}},
	} {
		m := &settings.Mapping{AuthMode: c.scheme, AuthSecret: settings.Secrets{c.secret}}
		a, err := m.Authentication(settings.HookSecrets{Resolve: func(s string) (string, error) { return s, nil }})
		if err != nil {
			t.Fatal(err)
		}
		header := make(http.Header)
		for i := 0; i < len(c.headers); i += 2 {
			header.Set(c.headers[i], c.headers[i+1])
		}
		req := &auth.Request{Header: header, Body: []byte(c.body), Now: time.Unix(c.at, 0)}
		if got := a.Verifier.Verify(req); !got.OK {
			t.Errorf("%s: got %+v", c.scheme, got)
		}
		req.Body = append(req.Body, '.')
		if got := a.Verifier.Verify(req); got.OK {
			t.Errorf("%s: another body is taken", c.scheme)
		}
	}
}

// HubSpot signs the URL with some of its characters decoded.
func TestHubSpotDecodesTheURL(t *testing.T) {
	t.Parallel()
	a, err := (&settings.Mapping{AuthMode: "hubspot",
		AuthSecret: settings.Secrets{"s"}}).Authentication(settings.HookSecrets{Resolve: func(s string) (string, error) { return s, nil }})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	signed := "POST" + "https://example.com/h?a=b:c/d?e@f!%20%26" + "{}" + "1700000000000"
	req := &auth.Request{Body: []byte("{}"), Now: now, URL: func() string { return "https://example.com/h?a=b%3Ac%2fd%3Fe%40f%21%20%26" },
		Header: http.Header{"X-Hubspot-Signature-V3": {base64.StdEncoding.EncodeToString(sum256("s", signed))}, "X-Hubspot-Request-Timestamp": {"1700000000000"}}}
	if got := a.Verifier.Verify(req); !got.OK {
		t.Errorf("got %+v", got)
	}
}

// A bad signature of GitLab is not rescued by a good token beside it.
func TestGitLabSignatureGoesBeforeToken(t *testing.T) {
	t.Parallel()
	const signing = "whsec_c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ=="
	now := time.Unix(1_700_000_000, 0)
	verify := func(secrets settings.Secrets, token string, signed []string) bool {
		t.Helper()
		a, err := (&settings.Mapping{AuthMode: "gitlab",
			AuthSecret: secrets}).Authentication(settings.HookSecrets{Resolve: func(s string) (string, error) { return s, nil }})
		if err != nil {
			t.Fatal(err)
		}
		header := make(http.Header)
		for i := 0; i < len(signed); i += 2 {
			header.Set(signed[i], signed[i+1])
		}
		header.Set("X-Gitlab-Token", token)
		return a.Verifier.Verify(&auth.Request{Header: header, Body: []byte("{}"), Now: now}).OK
	}
	good, bad := signStandard("Webhook-")(signing, "{}", now), signStandard("Webhook-")(signing, "[]", now)
	for _, c := range []struct {
		name    string
		secrets settings.Secrets
		token   string
		signed  []string
		want    bool
	}{
		{"token alone", settings.Secrets{"classic", signing}, "classic", nil, true},
		{"signature alone", settings.Secrets{"classic", signing}, "", good, true},
		{"good signature, wrong token", settings.Secrets{"classic", signing}, "wrong", good, true},
		{"bad signature, good token", settings.Secrets{"classic", signing}, "classic", bad, false},
		{"the signing secret as a token", settings.Secrets{"classic", signing}, signing, nil, false},
		{"no secret for signatures", settings.Secrets{"classic"}, "classic", bad, true},
		{"no secret for tokens", settings.Secrets{signing}, "", nil, false},
	} {
		if got := verify(c.secrets, c.token, c.signed); got != c.want {
			t.Errorf("%s: taken is %v", c.name, got)
		}
	}
}

func TestChallengesAndIDs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme, header, body string
		answer               string
		id, name             string
	}{
		{"slack", "", `{"token":"x","challenge":"abc","type":"url_verification"}`, "200 abc", "", ""},
		{"slack", "", `{"type":"event_callback","event_id":"Ev1","challenge":"abc"}`, "", "Ev1", "event_id"},
		{"slack", "", `{"type":"url_verification","challenge":7}`, "", "", ""},
		{"slack", "", `[1]`, "", "", ""},
		{"discord", "", `{"type":1,"id":"9","application_id":"1"}`, `200 {"type":1}`, "9", "id"},
		{"discord", "", `{"type":0,"application_id":"1","version":1}`, "204 ", "", ""},
		{"discord", "", `{"type":1,"event":{"type":"X"},"version":1}`, "", "", ""},
		{"discord", "", `{"type":2,"id":"9"}`, "", "9", "id"},
		{"github", "X-GitHub-Delivery: d1", `{"id":"x"}`, "", "d1", "X-Github-Delivery"},
		{"bitbucket", "X-Request-UUID: u1", `{}`, "", "u1", "X-Request-Uuid"},
		{"bitbucket", "X-Request-Id: u2", `{}`, "", "u2", "X-Request-Id"},
		{"gitlab", "Idempotency-Key: k", `{}`, "", "k", "Idempotency-Key"},
		{"gitlab", "webhook-id: w", `{}`, "", "w", "Webhook-Id"},
		{"stripe", "", `{"id":"evt_1","type":"a"}`, "", "evt_1", "id"},
		{"stripe", "", `{"id":{"a":1}}`, "", "", ""},
		{"shopify", "X-Shopify-Webhook-Id: s", `{}`, "", "s", "X-Shopify-Webhook-Id"},
		{"linear", "Linear-Delivery: l", `{}`, "", "l", "Linear-Delivery"},
		{"sentry", "Request-ID: r", `{}`, "", "r", "Request-Id"},
		{"pagerduty", "", `{"event":{"id":"01","data":{}}}`, "", "01", "event.id"},
		{"pagerduty", "", `{"event":7}`, "", "", ""},
		{"telegram", "", `{"update_id":10000,"message":{}}`, "", "10000", "update_id"},
		{"twilio", "I-Twilio-Idempotency-Token: i", `{}`, "", "i", "I-Twilio-Idempotency-Token"},
		{"sendgrid", "", `[{"sg_event_id":"a"},{"sg_event_id":"b"}]`, "", "a,b", "*.sg_event_id"},
		{"sendgrid", "", `[{"sg_event_id":"a"},{}]`, "", "", ""},
		{"sendgrid", "", `[]`, "", "", ""},
		{"graph", "", `{"value":[{"id":"a"}]}`, "", "a", "value.*.id"},
		{"graph", "", `{"value":{"id":"a"}}`, "", "", ""},
		{"eventgrid", "", `[{"id":"a"}]`, "", "a", "*.id"},
		{"meta", "", `{"entry":[{"id":"1","changes":[{"value":{"messages":[{"id":"a"},{"id":"b"}]}}]},{"changes":[{"value":{"messages":[{"id":"c"}]}}]}]}`,
			"", "a,b,c", "entry.*.changes.*.value.messages.*.id"},
		{"meta", "", `{"entry":[{"changes":[{"value":{"messages":[{"id":"a"}]}},{"value":{"statuses":[{"id":"a"}]}}]}]}`, "", "", ""},
		{"standard", "svix-id: m", `{}`, "", "m", "Svix-Id"},
		{"grafana", "X-Request-Id: r", `{"id":"x"}`, "", "", ""},
		{"hmac", "X-GitHub-Delivery: d1", `{"id":"x","type":0}`, "", "", ""},
	} {
		a := settings.Authentication{Scheme: settings.FindScheme(c.scheme)}
		selection := new(strictjson.Selection)
		a.SelectParts(selection)
		doc, err := strictjson.ParseSelected([]byte(c.body), selection)
		if err != nil {
			t.Fatal(err)
		}
		header := make(http.Header)
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			header.Set(name, value)
		}
		answer := ""
		if got := a.Challenge(doc); got != nil {
			answer = fmt.Sprint(got.Status, " ", got.Body)
		}
		if answer != c.answer {
			t.Errorf("%s %s: the answer is %q", c.scheme, c.body, answer)
		}
		if id, name := a.DeliveryID(header, doc); id != c.id || name != c.name {
			t.Errorf("%s %s: the id is %q of %q", c.scheme, c.body, id, name)
		}
	}
}

func TestSecretsOfMappingsAreReadAsStringsAndLists(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]settings.Secrets{`"a"`: {"a"}, `["a"]`: {"a"}, `["a","b"]`: {"a", "b"}, `""`: nil, `null`: nil,
		`[]`: {}} {
		m, err := settings.ParseMapping([]byte(`{"name":"x","hmacSecret":` + raw + `,"authSecret":` + raw + `}`))
		if err != nil || !slices.Equal(m.HMACSecret, want) || !slices.Equal(m.AuthSecret, want) {
			t.Errorf("%s: got %v, %v", raw, m.HMACSecret, err)
		}
		stored, err := json.Marshal(m)
		if err != nil || len(want) == 1 && !strings.Contains(string(stored), `"hmacSecret":"a"`) {
			t.Errorf("%s is stored as %s, %v", raw, stored, err)
		}
	}
	for _, raw := range []string{`7`, `{"a":"s3cret"}`, `["s3cret",7]`, `[["s3cret"]]`, `true`} {
		for _, field := range []string{"hmacSecret", "authSecret"} {
			_, err := settings.ParseMapping([]byte(`{"name":"x","` + field + `":` + raw + `}`))
			if err == nil || err.Error() != field+" must be a string or an array of strings" {
				t.Errorf("%s %s: got %v", field, raw, err)
			}
		}
	}
}

func TestMasksOfSecretsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sent, inForce, want settings.Secrets
		err                 string
	}{
		{settings.Secrets{text.Mask}, settings.Secrets{"a"}, settings.Secrets{"a"}, ""},
		{settings.Secrets{text.Mask, text.Mask}, settings.Secrets{"a", "b"}, settings.Secrets{"a", "b"}, ""},
		{settings.Secrets{"c", text.Mask}, settings.Secrets{"a", "b"}, settings.Secrets{"c", "b"}, ""},
		{settings.Secrets{"", text.Mask}, settings.Secrets{"a", "b"}, settings.Secrets{"b"}, ""},
		{settings.Secrets{text.Mask, ""}, settings.Secrets{"a", "b"}, settings.Secrets{"a"}, ""},
		{settings.Secrets{text.Mask, "b"}, settings.Secrets{"a"}, settings.Secrets{"a", "b"}, ""},
		{settings.Secrets{"c"}, settings.Secrets{"a", "b"}, settings.Secrets{"c"}, ""},
		{settings.Secrets{text.Mask}, settings.Secrets{"a", "b"}, nil, "is ambiguous"},
		{settings.Secrets{text.Mask, text.Mask}, settings.Secrets{"a"}, nil, "must be the secret itself"},
		{settings.Secrets{text.Mask}, nil, nil, "must be the secret itself"},
	} {
		got, err := settings.Unmask("secret", c.sent, c.inForce)
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%d sent, %d in force: got %v, %v", len(c.sent), len(c.inForce), got, err)
		}
	}
}

func TestMappingsWithWrongSchemesAreRefused(t *testing.T) {
	t.Parallel()
	secrets := settings.HookSecrets{Tokens: auth.NewTokens("shared-token-0123456789"), Resolve: func(s string) (string, error) {
		if s == "" {
			return "", fmt.Errorf("is empty")
		}
		return s, nil
	}}
	for field, mappings := range map[string][]settings.Mapping{
		"authSecret": {
			{AuthMode: "github"},
			{AuthMode: "stripe", AuthSecret: slices.Repeat(settings.Secrets{"s3cret"}, 9)},
			{AuthMode: "slack", AuthSecret: settings.Secrets{"s3cret", " "}},
			{AuthMode: "standard", AuthSecret: settings.Secrets{"whsec_s3cret!"}},
			{AuthMode: "gitlab", AuthSecret: settings.Secrets{"whsec_s3cret!"}},
			{AuthMode: "discord", AuthSecret: settings.Secrets{"s3cret"}},
			{AuthMode: "token"},
			{AuthMode: "token", AuthSecret: settings.Secrets{"own", "shared-token-0123456789"}},
		},
		"authTolerance": {
			{AuthMode: "stripe", AuthSecret: settings.Secrets{"a"}, AuthTolerance: -1},
			{AuthMode: "slack", AuthSecret: settings.Secrets{"a"}, AuthTolerance: 39601},
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, TimestampHeader: "X-Time", AuthTolerance: -1},
		},
		"algorithm": {{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, Algorithm: "md5"}},
		"hmacHeader": {{AuthMode: "hmac", HMACHeader: "s3cret ", HMACSecret: settings.Secrets{"a"}},
			{AuthMode: "hmac", HMACHeader: "s3cret_", HMACSecret: settings.Secrets{"a"}}},
		"hmacSecret": {{AuthMode: "hmac", HMACHeader: "X-Sig"},
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: slices.Repeat(settings.Secrets{"s3cret"}, 9)}},
		"timestampHeader": {
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, TimestampHeader: "X Time"},
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, TimestampHeader: "x-sig"},
			{AuthMode: "grafana", AuthSecret: settings.Secrets{"a"}, TimestampHeader: "X_Time"},
		},
		"signed": {
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, Signed: "{@header.X-Time}"},
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, Signed: "{@run}.{@body}"},
			{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: settings.Secrets{"a"}, Signed: "{@time}.{@body}"},
		},
		"authMode": {{AuthMode: "none"}, {AuthMode: "nothing"}},
		"from": {
			{AuthMode: "none", From: []string{"somewhere"}}, {From: []string{"192.0.2.0/33"}}, {From: []string{""}},
			{From: []string{"::ffff:192.0.2.0/95"}}, {From: []string{"fe80::1%eth0"}},
		},
	} {
		for _, m := range mappings {
			m.Name = "a"
			_, err := m.Compile(new(settings.Rules), secrets)
			if err == nil || !strings.HasPrefix(err.Error(), field+" ") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: got %v", field, err)
			}
		}
	}
}

func TestFromGoesByAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from []string
		want map[string]bool
	}{
		{nil, map[string]bool{"192.0.2.1": true, "": true}},
		{[]string{"192.0.2.0/24", "2001:db8::1"}, map[string]bool{
			"192.0.2.1": true, "192.0.3.1": false, "::ffff:192.0.2.1": true, "2001:db8::1": true, "2001:db8::2": false, "": false, "x": false,
			"2001:db8::1%eth0": true,
		}},
		{[]string{"::ffff:192.0.2.0/120"}, map[string]bool{"192.0.2.9": true, "::ffff:192.0.2.9": true, "192.0.3.9": false}},
		{[]string{"192.0.2.77/24"}, map[string]bool{"192.0.2.9": true}},
		{[]string{"0.0.0.0/0"}, map[string]bool{"192.0.2.9": true, "::ffff:1.2.3.4": true, "2001:db8::1": false}},
	} {
		h := new(settings.Hook)
		var err error
		if h.FromRanges, err = settings.ParseFrom(c.from); err != nil {
			t.Fatal(err)
		}
		for client, want := range c.want {
			if got := h.Admits(client); got != want {
				t.Errorf("%v admits %q: %v", c.from, client, got)
			}
		}
	}
}

func FuzzFrom(f *testing.F) {
	for _, text := range []string{"192.0.2.0/24", "::/0", "::ffff:1.2.3.4/128", "1.2.3.4", "fe80::1%a", "x/", "/"} {
		f.Add(text, "192.0.2.1")
		f.Add(text, "::ffff:1.2.3.4")
	}
	f.Fuzz(func(t *testing.T, text, client string) {
		ranges, err := settings.ParseFrom([]string{text})
		if err != nil {
			return
		}
		h := &settings.Hook{FromRanges: ranges}
		if h.Admits(client) && !(&settings.Hook{}).Admits(client) {
			t.Errorf("%q admits %q", text, client)
		}
		if again, err := settings.ParseFrom([]string{ranges[0].String()}); err != nil || again[0] != ranges[0] {
			t.Errorf("%q is read as %v, and that as %v, %v", text, ranges, again, err)
		}
	})
}

// Every header that a scheme reads is one that a request can have.
func TestHeadersOfSendersAreCanonical(t *testing.T) {
	t.Parallel()
	for _, s := range settings.Senders {
		for _, name := range slices.Concat(s.Headers, s.IDHeaders) {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%s: %s", s.Name, name)
			}
		}
	}
}

func TestEverySenderHasAnExample(t *testing.T) {
	t.Parallel()
	for _, s := range settings.Senders {
		if senderExamples[s.Name].payload == "" {
			t.Errorf("senderExamples in example.go has no payload of %s", s.Title)
		}
	}
	for name := range senderExamples {
		if !slices.ContainsFunc(settings.Senders, func(s settings.Sender) bool { return s.Name == name }) {
			t.Errorf("%s is no sender", name)
		}
	}
}
