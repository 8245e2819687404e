package caddyhooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// Settings are what an operator sets about webhooks. The same type serves Caddy's configuration, where whatever is set
// is pinned, and the admin API, where the rest can be changed while Caddy runs.
type Settings struct {
	// Whether webhooks are on. They stay off, too, as long as there is no token. Default: false.
	Enabled *bool `json:"enabled,omitempty"`

	// The bearer token, or a list of tokens while one is being replaced by another.
	Token Secrets `json:"token,omitempty"`

	// How long a run may take when neither its request nor its mapping says. Default: 300.
	DefaultTimeoutSeconds *int `json:"defaultTimeoutSeconds,omitempty"`

	// The largest body that a custom hook takes, in bytes or as in "64KB". Default: 64KB.
	MaxPayloadSize *Size `json:"maxPayloadSize,omitempty"`

	// The memory preset of runs whose request or mapping names none. Default: "disabled".
	MemoryPreset *string `json:"memoryPreset,omitempty"`

	// The custom hooks.
	Mappings []Mapping `json:"mappings,omitempty"`
}

// Mapping is a custom hook: how requests to /api/hooks/<name> are authenticated, and what becomes of their body.
type Mapping struct {
	// The last part of the hook's URL.
	Name string `json:"name,omitempty"`

	// What callers get: "wake", an acknowledgement only, or "agent", a full run. Default: "wake".
	Action engine.Action `json:"action,omitempty"`

	// How callers authenticate: "bearer", with the token, or "hmac", with a signature. Default: "bearer".
	AuthMode string `json:"authMode,omitempty"`

	// The header that carries the HMAC-SHA256 signature of the body.
	HMACHeader string `json:"hmacHeader,omitempty"`

	// The secret that callers sign with.
	HMACSecret string `json:"hmacSecret,omitempty"`

	// What stands before the signature in its header, such as "sha256=".
	HMACPrefix string `json:"hmacPrefix,omitempty"`

	// The message for the agent, with placeholders such as {issue.title}. Blank: the body as it is.
	MessageTemplate string `json:"messageTemplate,omitempty"`

	// Taken for the sake of being an agent request's field, and not used: a mapping's message is its template.
	Message string `json:"message,omitempty"`

	// What the agent is told about values that a template inserts: "pass" inserts them as they are, "wrap" marks them
	// as data from outside. Messages of wake hooks are marked as a whole anyway. Default: "pass".
	Untrusted string `json:"untrusted,omitempty"`

	// The header by which a sender marks what it may send again, such as X-GitHub-Delivery. A request with the same value
	// is not carried out twice. Default: Idempotency-Key or webhook-id.
	IdempotencyHeader string `json:"idempotencyHeader,omitempty"`

	AgentFields
}

// AgentFields are the fields that a mapping and a request for a full run share. On a wake mapping all but the chat id
// and metadata are kept and not used.
type AgentFields struct {
	// The session that the run belongs to. In a mapping it may hold placeholders. Default: webhook:default for wake,
	// a fresh hook:<uuid> for agent.
	ChatID string `json:"chatId,omitempty"`

	// The tier of the model. Default: the runner's own.
	Model string `json:"model,omitempty"`

	// The memory preset. Default: the one of the settings.
	MemoryPreset string `json:"memoryPreset,omitempty"`

	// Hold the request open and answer it with the agent's reply.
	SyncResponse bool `json:"syncResponse,omitempty"`

	// A Draft 2020-12 JSON Schema that the reply has to match. Needs syncResponse.
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema,omitempty"`

	// The tier for a run with a schema and its repair calls.
	ResponseValidationModelTier string `json:"responseValidationModelTier,omitempty"`

	// A URL that the agent's reply is posted to.
	CallbackURL string `json:"callbackUrl,omitempty"`

	// Push the reply to a messaging channel.
	Deliver bool `json:"deliver,omitempty"`

	// The channel, by the name it has in the configuration.
	Channel string `json:"channel,omitempty"`

	// The chat on that channel.
	To string `json:"to,omitempty"`

	// How long the run may take. Default: the time of the settings.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`

	// An object that is passed on with the message.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

var (
	tiers = []string{"balanced", "smart", "coding", "deep",
		"special1", "special2", "special3", "special4", "special5"}
	memoryPresets = []string{engine.MemoryDisabled,
		"coding_balanced", "coding_fast", "coding_deep", "general_chat", "research_analyst", "ops_support"}

	hookName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	reservedNames = []string{"wake", "agent", "runs"}
)

// fieldError says what is wrong with one field, in words for whoever set it.
type fieldError struct {
	field   string
	problem string
}

func (e *fieldError) Error() string { return e.field + " " + e.problem }

func fieldErrorf(field, format string, args ...any) error {
	return &fieldError{field, fmt.Sprintf(format, args...)}
}

// rules are the bounds that an instance sets to the fields of requests and mappings.
type rules struct {
	maxTimeout  time.Duration
	guard       *outbound.Guard
	checkSchema func(raw []byte) error
	channels    map[string]engine.Channel // a nil channel is one that has not been loaded yet
}

// checkSchema checks a schema where there is no engine yet that would remember it.
func checkSchema(raw []byte) error {
	_, err := contract.Compile(raw)
	return err
}

// check looks at the fields as they are when a run is asked for. What it says names the field first.
func (f *AgentFields) check(r *rules) error {
	if err := checkChatID(f.ChatID); err != nil {
		return err
	}
	if err := oneOf("model", f.Model, tiers); err != nil {
		return err
	}
	if err := oneOf("memoryPreset", f.MemoryPreset, memoryPresets); err != nil {
		return err
	}
	if f.ResponseJSONSchema != nil {
		if !f.SyncResponse {
			return fieldErrorf("responseJsonSchema", "needs syncResponse to be true")
		}
		if err := r.checkSchema(f.ResponseJSONSchema); err != nil {
			return fieldErrorf("responseJsonSchema", "is refused: %v", err)
		}
		if err := oneOf("responseValidationModelTier", f.ResponseValidationModelTier, tiers); err != nil {
			return err
		}
	}
	if f.CallbackURL != "" {
		if err := r.guard.CheckURL(f.CallbackURL); err != nil {
			return fieldErrorf("callbackUrl", "is refused: %v", err)
		}
	}
	if f.Deliver {
		if err := f.checkDelivery(r.channels); err != nil {
			return err
		}
	}
	if longest := int(r.maxTimeout / time.Second); f.TimeoutSeconds < 0 || f.TimeoutSeconds > longest {
		return fieldErrorf("timeoutSeconds", "must be from 1 to %d", longest)
	}
	return nil
}

func (f *AgentFields) checkDelivery(channels map[string]engine.Channel) error {
	if f.Channel == "" {
		return fieldErrorf("channel", "must name a channel when deliver is true")
	}
	if f.To == "" {
		return fieldErrorf("to", "must name a chat on the channel when deliver is true")
	}
	channel, ok := channels[f.Channel]
	if !ok {
		return fieldErrorf("channel", "names no channel that is configured here")
	}
	if channel != nil {
		if err := channel.ValidTo(f.To); err != nil {
			return fieldErrorf("to", "is refused: %v", err)
		}
	}
	return nil
}

const maxChatID = 256

func checkChatID(id string) error {
	if len(id) > maxChatID {
		return fieldErrorf("chatId", "must not be longer than %d bytes", maxChatID)
	}
	if strings.ContainsFunc(id, isControl) {
		return fieldErrorf("chatId", "must not hold control characters")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }

func oneOf(field, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fieldErrorf(field, "must be one of %s", strings.Join(allowed, ", "))
}

// hook is a mapping made ready for requests.
type hook struct {
	Mapping
	template *template.Template
	chatID   *template.Template
	wants    *strictjson.Want // what the two look at in a body
	hmac     *auth.HMAC       // nil in bearer mode
	pinned   bool
}

// compile checks the mapping and makes it ready. resolve turns a secret as it was configured into the secret itself.
func (m Mapping) compile(r *rules, resolve func(string) (string, error)) (*hook, error) {
	m.normalize()
	h := &hook{Mapping: m}
	if !hookName.MatchString(m.Name) {
		return nil, fieldErrorf("name", "must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
	}
	if slices.Contains(reservedNames, m.Name) {
		return nil, fieldErrorf("name", "must not be %s, which are taken", strings.Join(reservedNames, ", "))
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
	switch m.AuthMode {
	case "", "bearer":
	case "hmac":
		secret, err := resolve(m.HMACSecret)
		if err != nil {
			return nil, fieldErrorf("hmacSecret", "%v", err)
		}
		if m.HMACHeader == "" {
			return nil, fieldErrorf("hmacHeader", "must name the header that carries the signature")
		}
		if http.CanonicalHeaderKey(m.HMACHeader) == "Host" {
			return nil, fieldErrorf("hmacHeader", "must not be Host, which is no header to Caddy")
		}
		if h.hmac, err = auth.NewHMAC(m.HMACHeader, secret, m.HMACPrefix); err != nil {
			return nil, fieldErrorf("hmacHeader", "is refused: %v", err)
		}
	default:
		return nil, oneOf("authMode", m.AuthMode, []string{"bearer", "hmac"})
	}
	if m.IdempotencyHeader != "" {
		if !httpguts.ValidHeaderFieldName(m.IdempotencyHeader) || strings.Contains(m.IdempotencyHeader, "_") {
			return nil, fieldErrorf("idempotencyHeader", "must be the name of a header, without underscores")
		}
		if name := http.CanonicalHeaderKey(m.IdempotencyHeader); name == "Host" || name == "Authorization" || name == "X-Service-Token" {
			return nil, fieldErrorf("idempotencyHeader", "must not be %s, which does not tell one request from another", name)
		}
	}
	var err error
	if h.template, err = template.Parse(m.MessageTemplate); err != nil {
		return nil, fieldErrorf("messageTemplate", "is refused: %v", err)
	}
	if h.chatID, err = template.Parse(m.ChatID); err != nil {
		return nil, fieldErrorf("chatId", "is refused: %v", err)
	}
	h.wants = new(strictjson.Want)
	h.template.Wants(h.wants)
	h.chatID.Wants(h.wants)
	if m.Metadata != nil && !isJSONObject(m.Metadata) {
		return nil, fieldErrorf("metadata", "must be an object")
	}
	return h, h.AgentFields.check(r)
}

func isJSONObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}

// normalize makes what an editor sends for "nothing" the same as leaving it out.
func (m *Mapping) normalize() {
	if string(bytes.TrimSpace(m.ResponseJSONSchema)) == "null" {
		m.ResponseJSONSchema = nil
	}
	if string(bytes.TrimSpace(m.Metadata)) == "null" {
		m.Metadata = nil
	}
}

// check looks at the settings other than the mappings.
func (s *Settings) check(r *rules) error {
	longest := int(r.maxTimeout / time.Second)
	if t := s.DefaultTimeoutSeconds; t != nil && (*t < 1 || *t > longest) {
		return fieldErrorf("defaultTimeoutSeconds", "must be from 1 to %d", longest)
	}
	if size := s.MaxPayloadSize; size != nil && (*size < 1 || *size > maxMaxPayload) {
		return fieldErrorf("maxPayloadSize", "must be from 1 byte to %s", humanize.IBytes(maxMaxPayload))
	}
	if p := s.MemoryPreset; p != nil && (*p == "" || oneOf("memoryPreset", *p, memoryPresets) != nil) {
		return fieldErrorf("memoryPreset", "must be one of %s", strings.Join(memoryPresets, ", "))
	}
	return nil
}

// maxMaxPayload bounds the bound, since bodies are read into memory.
const maxMaxPayload = 64 << 20

// merge returns the settings with what over has set laid on top. Mappings are joined, those of over first.
func (s Settings) merge(over Settings) Settings {
	if over.Enabled != nil {
		s.Enabled = over.Enabled
	}
	if over.Token != nil {
		s.Token = over.Token
	}
	if over.DefaultTimeoutSeconds != nil {
		s.DefaultTimeoutSeconds = over.DefaultTimeoutSeconds
	}
	if over.MaxPayloadSize != nil {
		s.MaxPayloadSize = over.MaxPayloadSize
	}
	if over.MemoryPreset != nil {
		s.MemoryPreset = over.MemoryPreset
	}
	mappings := slices.Clone(over.Mappings)
	for _, m := range s.Mappings {
		if indexMapping(mappings, m.Name) < 0 {
			mappings = append(mappings, m)
		}
	}
	s.Mappings = mappings
	return s
}

// without returns the settings with one of them unset, or without a hook.
func (s Settings) without(name string) Settings {
	switch name {
	case "token":
		s.Token = nil
	case "defaultTimeoutSeconds":
		s.DefaultTimeoutSeconds = nil
	case "maxPayloadSize":
		s.MaxPayloadSize = nil
	case "memoryPreset":
		s.MemoryPreset = nil
	default:
		s.Mappings = slices.DeleteFunc(slices.Clone(s.Mappings), func(m Mapping) bool { return hookProblem(m.Name) == name })
	}
	return s
}

// setting returns one of the settings, or a hook, by the name that without takes.
func (s Settings) setting(name string) any {
	switch name {
	case "token":
		return s.Token
	case "defaultTimeoutSeconds":
		return s.DefaultTimeoutSeconds
	case "maxPayloadSize":
		return s.MaxPayloadSize
	case "memoryPreset":
		return s.MemoryPreset
	default:
		return slices.DeleteFunc(slices.Clone(s.Mappings), func(m Mapping) bool { return hookProblem(m.Name) != name })
	}
}

func indexMapping(all []Mapping, name string) int {
	return slices.IndexFunc(all, func(m Mapping) bool { return m.Name == name })
}

// defaultSettings is what holds where nobody set anything.
func defaultSettings(r *rules) Settings {
	return Settings{
		Enabled:               new(false),
		DefaultTimeoutSeconds: new(min(300, int(r.maxTimeout/time.Second))),
		MaxPayloadSize:        new(Size(64 << 10)),
		MemoryPreset:          new(engine.MemoryDisabled),
	}
}

// Secrets is a list of secrets. A single one is a plain string in JSON.
type Secrets []string

// MarshalJSON writes one secret as a string, and several as an array.
func (s Secrets) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]string(s))
}

// UnmarshalJSON reads a string or an array of strings.
func (s *Secrets) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*s = nil
		if one != "" {
			*s = Secrets{one}
		}
		return nil
	}
	var all []string
	if json.Unmarshal(data, &all) != nil {
		return errors.New("a secret must be a string or an array of strings")
	}
	*s = all
	return nil
}

// Size is a number of bytes. In JSON and in a Caddyfile it can be written as in "64KB", which is 65536.
type Size = caddyconf.Size
