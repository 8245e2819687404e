package caddyhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// mappingJSON is a mapping as the admin API shows it, with its secret masked.
type mappingJSON struct {
	Mapping
	Pinned bool `json:"pinned,omitempty"`
}

func newMappingJSON(m Mapping, pinned bool) mappingJSON {
	for _, field := range secretFields {
		if secret := field.in(&m); *secret != "" {
			*secret = mask
		}
	}
	return mappingJSON{m, pinned}
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
	var replaced []Mapping
	for _, m := range all {
		if indexMapping(replaced, m.Name) >= 0 {
			return fieldErrorf("mappings", "has two hooks of the name %s", m.Name)
		}
		pinned, err := in.admitMapping(&m, live.Mappings)
		if err != nil {
			return err
		}
		if !pinned {
			replaced = append(replaced, m)
		}
	}
	for _, pinned := range in.pinned.Mappings {
		if indexMapping(all, pinned.Name) < 0 {
			return pinnedHook(pinned.Name)
		}
	}
	live.Mappings = replaced
	return nil
}

// admitMapping puts the secret in force in the place of a mask, and reports whether the mapping is pinned. A change of a
// pinned mapping is an error.
func (in *instance) admitMapping(m *Mapping, live []Mapping) (pinned bool, err error) {
	i := indexMapping(in.pinned.Mappings, m.Name)
	inForce := live
	if i >= 0 {
		inForce = in.pinned.Mappings
	}
	for _, field := range secretFields {
		secret := field.in(m)
		if *secret != mask {
			continue
		}
		k := indexMapping(inForce, m.Name)
		if k < 0 || *field.in(&inForce[k]) == "" {
			return false, fieldErrorf(field.name, "must be the secret itself: there is none yet that a mask could stand for")
		}
		*secret = *field.in(&inForce[k])
	}
	if i >= 0 && !sameMapping(*m, in.pinned.Mappings[i]) {
		return true, pinnedHook(m.Name)
	}
	return i >= 0, nil
}

func pinnedHook(name string) error {
	return conflictf("the hook %s is set by Caddy's configuration, and can only be changed there", name)
}

func parseMappings(raw []byte) ([]Mapping, error) {
	var raws []json.RawMessage
	if json.Unmarshal(raw, &raws) != nil {
		return nil, fieldErrorf("mappings", "must be an array of mappings")
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
		return Mapping{}, fieldErrorf(*obj.Other, "is unknown; the fields of a mapping are %s", strings.Join(mappingFields, ", "))
	}
	for _, member := range obj.Members {
		if number, ok := member.Value.(json.Number); ok && member.Key == "timeoutSeconds" && number == "0" {
			return Mapping{}, fieldErrorf("timeoutSeconds", "must be at least 1")
		}
	}
	var m mappingJSON
	err = json.Unmarshal(raw, &m)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
		return Mapping{}, fieldErrorf(field, "must be %s", wantedKind(wrong.Type.Kind()))
	}
	m.normalize()
	return m.Mapping, err
}

// wantedKind describes a kind in the words of JSON.
func wantedKind(kind reflect.Kind) string {
	switch kind {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
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
