package caddyhooks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// Mapping is a custom hook. It tells how requests to /api/hooks/<name> are authenticated and turned into runs.
type Mapping struct {
	// The last part of the hook's URL.
	Name string `json:"name,omitempty"`

	// The kind of run: "wake" answers with an acknowledgement only, "agent" is a full run. Default: "wake".
	Action engine.Action `json:"action,omitempty"`

	// How callers authenticate: with the token ("bearer") or with a signature ("hmac"). Default: "bearer".
	AuthMode string `json:"authMode,omitempty"`

	// The header that carries the HMAC-SHA256 signature of the body.
	HMACHeader string `json:"hmacHeader,omitempty"`

	// The secret that callers sign with.
	HMACSecret string `json:"hmacSecret,omitempty" secret:"true"`

	// A prefix of the signature in its header, such as "sha256=".
	HMACPrefix string `json:"hmacPrefix,omitempty"`

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

	// How long the message, the metadata and the schema of a finished run are kept; 0 keeps none. Default, and most:
	// historySeconds of the settings.
	HistorySeconds *int `json:"historySeconds,omitempty"`

	AgentFields
}

var (
	hookName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	reservedNames = []string{"wake", "agent", "runs"}
)

// hook is a mapping that is ready for requests: its templates are parsed and its secret is resolved.
type hook struct {
	Mapping
	template *template.Template
	chatID   *template.Template
	selected *strictjson.Selection // parts of a body that the templates read
	auth     authentication
	pinned   bool
}

// compile checks the mapping and makes a hook of it.
func (m Mapping) compile(r *rules, secrets hookSecrets) (*hook, error) {
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
	var err error
	if h.auth, err = m.authentication(secrets); err != nil {
		return nil, err
	}
	if m.IdempotencyHeader != "" {
		if !httpguts.ValidHeaderFieldName(m.IdempotencyHeader) || strings.Contains(m.IdempotencyHeader, "_") {
			return nil, fieldErrorf("idempotencyHeader", "must be the name of a header, without underscores")
		}
		if name := http.CanonicalHeaderKey(m.IdempotencyHeader); name == "Host" || name == "Authorization" || name == "X-Service-Token" {
			return nil, fieldErrorf("idempotencyHeader", "must not be %s, which does not tell one request from another", name)
		}
	}
	if err := h.parseTemplates(); err != nil {
		return nil, err
	}
	if m.Runner != "" && !slices.Contains(r.runners.names, m.Runner) {
		return nil, fieldErrorf("runner", "names no runner that is configured here; there %s", areListed(r.runners.names))
	}
	if m.HistorySeconds != nil {
		if err := r.checkHistory(*m.HistorySeconds); err != nil {
			return nil, fieldErrorf("historySeconds", "%v", err)
		}
	}
	if m.Metadata != nil && !isJSONObject(m.Metadata) {
		return nil, fieldErrorf("metadata", "must be an object")
	}
	return h, h.AgentFields.check(r)
}

// parseTemplates reads the templates of the mapping.
func (h *hook) parseTemplates() (err error) {
	if h.template, err = template.Parse(h.MessageTemplate); err != nil {
		return fieldErrorf("messageTemplate", "is refused: %v", err)
	}
	if h.chatID, err = template.Parse(h.ChatID); err != nil {
		return fieldErrorf("chatId", "is refused: %v", err)
	}
	h.selected = new(strictjson.Selection)
	h.template.Select(h.selected)
	h.chatID.Select(h.selected)
	return nil
}

func isJSONObject(raw json.RawMessage) bool {
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

// maxHooks bounds the custom hooks of an instance: all of them are checked, and stored, at every change of one.
const maxHooks = 10_000

var errTooManyHooks = fieldErrorf("mappings", "must not have more than %d hooks", maxHooks)

func indexMapping(all []Mapping, name string) int {
	return slices.IndexFunc(all, func(m Mapping) bool { return m.Name == name })
}

// findMapping returns nil if there is none of that name.
func findMapping(all []Mapping, name string) *Mapping {
	if i := indexMapping(all, name); i >= 0 {
		return &all[i]
	}
	return nil
}

// mappingsByName finds the first mapping of each name.
func mappingsByName(all []Mapping) map[string]*Mapping {
	found := make(map[string]*Mapping, len(all))
	for i := range all {
		if m := &all[i]; found[m.Name] == nil {
			found[m.Name] = m
		}
	}
	return found
}

// secretField is a field of a mapping with the tag secret:"true": it is shown as a mask, and compared in constant time.
type secretField struct {
	name  string // in JSON
	index []int
}

var secretFields = func() (all []secretField) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Mapping]()) {
		if field.Tag.Get("secret") == "true" {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			all = append(all, secretField{name, field.Index})
		}
	}
	return all
}()

// in returns the secret of a mapping.
func (f secretField) in(m *Mapping) *string {
	return reflect.ValueOf(m).Elem().FieldByIndex(f.index).Addr().Interface().(*string)
}

// mappingField is a field of a mapping in JSON.
type mappingField struct {
	name   string
	index  []int
	secret bool
}

// describedFields are the fields of a mapping but for its name.
var describedFields = func() (all []mappingField) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Mapping]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous && name != "name" {
			all = append(all, mappingField{name, field.Index, field.Tag.Get("secret") == "true"})
		}
	}
	return all
}()

// same compares secrets in constant time, and JSON whatever its spaces are.
func (f mappingField) same(a, b *Mapping) bool {
	x, y := reflect.ValueOf(a).Elem().FieldByIndex(f.index), reflect.ValueOf(b).Elem().FieldByIndex(f.index)
	switch {
	case f.secret:
		return sameSecrets(Secrets{x.String()}, Secrets{y.String()})
	case x.Type() == reflect.TypeFor[json.RawMessage]():
		return bytes.Equal(x.Bytes(), y.Bytes()) || bytes.Equal(compactJSON(x.Bytes()), compactJSON(y.Bytes()))
	default:
		return x.Comparable() && x.Equal(y) || reflect.DeepEqual(x.Interface(), y.Interface())
	}
}

// sameMapping reports whether two mappings differ in no field.
func sameMapping(a, b *Mapping) bool {
	if a.Name != b.Name {
		return false
	}
	for _, field := range describedFields {
		if !field.same(a, b) {
			return false
		}
	}
	return true
}
