package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// Sender describes how a sender of webhooks signs its requests. To add one, add a row to Senders, and to
// senderExamples of package intake.
type Sender struct {
	Name, Title string

	// The headers with signatures or tokens.
	Headers []string

	// verifier makes the verifier of its secrets, of which there are 1 to 8. Errors are about authSecret, and are made to follow
	// its name.
	verifier func(m *Mapping, tolerance time.Duration, secrets []string) (auth.Verifier, error)

	// Whether the verifier looks at headers alone, and carries a token rather than a signature.
	token bool

	// Whether signatures are good for any body.
	anyBody bool

	// How far a timestamp may be off. 0: there is none.
	tolerance time.Duration

	// Whether a mapping may name a header with the timestamp.
	ownTimestamp bool

	// What the sender calls a delivery, and how it tries a hook out; see scheme.
	IDHeaders      []string
	idPaths        []string
	answerTo       func(doc map[string]any) *SchemeAnswer
	challengeParts []string

	newHandshake func(h handshakeParts) handshake
	methods      []string

	// Whether the secret may be left out until the sender has told it, in a handshake.
	toldLater bool

	// Whether the operator chooses a verify token, too.
	verifies bool

	// Whether the secret itself is in the body, and the members of the body that are credentials; see scheme.
	secretInBody  bool
	secretMembers []string

	// The status that the sender takes for success; see scheme.
	success func(doc map[string]any) int

	// Where its events name their author; see scheme.
	authors *eventAuthors

	// Whether the sender makes the secret, rather than the operator.
	secretTheirs bool

	// The name of its signatures in WWW-Authenticate. Default: HMAC-SHA256.
	wwwAuthenticate string
}

const (
	usualTolerance  = 5 * time.Minute
	linearTolerance = time.Minute

	// calendlyTolerance is what Calendly recommends.
	calendlyTolerance = 3 * time.Minute

	// maxTolerance is less than half of keyAge. A signature whose time lies ahead is good for twice the tolerance, its body may take
	// a while to arrive, and its key must still be there then.
	maxTolerance = 11 * time.Hour
)

var Senders = []Sender{
	{
		Name: "github", Title: "GitHub", Headers: []string{"X-Hub-Signature-256", "X-Hub-Signature"},
		verifier:  signedAs(auth.Signature{Header: "X-Hub-Signature-256", Prefix: "sha256=", Encoding: auth.Hex}),
		IDHeaders: []string{"X-Github-Delivery"},
		authors:   githubAuthors,
	},
	{
		Name: "bitbucket", Title: "Bitbucket", Headers: []string{"X-Hub-Signature", "X-Hub-Signature-256"},
		verifier:  signedAs(auth.Signature{Header: "X-Hub-Signature", Prefix: "sha256=", Encoding: auth.Hex}),
		IDHeaders: []string{"X-Request-Uuid", "X-Request-Id"},
	},
	{
		Name: "gitlab", Title: "GitLab", Headers: []string{"X-Gitlab-Token", "Webhook-Signature"},
		verifier: gitlabVerifier, tolerance: usualTolerance,
		IDHeaders:       []string{"Webhook-Id", "Idempotency-Key"},
		authors:         gitlabAuthors,
		wwwAuthenticate: "Token",
	},
	{
		Name: "stripe", Title: "Stripe", Headers: []string{"Stripe-Signature"}, secretTheirs: true, tolerance: usualTolerance,
		verifier: signedAs(auth.Signature{
			Header: "Stripe-Signature", Prefix: "v1=", Encoding: auth.Hex,
			Signed: []auth.Part{auth.Time, auth.Literal("."), auth.Body}, Time: auth.Timestamp{Entry: "t="},
		}),
		idPaths: []string{"id"},
	},
	{
		Name: "slack", Title: "Slack", Headers: []string{"X-Slack-Signature"}, secretTheirs: true, tolerance: usualTolerance,
		verifier: signedAs(auth.Signature{
			Header: "X-Slack-Signature", Prefix: "v0=", Encoding: auth.Hex,
			Signed: []auth.Part{auth.Literal("v0:"), auth.Time, auth.Literal(":"), auth.Body},
			Time:   auth.Timestamp{Header: "X-Slack-Request-Timestamp"},
		}),
		idPaths:  []string{"event_id"},
		answerTo: answerSlack, challengeParts: []string{"type", "challenge"},
		secretMembers: []string{"token", "response_url", "response_urls"},
		authors:       slackAuthors,
		success:       alwaysOK, // events may be answered with others, commands and interactions may not
	},
	{
		Name: "shopify", Title: "Shopify", Headers: []string{"X-Shopify-Hmac-Sha256"}, secretTheirs: true,
		verifier:  signedAs(auth.Signature{Header: "X-Shopify-Hmac-Sha256", Encoding: auth.Base64}),
		IDHeaders: []string{"X-Shopify-Webhook-Id", "X-Shopify-Event-Id"},
	},
	{
		Name: "linear", Title: "Linear", Headers: []string{"Linear-Signature"}, secretTheirs: true, tolerance: linearTolerance,
		verifier:  signedAs(auth.Signature{Header: "Linear-Signature", Encoding: auth.Hex, Time: auth.Timestamp{Member: "webhookTimestamp"}}),
		IDHeaders: []string{"Linear-Delivery"},
		authors:   linearAuthors,
		success:   alwaysOK,
	},
	{
		Name: "sentry", Title: "Sentry", Headers: []string{"Sentry-Hook-Signature"}, secretTheirs: true,
		verifier:  signedAs(auth.Signature{Header: "Sentry-Hook-Signature", Encoding: auth.Hex}),
		IDHeaders: []string{"Request-Id"},
	},
	{
		Name: "pagerduty", Title: "PagerDuty", Headers: []string{"X-Pagerduty-Signature"}, secretTheirs: true,
		verifier: signedAs(auth.Signature{Header: "X-Pagerduty-Signature", Prefix: "v1=", Encoding: auth.Hex}),
		idPaths:  []string{"event.id"},
	},
	{
		Name: "grafana", Title: "Grafana", Headers: []string{"X-Grafana-Alerting-Signature"},
		verifier: grafanaVerifier, tolerance: usualTolerance, ownTimestamp: true,
	},
	{
		Name: "discord", Title: "Discord", Headers: []string{"X-Signature-Ed25519"}, secretTheirs: true, tolerance: usualTolerance,
		verifier: func(_ *Mapping, tolerance time.Duration, keys []string) (auth.Verifier, error) {
			return auth.NewEd25519("X-Signature-Ed25519", auth.Timestamp{Header: "X-Signature-Timestamp", Tolerance: tolerance}, keys...)
		},
		idPaths:  []string{"id"},
		answerTo: answerDiscord, challengeParts: []string{"type", "event"},
		secretMembers:   []string{"token"}, // with which anybody can answer an interaction
		success:         discordSuccess,
		authors:         discordAuthors,
		wwwAuthenticate: "Ed25519",
	},
	{
		Name: "telegram", Title: "Telegram", Headers: []string{"X-Telegram-Bot-Api-Secret-Token"}, token: true,
		verifier: func(_ *Mapping, _ time.Duration, secrets []string) (auth.Verifier, error) {
			return auth.NewHeaderToken("X-Telegram-Bot-Api-Secret-Token", secrets...), nil
		},
		idPaths:         []string{"update_id"},
		authors:         telegramAuthors,
		wwwAuthenticate: "Token",
	},
	{
		Name: "twilio", Title: "Twilio", Headers: []string{"X-Twilio-Signature"}, secretTheirs: true,
		verifier: func(_ *Mapping, _ time.Duration, tokens []string) (auth.Verifier, error) {
			return auth.NewTwilio(tokens...)
		},
		IDHeaders:       []string{"I-Twilio-Idempotency-Token"},
		wwwAuthenticate: "HMAC-SHA1",
	},
	{
		Name: "standard", Title: "Standard Webhooks, Svix", Headers: []string{"Webhook-Signature", "Svix-Signature"}, secretTheirs: true,
		verifier: standardVerifier, tolerance: usualTolerance,
		IDHeaders: []string{"Webhook-Id", "Svix-Id"},
	},
	{
		Name: "hubspot", Title: "HubSpot", Headers: []string{"X-Hubspot-Signature-V3", "X-Hubspot-Signature"}, secretTheirs: true,
		tolerance: usualTolerance,
		verifier: signedAs(auth.Signature{
			Header: "X-Hubspot-Signature-V3", Encoding: auth.Base64,
			Signed: []auth.Part{auth.Literal(http.MethodPost), auth.URL(hubspotDecoded), auth.Body, auth.Time},
			Time:   auth.Timestamp{Header: "X-Hubspot-Request-Timestamp", Format: auth.Milliseconds},
		}),
	},
	{
		Name: "zendesk", Title: "Zendesk", Headers: []string{"X-Zendesk-Webhook-Signature"}, secretTheirs: true, tolerance: usualTolerance,
		verifier: signedAs(auth.Signature{
			Header: "X-Zendesk-Webhook-Signature", Encoding: auth.Base64, Signed: []auth.Part{auth.Time, auth.Body},
			Time: auth.Timestamp{Header: "X-Zendesk-Webhook-Signature-Timestamp", Format: auth.RFC3339},
		}),
		IDHeaders: []string{"X-Zendesk-Webhook-Invocation-Id"},
	},
	{
		Name: "calendly", Title: "Calendly", Headers: []string{"Calendly-Webhook-Signature"}, tolerance: calendlyTolerance,
		verifier: signedAs(auth.Signature{
			Header: "Calendly-Webhook-Signature", Prefix: "v1=", Encoding: auth.Hex,
			Signed: []auth.Part{auth.Time, auth.Literal("."), auth.Body}, Time: auth.Timestamp{Entry: "t="},
		}),
	},
	{
		Name: "square", Title: "Square", Headers: []string{"X-Square-Hmacsha256-Signature", "X-Square-Signature"}, secretTheirs: true,
		verifier: signedAs(auth.Signature{
			Header: "X-Square-Hmacsha256-Signature", Encoding: auth.Base64, Signed: []auth.Part{auth.URL(nil), auth.Body},
		}),
		idPaths: []string{"event_id"},
	},
	{
		Name: "typeform", Title: "Typeform", Headers: []string{"Typeform-Signature"},
		verifier: signedAs(auth.Signature{Header: "Typeform-Signature", Prefix: "sha256=", Encoding: auth.Base64}),
		idPaths:  []string{"event_id"},
	},
	{
		Name: "intercom", Title: "Intercom", Headers: []string{"X-Hub-Signature"}, secretTheirs: true,
		verifier:     signedAs(auth.Signature{Header: "X-Hub-Signature", Prefix: "sha1=", Encoding: auth.Hex, Algorithm: auth.SHA1}),
		idPaths:      []string{"id"},
		newHandshake: answerHead, methods: []string{http.MethodHead},
		wwwAuthenticate: "HMAC-SHA1",
	},
	{
		Name: "mailgun", Title: "Mailgun", secretTheirs: true, tolerance: usualTolerance, anyBody: true,
		verifier: func(_ *Mapping, tolerance time.Duration, keys []string) (auth.Verifier, error) {
			return auth.NewMailgun(tolerance, asBytes(keys)...)
		},
		idPaths:       []string{"event-data.id"},
		secretMembers: []string{"signature"}, // which is good for any body
		success:       alwaysOK,
	},
	{
		Name: "sendgrid", Title: "SendGrid", Headers: []string{"X-Twilio-Email-Event-Webhook-Signature"}, secretTheirs: true,
		tolerance: usualTolerance,
		verifier: func(_ *Mapping, tolerance time.Duration, keys []string) (auth.Verifier, error) {
			at := auth.Timestamp{Header: "X-Twilio-Email-Event-Webhook-Timestamp", Tolerance: tolerance}
			return auth.NewECDSA("X-Twilio-Email-Event-Webhook-Signature", at, keys...)
		},
		idPaths:         []string{"*.sg_event_id"},
		wwwAuthenticate: "ECDSA",
	},
	{
		Name: "teams", Title: "Microsoft Teams", Headers: []string{"Authorization"}, secretTheirs: true,
		verifier: func(_ *Mapping, _ time.Duration, secrets []string) (auth.Verifier, error) {
			keys, err := decodeKeys(secrets)
			if err != nil {
				return nil, err
			}
			return auth.NewHMAC(auth.Signature{Header: "Authorization", Prefix: "HMAC ", Encoding: auth.Base64}, keys...)
		},
		idPaths: []string{"id"},
		success: alwaysOK,
	},
	{
		Name: "notion", Title: "Notion", Headers: []string{"X-Notion-Signature"}, secretTheirs: true,
		verifier: signedAs(auth.Signature{Header: "X-Notion-Signature", Prefix: "sha256=", Encoding: auth.Hex}),
		idPaths:  []string{"id"},
		success:  alwaysOK,

		toldLater: true, newHandshake: answerNotion, secretMembers: []string{"verification_token"},
	},
	{
		Name: "zoom", Title: "Zoom", Headers: []string{"X-Zm-Signature"}, secretTheirs: true, tolerance: usualTolerance,
		verifier: signedAs(auth.Signature{
			Header: "X-Zm-Signature", Prefix: "v0=", Encoding: auth.Hex,
			Signed: []auth.Part{auth.Literal("v0:"), auth.Time, auth.Literal(":"), auth.Body},
			Time:   auth.Timestamp{Header: "X-Zm-Request-Timestamp"},
		}),
		success:       alwaysOK,
		secretMembers: []string{"download_token"}, // of recordings
		newHandshake:  answerZoom,
	},
	{
		Name: "meta", Title: "Meta, WhatsApp", Headers: []string{"X-Hub-Signature-256", "X-Hub-Signature"}, secretTheirs: true, verifies: true,
		verifier:     signedAs(auth.Signature{Header: "X-Hub-Signature-256", Prefix: "sha256=", Encoding: auth.Hex}),
		idPaths:      []string{"entry.*.changes.*.value.messages.*.id"}, // of WhatsApp; others name none
		success:      alwaysOK,
		newHandshake: echoMeta, methods: []string{http.MethodGet},
	},
	{
		Name: "dropbox", Title: "Dropbox", Headers: []string{"X-Dropbox-Signature"}, secretTheirs: true,
		verifier:     signedAs(auth.Signature{Header: "X-Dropbox-Signature", Encoding: auth.Hex}),
		success:      alwaysOK,
		newHandshake: echoDropbox, methods: []string{http.MethodGet},
	},
	{
		Name: "graph", Title: "Microsoft Graph",
		verifier: func(_ *Mapping, _ time.Duration, secrets []string) (auth.Verifier, error) {
			return auth.NewClientStates(secrets...), nil
		},
		idPaths:      []string{"value.*.id"},
		secretInBody: true, newHandshake: echoGraph, secretMembers: []string{"clientState", "validationTokens"},
		wwwAuthenticate: "Token",
	},
	{
		Name: "eventgrid", Title: "Azure Event Grid, CloudEvents", Headers: []string{"X-Service-Token"}, token: true,
		verifier: func(_ *Mapping, _ time.Duration, secrets []string) (auth.Verifier, error) {
			return auth.NewQueryToken("access_token", secrets...), nil
		},
		idPaths:      []string{"*.id"},
		newHandshake: answerEventGrid, methods: []string{http.MethodOptions}, secretMembers: []string{"validationCode", "validationUrl"},
		wwwAuthenticate: "Bearer",
	},
}

// hubspotDecoded has what HubSpot signs instead of some characters of a URL.
var hubspotDecoded = strings.NewReplacer("%3A", ":", "%3a", ":", "%2F", "/", "%2f", "/", "%3F", "?", "%3f", "?", "%40", "@", "%21", "!",
	"%24", "$", "%27", "'", "%28", "(", "%29", ")", "%2A", "*", "%2a", "*", "%2C", ",", "%2c", ",", "%3B", ";", "%3b", ";")

func init() {
	for i := range Senders {
		registerScheme(Senders[i].scheme())
	}
}

// senderHeaders are the headers with signatures or tokens of all senders. They are secret whether a hook takes them or not.
func senderHeaders() (names []string) {
	for i := range Senders {
		names = append(names, Senders[i].Headers...)
	}
	return names
}

// scheme makes the scheme of a row.
func (s *Sender) scheme() *Scheme {
	credential := "signature"
	if s.token {
		credential = "secret"
	}
	made := &Scheme{
		Name: s.Name, Title: s.Title, arguments: "<secret>...", minArgs: 1, maxArgs: maxAuthSecrets,
		unmarshal: s.unmarshal, Fields: []string{"authSecret"},
		Compile: s.compile, Tolerance: s.tolerance, SecretTheirs: s.secretTheirs, HeadersOnly: s.token,
		SecretHeaders: func(*Mapping) []string { return s.Headers },
		idHeaders:     s.IDHeaders, idPaths: s.idPaths, AnswerTo: s.answerTo, challengeParts: s.challengeParts, success: s.success,
		newHandshake: s.newHandshake, Methods: s.methods, secretInBody: s.secretInBody, AnyBody: s.anyBody, secretMembers: s.secretMembers,
		authors:         s.authors,
		WwwAuthenticate: cmp.Or(s.wwwAuthenticate, "HMAC-SHA256"),
		Missing:         fmt.Sprintf("This hook accepts requests from %s, not a bearer token.", s.Title),
		Wrong:           fmt.Sprintf("The %s is wrong.", credential),
	}
	if s.tolerance > 0 {
		made.Fields = append(made.Fields, "authTolerance")
	}
	if s.ownTimestamp {
		made.Fields = append(made.Fields, "timestampHeader")
	}
	if s.verifies {
		made.Fields = append(made.Fields, verifyTokenField)
	}
	if s.toldLater {
		made.minArgs = 0
	}
	return made
}

// unmarshal parses:
//
//	auth <sender> <secret>... {
//		tolerance <duration>
//		timestamp <header> [<duration>]
//		verify_token <token>...
//	}
//
// A sender without a timestamp has no tolerance. Only that of Grafana is in a header that the operator names. Meta alone
// has a verify token.
func (s *Sender) unmarshal(d *caddyfile.Dispenser, args []string, m *Mapping, places SettingPlaces) error {
	m.AuthSecret = args
	var directives []caddyconf.Directive
	switch {
	case s.ownTimestamp:
		directives = append(directives, readTimestamp(m, places, nil))
	case s.tolerance > 0:
		directives = append(directives, places.Note(caddyconf.Set("tolerance", &m.AuthTolerance, caddyconf.Seconds), "authTolerance"))
	}
	var tokens []string
	if s.verifies {
		directives = append(directives, places.Note(caddyconf.Set("verify_token", &tokens, caddyconf.Secrets), verifyTokenField))
	}
	err := caddyconf.ReadBlock(d, "auth "+s.Name, directives...)
	m.VerifyToken = tokens
	return err
}

func (s *Sender) compile(m *Mapping, secrets HookSecrets) (auth.Verifier, error) {
	if s.toldLater && len(m.AuthSecret) == 0 {
		return auth.Tokens{}, nil
	}
	resolved, err := secrets.list("authSecret", m.AuthSecret)
	if err != nil {
		return nil, err
	}
	tolerance, err := m.tolerance(s.tolerance)
	if err != nil {
		return nil, err
	}
	verifier, err := s.verifier(m, tolerance, resolved)
	if err != nil && secretsUnread(m.AuthSecret, resolved) {
		return auth.Tokens{}, nil
	}
	if err != nil && !errors.As(err, new(*FieldError)) {
		return nil, FieldErrorf("authSecret", "%v", err)
	}
	return verifier, err
}

// secretsUnread reports whether a secret is known by its placeholder alone, as when a Caddyfile is adapted: then nothing can be
// said about its form. A verifier made of such secrets accepts nothing.
func secretsUnread(configured Secrets, resolved []string) bool {
	for i, secret := range resolved {
		if i < len(configured) && secret == configured[i] && caddyconf.HasPlaceholder(secret) {
			return true
		}
	}
	return false
}

// signedAs makes verifiers of signatures of this form.
func signedAs(signature auth.Signature) func(*Mapping, time.Duration, []string) (auth.Verifier, error) {
	return func(_ *Mapping, tolerance time.Duration, secrets []string) (auth.Verifier, error) {
		signature := signature
		signature.Time.Tolerance = tolerance
		return auth.NewHMAC(signature, asBytes(secrets)...)
	}
}

func asBytes(secrets []string) (keys [][]byte) {
	for _, secret := range secrets {
		keys = append(keys, []byte(secret))
	}
	return keys
}

// standardVerifier takes the headers of Standard Webhooks, and if there are none those of Svix.
func standardVerifier(_ *Mapping, tolerance time.Duration, secrets []string) (auth.Verifier, error) {
	webhook, err := auth.NewStandard("Webhook-", tolerance, secrets...)
	if err != nil {
		return nil, err
	}
	svix, err := auth.NewStandard("Svix-", tolerance, secrets...)
	if err != nil {
		return nil, err
	}
	return auth.NewFirstSent(webhook, svix), nil
}

// gitlabVerifier takes signatures for secrets that begin with whsec_, and tokens for all others. A bad signature is refused
// whatever the token is.
func gitlabVerifier(_ *Mapping, tolerance time.Duration, secrets []string) (auth.Verifier, error) {
	var signing, tokens []string
	for _, secret := range secrets {
		if strings.HasPrefix(secret, auth.StandardPrefix) {
			signing = append(signing, secret)
		} else {
			tokens = append(tokens, secret)
		}
	}
	token := auth.NewHeaderToken("X-Gitlab-Token", tokens...)
	if signing == nil {
		return token, nil
	}
	signature, err := auth.NewStandard("Webhook-", tolerance, signing...)
	if err != nil || tokens == nil {
		return signature, err
	}
	return auth.NewFirstSent(signature, token), nil
}

// grafanaVerifier takes signatures of the body or, if a header for the timestamp is set, of the timestamp and the body.
func grafanaVerifier(m *Mapping, tolerance time.Duration, secrets []string) (auth.Verifier, error) {
	signature := auth.Signature{Header: "X-Grafana-Alerting-Signature", Encoding: auth.Hex}
	if m.TimestampHeader != "" {
		header, err := checkHeader("timestampHeader", m.TimestampHeader)
		if err != nil {
			return nil, err
		}
		signature.Signed = []auth.Part{auth.Time, auth.Literal(":"), auth.Body}
		signature.Time = auth.Timestamp{Header: header, Tolerance: tolerance}
	}
	return auth.NewHMAC(signature, asBytes(secrets)...)
}

// answerSlack sends back the challenge with which Slack tries a URL out.
func answerSlack(doc map[string]any) *SchemeAnswer {
	challenge, ok := doc["challenge"].(string)
	if doc["type"] != "url_verification" || !ok {
		return nil
	}
	answer, _ := echo(challenge)
	return answer
}

// answerDiscord answers the pings of Discord: those of interactions have type 1 and no event, those of events type 0.
func answerDiscord(doc map[string]any) *SchemeAnswer {
	_, isEvent := doc["event"]
	switch {
	case doc["type"] == json.Number("0"):
		return &SchemeAnswer{Status: http.StatusNoContent}
	case doc["type"] == json.Number("1") && !isEvent:
		return jsonAnswer(`{"type":1}`)
	default:
		return nil
	}
}

// alwaysOK is for senders that take 200 alone for success.
func alwaysOK(map[string]any) int { return http.StatusOK }

// discordSuccess is 204 for events. What an interaction is answered with is shown to people, so the operator says it.
func discordSuccess(doc map[string]any) int {
	if _, isEvent := doc["event"]; isEvent {
		return http.StatusNoContent
	}
	return 0
}
