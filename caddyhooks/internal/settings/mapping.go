package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Mapping is a custom hook. It tells how requests to /api/hooks/<name> are authenticated and turned into runs.
type Mapping struct {
	// The last part of the hook's URL.
	Name string `json:"name,omitempty"`

	// The kind of run: "wake" answers with an acknowledgement only, "agent" is a full run. Default: "wake".
	Action engine.Action `json:"action,omitempty"`

	// How callers authenticate: with the token ("bearer"), with a signature ("hmac"), or in the way of a sender, such as "github".
	// Default: "bearer".
	AuthMode string `json:"authMode,omitempty"`

	// The secret of a scheme other than bearer and hmac, or a list of secrets while one replaces another.
	AuthSecret Secrets `json:"authSecret,omitempty" secret:"true"`

	// How old a signed timestamp may be, or lie ahead, in seconds, at most 11 hours. Default: that of the scheme.
	AuthTolerance int `json:"authTolerance,omitempty"`

	// The header that carries the HMAC signature.
	HMACHeader string `json:"hmacHeader,omitempty"`

	// The secret that callers sign with, or a list of secrets while one replaces another.
	HMACSecret Secrets `json:"hmacSecret,omitempty" secret:"true"`

	// A prefix of the signature in its header, such as "sha256=".
	HMACPrefix string `json:"hmacPrefix,omitempty"`

	// The hash of the signature: "sha256", "sha512" or "sha1". Default: "sha256".
	Algorithm string `json:"algorithm,omitempty"`

	// What is signed, with placeholders such as {@header.X-Timestamp}. Default: {@body}.
	Signed string `json:"signed,omitempty"`

	// How the secret is written: "base64" for a key that is encoded so. Default: the secret is the key.
	KeyEncoding string `json:"keyEncoding,omitempty"`

	// The header with the time of the signature, or the beginning of an entry in the header of the signature, such as "t=". Requests that
	// are too old are refused.
	TimestampHeader string `json:"timestampHeader,omitempty"`

	// How the time of the signature is written: "seconds" or "milliseconds" since 1970, or "rfc3339". Default: "seconds".
	TimestampFormat string `json:"timestampFormat,omitempty"`

	// The header in which callers send the token as it is, for "authMode": "token" or "oidc". Default: Authorization, after Bearer; a token
	// of the hook's own may also be in X-Service-Token.
	AuthHeader string `json:"authHeader,omitempty"`

	// The text by which a sender knows the hook when it tries it out, for "authMode": "meta", or a list while one replaces another.
	VerifyToken Secrets `json:"verifyToken,omitempty" secret:"true"`

	// The issuer of the tokens that callers send: its URL, or "github-actions" or "google".
	OIDCIssuer string `json:"oidcIssuer,omitempty"`

	// What tokens must be for (aud). One of these is enough.
	OIDCAudience []string `json:"oidcAudience,omitempty"`

	// What tokens must say: the name of a claim and the values that it may have, as in "repository octo/shop". A * at the end of a value
	// stands for any text. Names of nested claims have dots. All claims must match.
	OIDCClaims []string `json:"oidcClaims,omitempty"`

	// The URL of the keys of an issuer without a discovery document. Default: as that document says.
	OIDCKeys string `json:"oidcKeys,omitempty"`

	// The address ranges that callers come from. Others are refused. Default: any.
	From []string `json:"from,omitempty"`

	// The form of the body: "json", "form", "auto" to go by the Content-Type, or "cloudevents" for CloudEvents 1.0 in any content mode.
	// Default: "json".
	Body string `json:"body,omitempty"`

	// Conditions that must all hold for a request to become a run.
	Only []string `json:"only,omitempty"`

	// Conditions of which none may hold.
	Skip []string `json:"skip,omitempty"`

	// A JSONPath expression. Each of its matches in the body becomes a run.
	Each string `json:"each,omitempty"`

	// How long the first run of the hook in a chat waits for others, which are then carried out in the same turn.
	FoldSeconds int `json:"foldSeconds,omitempty"`

	// How many runs one turn carries out at most. Default: 100.
	FoldMax int `json:"foldMax,omitempty"`

	// Whether such a turn is told the newest message alone. Default: all of them.
	FoldLatest bool `json:"foldLatest,omitempty"`

	// A template whose value tells one event from another, such as {data.id}. The same value again starts no second run, whatever the id of
	// the request.
	Once string `json:"once,omitempty"`

	// For how long, up to 31 days. Default: 86400, a day.
	OnceSeconds int `json:"onceSeconds,omitempty"`

	// What becomes of a run while others of the hook in its chat have not ended: "queue" lets it wait for them, "skip" ignores its
	// request, "replace" cancels them. Default: "queue".
	Overlap string `json:"overlap,omitempty"`

	// How many runs are accepted in a time, as in "60/1h". Requests beyond that are answered 429.
	Rate string `json:"rate,omitempty"`

	// A template whose value tells apart who sends, such as {sender.login}. Each value has rateByLimit.
	RateBy string `json:"rateBy,omitempty"`

	// How many runs are accepted in a time for each value of rateBy, as in "3/1h", over all nodes. Requests beyond that are answered 429.
	RateByLimit string `json:"rateByLimit,omitempty"`

	// The status of the answer to a request that is accepted or ignored, from 200 to 299. Default: 202 for a run of the agent and 200
	// otherwise, or the one that the sender takes for success.
	RespondStatus int `json:"respondStatus,omitempty"`

	// The body of that answer.
	RespondBody string `json:"respondBody,omitempty"`

	// How many runs of the hook are carried out at once. Default: as many as the instance has workers.
	Workers int `json:"workers,omitempty"`

	// The largest body, in bytes or as in "64KB". Default: maxPayloadSize of the settings.
	MaxPayloadSize *Size `json:"maxPayloadSize,omitempty"`

	// The message for the agent, with placeholders such as {issue.title}. If blank, the message is the body.
	MessageTemplate string `json:"messageTemplate,omitempty"`

	// Accepted for compatibility with agent requests; ignored.
	Message string `json:"message,omitempty"`

	// How a template inserts values: "pass" inserts them as they are, "wrap" marks them as untrusted data. The messages of
	// wake hooks are always marked as a whole. Default: "pass".
	Untrusted string `json:"untrusted,omitempty"`

	// The header with the sender's id of the request, such as X-GitHub-Delivery. A second request with the same id does not
	// start another run. Default: Idempotency-Key or webhook-id.
	IdempotencyHeader string `json:"idempotencyHeader,omitempty"`

	// The name of the runner in the configuration. Default: the one for the model tier, or the default one.
	Runner string `json:"runner,omitempty"`

	// How long the message, the metadata and the schema of a finished run are kept; 0 keeps none. Default: historySeconds of the
	// settings, which is also the longest.
	HistorySeconds *int `json:"historySeconds,omitempty"`

	// What is posted in the chat that the reply goes to when a run starts, such as "Working on it …". The reply takes its place.
	Progress string `json:"progress,omitempty"`

	// What somebody has to approve: that a run starts, or that its reply is sent.
	Ask []Ask `json:"ask,omitempty"`

	// What the runs of the hook may spend, at most 8 budgets.
	Budgets []Budget `json:"budgets,omitempty"`

	AgentFields
}

var (
	HookName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	reservedNames = []string{"wake", "agent", "runs", "replies", "answers"}
)

// IsBuiltIn reports whether a hook is always there, and no mapping.
func IsBuiltIn(hook string) bool { return hook == "wake" || hook == "agent" }

// Hook is a mapping that is ready for requests: its templates are parsed and its secret is resolved.
type Hook struct {
	Mapping
	Template       *template.Template
	ChatTemplate   *template.Template
	ToTemplate     *template.Template // nil unless requests choose the chat that the answer goes to
	ToChannel      engine.Channel     // that it is on; nil if it is not known
	SenderTemplate *template.Template // tells senders apart; nil unless somebody is asked about new ones
	Asks           []byte             // what people are asked, for runs that outlive the hook
	Spending       Budgets
	NamesRun       bool           // a template has the id of the run
	EachMatch      *template.Each // nil: a request is one run
	Filters        []Filter
	OfBody         int                   // where the filters begin that look at the body
	Selected       *strictjson.Selection // parts of a body that the templates and filters read
	Checked        *strictjson.Selection // parts of it that the scheme reads
	Hidden         auth.HeaderNames      // that templates and filters do not read
	Answer         *givenAnswer          // to callers that do not wait; nil for the usual one
	Auth           Authentication
	FromRanges     []netip.Prefix // that callers come from; nil is any
	RunRate        HookRate
	gates          gates
	Pinned         bool

	UndecidedAt atomic.Int64 // when a filter that was not decided was last logged, in nanoseconds since 1970
}

// Compile checks the mapping and makes a hook of it.
func (m Mapping) Compile(r *Rules, secrets HookSecrets) (*Hook, error) {
	m.normalize()
	h := &Hook{Mapping: m}
	if !HookName.MatchString(m.Name) {
		return nil, FieldErrorf("name", "must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
	}
	if slices.Contains(reservedNames, m.Name) {
		return nil, FieldErrorf("name", "must not be %s, which are taken", strings.Join(reservedNames, ", "))
	}
	if h.Action == "" {
		h.Action = engine.Wake
	}
	if err := oneOf("action", string(m.Action), []string{string(engine.Wake), string(engine.Agent)}); err != nil {
		return nil, err
	}
	if err := oneOf("untrusted", m.Untrusted, []string{"pass", "wrap"}); err != nil {
		return nil, err
	}
	if err := m.checkProgress(); err != nil {
		return nil, err
	}
	if r.Guard != nil {
		secrets.checkFetch = r.Guard.CheckFetch
	}
	var err error
	if h.Auth, err = m.Authentication(secrets); err != nil {
		return nil, err
	}
	if h.FromRanges, err = ParseFrom(m.From); err != nil {
		return nil, err
	}
	if m.IdempotencyHeader != "" {
		if !httpguts.ValidHeaderFieldName(m.IdempotencyHeader) || strings.Contains(m.IdempotencyHeader, "_") {
			return nil, FieldErrorf("idempotencyHeader", "must be the name of a header, without underscores")
		}
		if name := http.CanonicalHeaderKey(m.IdempotencyHeader); name == "Host" || name == "Authorization" || name == "X-Service-Token" {
			return nil, FieldErrorf("idempotencyHeader", "must not be %s, which does not tell one request from another", name)
		}
	}
	if err := h.ParseTemplates(); err != nil {
		return nil, err
	}
	if err := h.checkIntake(r); err != nil {
		return nil, err
	}
	if m.Runner != "" && !slices.Contains(r.Runners.Names, m.Runner) {
		return nil, FieldErrorf("runner", "names no runner that is configured here; there %s", AreListed(r.Runners.Names))
	}
	if err := h.checkAsk(r); err != nil {
		return nil, err
	}
	if err := h.checkFold(r); err != nil {
		return nil, err
	}
	if m.Rate != "" {
		if h.RunRate, err = ParseRate(m.Rate); err != nil {
			return nil, FieldErrorf("rate", "%v", err)
		}
	}
	if m.Workers < 0 {
		return nil, FieldErrorf("workers", "must be at least 1")
	}
	if m.HistorySeconds != nil {
		if err := r.checkHistory(*m.HistorySeconds); err != nil {
			return nil, FieldErrorf("historySeconds", "%v", err)
		}
	}
	if m.Metadata != nil && !IsJSONObject(m.Metadata) {
		return nil, FieldErrorf("metadata", "must be an object")
	}
	if err := h.AgentFields.checkInHook(r); err != nil {
		return nil, err
	}
	if h.Deliver {
		h.ToChannel = r.Channels[h.Channel]
	}
	switch {
	case h.ToTemplate != nil:
		err = h.checkChosenTo(r)
	case h.Deliver:
		err = h.checkTo(h.ToChannel)
	}
	return h, err
}

// ParseTemplates reads the templates of the mapping, its conditions and each.
func (h *Hook) ParseTemplates() (err error) {
	if h.Template, err = template.Parse(h.MessageTemplate); err != nil {
		return FieldErrorf("messageTemplate", "is refused: %v", err)
	}
	if h.ChatTemplate, err = template.Parse(h.ChatID); err != nil {
		return FieldErrorf("chatId", "is refused: %v", err)
	}
	if h.ToTemplate, err = h.Mapping.ToTemplate(); err != nil {
		return err
	}
	if err := h.parseSender(); err != nil {
		return err
	}
	if h.Asks, err = encodeAsks(h.Ask); err != nil {
		return err
	}
	if h.Spending, err = CompileBudgets(h.Name, h.Budgets); err != nil {
		return err
	}
	if err := h.parseGates(); err != nil {
		return err
	}
	if h.Each != "" {
		if h.EachMatch, err = template.ParseEach(h.Each); err != nil {
			return FieldErrorf("each", "is refused: %v", err)
		}
	}
	if err := h.parseFilters(); err != nil {
		return err
	}
	h.Selected = new(strictjson.Selection)
	if h.EachMatch != nil {
		h.EachMatch.Select(h.Selected)
	}
	for _, t := range []*template.Template{h.Template, h.ChatTemplate} {
		t.Select(h.Selected)
		h.NamesRun = h.NamesRun || slices.Contains(t.Sources(), template.Source{Kind: "run"})
	}
	if h.SenderTemplate != nil {
		h.SenderTemplate.Select(h.Selected)
	}
	if h.ToTemplate != nil {
		h.ToTemplate.Select(h.Selected)
	}
	h.Spending.selectIn(h.Selected)
	h.gates.selectIn(h.Selected)
	h.selectFiltered(h.Selected)
	if h.Body == CloudEvents && h.Template.Blank() { // the message is the event, which may come in headers
		h.Selected.SelectAll()
	}
	h.Checked = new(strictjson.Selection)
	if h.Auth.Scheme != nil { // which a preview does without
		h.Auth.SelectParts(h.Selected)
		h.Auth.SelectParts(h.Checked)
	}
	h.Hidden = h.HiddenHeaders()
	return nil
}

// checkIntake checks what decides which requests become runs, and how they are answered.
func (h *Hook) checkIntake(r *Rules) (err error) {
	if err := oneOf("body", h.Body, bodyForms); err != nil {
		return err
	}
	if h.Each != "" && h.SyncResponse {
		return FieldErrorf("each", "must not be used with %s: a caller cannot wait for several runs", bothNames("syncResponse"))
	}
	if h.Each != "" && h.Body == CloudEvents {
		return FieldErrorf("each", "must not be used with body %s: each event of a batch is a run", CloudEvents)
	}
	if h.MaxPayloadSize != nil {
		if err := checkPayloadSize(*h.MaxPayloadSize, r); err != nil {
			return FieldErrorf("maxPayloadSize", "%v", err)
		}
	}
	h.Answer, err = h.givenAnswer()
	return err
}

// MaxPayload is the largest body that the hook takes.
func (h *Hook) MaxPayload(active *Active) int64 {
	if h.MaxPayloadSize != nil {
		return int64(*h.MaxPayloadSize)
	}
	return active.maxPayload
}

func IsJSONObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}

// normalize removes fields that are null, as some editors send them.
func (m *Mapping) normalize() {
	if string(bytes.TrimSpace(m.ResponseJSONSchema)) == "null" {
		m.ResponseJSONSchema = nil
	}
	if string(bytes.TrimSpace(m.Metadata)) == "null" {
		m.Metadata = nil
	}
}

// MaxHooks bounds the custom hooks of an instance: all of them are checked, and stored, at every change of one. Tests lower it.
var MaxHooks = 10_000

func errTooManyHooks() error {
	return FieldErrorf("mappings", "must not have more than %d hooks", MaxHooks)
}

func IndexMapping(all []Mapping, name string) int {
	return slices.IndexFunc(all, func(m Mapping) bool { return m.Name == name })
}

// FindMapping returns nil if there is none of that name.
func FindMapping(all []Mapping, name string) *Mapping {
	if i := IndexMapping(all, name); i >= 0 {
		return &all[i]
	}
	return nil
}

// MappingsByName finds the first mapping of each name.
func MappingsByName(all []Mapping) map[string]*Mapping {
	found := make(map[string]*Mapping, len(all))
	for i := range all {
		if m := &all[i]; found[m.Name] == nil {
			found[m.Name] = m
		}
	}
	return found
}

// SecretField is a field of a mapping with the tag secret:"true": it is shown as a mask, and compared in constant time.
type SecretField struct {
	Name  string // in JSON
	index []int
}

var SecretFields = func() (all []SecretField) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Mapping]()) {
		if field.Tag.Get("secret") == "true" {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			all = append(all, SecretField{name, field.Index})
		}
	}
	return all
}()

// In returns the secrets of a mapping.
func (f SecretField) In(m *Mapping) *Secrets {
	return reflect.ValueOf(m).Elem().FieldByIndex(f.index).Addr().Interface().(*Secrets)
}

// MappingField is a field of a mapping in JSON.
type MappingField struct {
	Name   string
	Index  []int
	Secret bool
}

// DescribedFields are the fields of a mapping but for its name.
var DescribedFields = func() (all []MappingField) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Mapping]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous && name != "name" {
			all = append(all, MappingField{name, field.Index, field.Tag.Get("secret") == "true"})
		}
	}
	return all
}()

// Same compares secrets in constant time, and JSON whatever its spaces are.
func (f MappingField) Same(a, b *Mapping) bool {
	x, y := reflect.ValueOf(a).Elem().FieldByIndex(f.Index), reflect.ValueOf(b).Elem().FieldByIndex(f.Index)
	switch {
	case f.Secret:
		return sameSecrets(x.Interface().(Secrets), y.Interface().(Secrets))
	case x.Type() == reflect.TypeFor[json.RawMessage]():
		return bytes.Equal(x.Bytes(), y.Bytes()) || bytes.Equal(text.CompactJSON(x.Bytes()), text.CompactJSON(y.Bytes()))
	default:
		return x.Comparable() && x.Equal(y) || reflect.DeepEqual(x.Interface(), y.Interface())
	}
}

// SameMapping reports whether two mappings differ in no field.
func SameMapping(a, b *Mapping) bool {
	if a.Name != b.Name {
		return false
	}
	for _, field := range DescribedFields {
		if !field.Same(a, b) {
			return false
		}
	}
	return true
}

func CheckInstanceNames(names []string) error {
	for _, name := range names {
		if !HookName.MatchString(name) {
			return fmt.Errorf("the instance name '%s' is refused: use up to 64 letters, digits, dots, dashes and underscores", name)
		}
	}
	return nil
}

// bodyForms are the values of body.
var bodyForms = []string{"json", "form", "auto", CloudEvents}

// CloudEvents is the body of requests that bring CloudEvents.
const CloudEvents = "cloudevents"

// HidesHeader reports whether a header carries a secret, which neither templates nor conditions get to see.
func (h *Hook) HidesHeader(name string) bool { return h.Hidden.Has(name) }

// HiddenHeaders are those that carry a secret.
func (h *Hook) HiddenHeaders() auth.HeaderNames {
	hidden := make(auth.HeaderNames)
	hidden.Add("Authorization", "Proxy-Authorization", "Cookie")
	hidden.Add(BearerScheme.SecretHeaders(nil)...)
	if scheme := FindScheme(h.AuthMode); scheme != nil && scheme.SecretHeaders != nil {
		hidden.Add(scheme.SecretHeaders(&h.Mapping)...)
	}
	return hidden
}
