package caddyhooks

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

// mappingJSON is a mapping as the admin API shows it, with its secret and the query of its callback masked.
type mappingJSON struct {
	Mapping
	Pinned   bool     `json:"pinned,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // in the answer to whoever saved it
}

func newMappingJSON(m Mapping, pinned bool) mappingJSON {
	for _, field := range secretFields {
		secrets := field.in(&m)
		*secrets = secrets.masked()
	}
	m.CallbackURL = maskedQuery(m.CallbackURL)
	return mappingJSON{Mapping: m, Pinned: pinned}
}

func (in *instance) mappings(active *activeSettings) []mappingJSON {
	shown := []mappingJSON{}
	for _, m := range active.settings.Mappings {
		shown = append(shown, newMappingJSON(m, active.hooks[m.Name].pinned))
	}
	return shown
}

func (in *instance) showMappings(active *activeSettings) any { return in.mappings(active) }

// patchMappings replaces all mappings. The pinned ones must be among them, unchanged.
func (in *instance) patchMappings(live *Settings, raw []byte) error {
	all, err := parseMappings(raw)
	if err != nil {
		return err
	}
	sent := mappingsByName(all)
	pinned, inForce := mappingsByName(in.pinned.Mappings), mappingsByName(live.Mappings)
	var replaced []Mapping
	for i := range all {
		m := &all[i]
		if sent[m.Name] != m {
			return fieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		if err := admitMapping(m, pinned[m.Name], inForce[m.Name]); err != nil {
			return err
		}
		if pinned[m.Name] == nil {
			replaced = append(replaced, *m)
		}
	}
	for _, m := range in.pinned.Mappings {
		if sent[m.Name] == nil {
			return &pinnedHookError{m.Name}
		}
	}
	live.Mappings = replaced
	return nil
}

// admitMapping puts the secret in force in the place of a mask, and likewise the query of the callback. A change of a pinned mapping is an error. pinned and live are
// the mappings of the same name, nil if there are none.
func admitMapping(m, pinned, live *Mapping) error {
	inForce := live
	if pinned != nil {
		inForce = pinned
	}
	for _, field := range secretFields {
		secrets := field.in(m)
		if !slices.Contains(*secrets, mask) {
			continue
		}
		var known Secrets
		if inForce != nil {
			known = *field.in(inForce)
		}
		unmasked, err := unmask("secret", *secrets, known)
		if err != nil {
			return fieldErrorf(field.name, "%v", err)
		}
		*secrets = unmasked
	}
	if url, masked := strings.CutSuffix(m.CallbackURL, "?"+mask); masked {
		// To another URL the query would be a secret that is given away.
		if inForce == nil || maskedQuery(inForce.CallbackURL) != m.CallbackURL {
			return fieldErrorf("callbackUrl", "must have its query: there is none yet of %s that a mask could stand for", text.Abridge(url))
		}
		m.CallbackURL = inForce.CallbackURL
	}
	if pinned != nil && !sameMapping(m, pinned) {
		return &pinnedHookError{m.Name}
	}
	return nil
}

// pinnedHookError refuses to change a hook that Caddy's configuration sets.
type pinnedHookError struct{ name string }

func (e *pinnedHookError) Error() string {
	return fmt.Sprintf("the hook %s is set by Caddy's configuration, and can only be changed there", e.name)
}

func parseMappings(raw []byte) ([]Mapping, error) {
	var raws []json.RawMessage
	if json.Unmarshal(raw, &raws) != nil {
		return nil, fieldErrorf("mappings", "must be an array of mappings")
	}
	if len(raws) > maxHooks {
		return nil, errTooManyHooks
	}
	all := make([]Mapping, len(raws))
	for i, raw := range raws {
		var err error
		if all[i], err = parseMapping(raw); err != nil {
			return nil, fmt.Errorf("mapping %d: %w", i+1, err)
		}
	}
	return all, nil
}

// parseMapping reads a mapping from JSON. An unknown field is an error, other than in requests of webhooks.
func parseMapping(raw []byte) (Mapping, error) {
	obj, err := strictjson.ParseObject(raw, selectedFields)
	if err != nil {
		return Mapping{}, fieldErrorf("mapping", "is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		known := jsonFields(reflect.TypeFor[Mapping]())
		hint := "the"
		if meant := meantField(obj.Other[0], known); meant != "" {
			hint = "did you mean " + meant + "? The"
		}
		return Mapping{}, fieldErrorf(text.Abridge(obj.Other[0]), "is unknown; %s fields of a mapping are %s", hint, strings.Join(known, ", "))
	}
	for _, member := range obj.Members {
		if number, ok := member.Value.(json.Number); ok && member.Key == "timeoutSeconds" && number == "0" {
			return Mapping{}, fieldErrorf("timeoutSeconds", "must be at least 1")
		}
		if member.Key == "maxPayloadSize" && member.Value != nil && json.Unmarshal(member.Raw, new(Size)) != nil {
			return Mapping{}, fieldErrorf("maxPayloadSize", `must be a number of bytes or as in "64KB"`)
		}
	}
	var m mappingJSON
	err = json.Unmarshal(raw, &m)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
		wanted := wrong.Type
		if i := slices.IndexFunc(describedFields, func(f mappingField) bool { return f.name == field }); i >= 0 {
			if whole := reflect.TypeFor[Mapping]().FieldByIndex(describedFields[i].index).Type; whole.Kind() == reflect.Slice {
				wanted = whole // wrong may be about one item
			}
		}
		return Mapping{}, fieldErrorf(field, "must be %s", wantedJSON(wanted))
	}
	m.normalize()
	return m.Mapping, err
}

// meantField returns the field that was probably meant: one that is called so in a Caddyfile, or nearly so in JSON.
func meantField(written string, known []string) string {
	if written == "secret" {
		return "authSecret"
	}
	for _, directive := range new(hookBlock).directives() {
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

// mappingFields are the fields of a mapping in JSON.
var (
	mappingFields  = jsonFields(reflect.TypeFor[mappingJSON]())
	selectedFields = strictjson.Members(mappingFields...)
)

func jsonFields(t reflect.Type) []string {
	var names []string
	for field := range t.Fields() {
		if field.Anonymous {
			names = append(names, jsonFields(field.Type)...)
		} else {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
