package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// ShownMapping is a mapping as the admin API shows it, with its secret and the query of its callback masked.
type ShownMapping struct {
	Mapping
	Pinned   bool     `json:"pinned,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // in the answer to whoever saved it
}

func ShowMapping(m Mapping, pinned bool) ShownMapping {
	for _, field := range SecretFields {
		secrets := field.In(&m)
		*secrets = secrets.masked()
	}
	m.CallbackURL = text.MaskedQuery(m.CallbackURL)
	return ShownMapping{Mapping: m, Pinned: pinned}
}

// AdmitMapping puts the secret in force in the place of a mask, and likewise the query of the callback. A change of a pinned mapping is an
// error. pinned and live are the mappings of the same name, nil if there are none.
func AdmitMapping(m, pinned, live *Mapping) error {
	inForce := live
	if pinned != nil {
		inForce = pinned
	}
	for _, field := range SecretFields {
		secrets := field.In(m)
		if !slices.Contains(*secrets, text.Mask) {
			continue
		}
		var known Secrets
		if inForce != nil {
			known = *field.In(inForce)
		}
		unmasked, err := Unmask("secret", *secrets, known)
		if err != nil {
			return FieldErrorf(field.Name, "%v", err)
		}
		*secrets = unmasked
	}
	if url, masked := strings.CutSuffix(m.CallbackURL, "?"+text.Mask); masked {
		// To another URL the query would be a secret that is given away.
		if inForce == nil || text.MaskedQuery(inForce.CallbackURL) != m.CallbackURL {
			return FieldErrorf("callbackUrl", "must have its query: there is none yet of %s that a mask could stand for", text.Abridge(url))
		}
		m.CallbackURL = inForce.CallbackURL
	}
	if pinned != nil && !SameMapping(m, pinned) {
		return &PinnedHookError{m.Name}
	}
	return nil
}

// PinnedHookError refuses to change a hook that Caddy's configuration sets.
type PinnedHookError struct{ Name string }

func (e *PinnedHookError) Error() string {
	return fmt.Sprintf("the hook %s is set by Caddy's configuration, and can only be changed there", e.Name)
}

func ParseMappings(raw []byte) ([]Mapping, error) {
	var raws []json.RawMessage
	if json.Unmarshal(raw, &raws) != nil {
		return nil, FieldErrorf("mappings", "must be an array of hooks")
	}
	if len(raws) > MaxHooks {
		return nil, errTooManyHooks()
	}
	all := make([]Mapping, len(raws))
	for i, raw := range raws {
		var err error
		if all[i], err = ParseMapping(raw); err != nil {
			return nil, fmt.Errorf("mapping %d: %w", i+1, err)
		}
	}
	return all, nil
}

// ParseMapping reads a mapping from JSON. An unknown field is an error, other than in requests of webhooks.
func ParseMapping(raw []byte) (Mapping, error) {
	obj, err := strictjson.ParseObject(raw, selectedFields)
	if err != nil {
		return Mapping{}, FieldErrorf("mapping", "is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		known := JSONFields(reflect.TypeFor[Mapping]())
		hint := "the"
		if meant := MeantField(obj.Other[0], known); meant != "" {
			hint = "did you mean " + meant + "? The"
		}
		return Mapping{}, FieldErrorf(text.Abridge(obj.Other[0]), "is unknown; %s fields of a hook are %s", hint, strings.Join(known, ", "))
	}
	for _, member := range obj.Members {
		if number, ok := member.Value.(json.Number); ok && member.Key == "timeoutSeconds" && number == "0" {
			return Mapping{}, FieldErrorf("timeoutSeconds", "must be at least 1")
		}
		if member.Key == "maxPayloadSize" && member.Value != nil && json.Unmarshal(member.Raw, new(Size)) != nil {
			return Mapping{}, FieldErrorf("maxPayloadSize", `must be a number of bytes or as in "64KB"`)
		}
	}
	var m ShownMapping
	err = json.Unmarshal(raw, &m)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
		wanted := wrong.Type
		if i := slices.IndexFunc(DescribedFields, func(f MappingField) bool { return f.Name == field }); i >= 0 {
			if whole := reflect.TypeFor[Mapping]().FieldByIndex(DescribedFields[i].Index).Type; whole.Kind() == reflect.Slice {
				wanted = whole // wrong may be about one item
			}
		}
		return Mapping{}, FieldErrorf(field, "must be %s", wantedJSON(wanted))
	}
	var ofField *FieldError
	if err != nil && !errors.As(err, &ofField) {
		return Mapping{}, FieldErrorf("mapping", "is not the JSON that is expected here: %v", err)
	}
	m.normalize()
	return m.Mapping, err
}

// MeantField returns the field that was probably meant: one that is called so in a Caddyfile, or nearly so in JSON.
func MeantField(written string, known []string) string {
	if written == "secret" {
		return "authSecret"
	}
	for _, directive := range new(HookBlock).Directives() {
		if directive.Word == written {
			return directive.fields[0]
		}
	}
	return text.Nearest(strings.ReplaceAll(written, "_", ""), known)
}

// wantedJSON describes a type in the words of JSON.
func wantedJSON(wanted reflect.Type) string {
	if wanted == reflect.TypeFor[Secrets]() {
		return "a string or an array of strings"
	}
	switch wanted.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		return "an array of strings"
	default:
		return "a string"
	}
}

// MappingFields are the fields of a mapping in JSON.
var (
	MappingFields  = JSONFields(reflect.TypeFor[ShownMapping]())
	selectedFields = strictjson.Members(MappingFields...)
)

func JSONFields(t reflect.Type) []string {
	var names []string
	for field := range t.Fields() {
		if field.Anonymous {
			names = append(names, JSONFields(field.Type)...)
		} else {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
