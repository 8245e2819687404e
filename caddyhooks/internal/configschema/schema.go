// Package configschema makes JSON Schemas from Go types and the comments on them: of the configuration of modules, and of what an API
// takes and answers. It imports caddyconf.
package configschema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// docsJSON has the comments on types and their fields. A test writes it, and fails if it is out of date.
//
//go:embed docs.json
var docsJSON []byte

// Docs are comments by the name of a type, and then by that of a field; "" is the type itself.
type Docs map[string]map[string]string

// Schema is a JSON Schema, or a part of one.
type Schema = map[string]any

// modulePath begins the packages whose types are described. Of modules in others only the name is known.
var modulePath = strings.TrimSuffix(reflect.TypeFor[caddyconf.Size]().PkgPath(), "/internal/caddyconf")

// IsOurs reports whether a type is described.
func IsOurs(kind reflect.Type) bool {
	return kind.PkgPath() == modulePath || strings.HasPrefix(kind.PkgPath(), modulePath+"/")
}

// TypeName is the name of a type in Docs, and in the schema.
func TypeName(kind reflect.Type) string {
	dir := strings.Trim(strings.TrimPrefix(kind.PkgPath(), modulePath), "/")
	switch dir {
	case "", "internal/service", "internal/settings": // the root package shows their types under its own name
		return kind.Name()
	default:
		return dir + "." + kind.Name()
	}
}

// Of is the schema of a Caddy handler that is one of the given modules, whose names are in the member "handler".
func Of(handlers ...string) (Schema, error) {
	s, err := newSchemas()
	if err != nil {
		return nil, err
	}
	const namespace, key = "http.handlers", "handler"
	root := s.oneOfModules(namespace, key, handlers)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Handlers of caddy-hooks in the JSON configuration of Caddy"
	root["$defs"] = s.defs
	return root, nil
}

// Types are the types that the schema of some modules describes, those of their guests included.
func Types(handlers ...string) []reflect.Type {
	s, _ := newSchemas() // the docs do not matter
	s.oneOfModules("http.handlers", "handler", handlers)
	return s.types
}

type schemas struct {
	docs  Docs
	defs  Schema
	types []reflect.Type
	api   *API // nil for a configuration
}

func newSchemas() (*schemas, error) {
	s := &schemas{defs: make(Schema)}
	if err := json.Unmarshal(docsJSON, &s.docs); err != nil {
		return s, fmt.Errorf("reading comments: %w", err)
	}
	return s, nil
}

// define adds a definition, unless it is there. It is made after its name is known, as types may refer to themselves.
func (s *schemas) define(name string, make func() Schema) Schema {
	key := strings.ReplaceAll(name, "/", ".")
	if _, ok := s.defs[key]; !ok {
		s.defs[key] = nil
		s.defs[key] = make()
	}
	if s.api != nil {
		return Schema{"$ref": "#/components/schemas/" + key}
	}
	return Schema{"$ref": "#/$defs/" + key}
}

// guests is a module of a namespace that is compiled in.
func (s *schemas) guests(namespace, key string) Schema {
	return s.define(namespace, func() Schema {
		var names []string
		for _, info := range caddy.GetModules(namespace) {
			names = append(names, info.ID.Name())
		}
		return s.oneOfModules(namespace, key, names)
	})
}

// oneOfModules is an object whose member key names one of some modules, and which has the members of that module.
func (s *schemas) oneOfModules(namespace, key string, names []string) Schema {
	slices.Sort(names)
	var cases []any
	for _, name := range names {
		cases = append(cases, Schema{
			"if":   Schema{"properties": Schema{key: Schema{"const": name}}, "required": []string{key}},
			"then": s.module(namespace+"."+name, key, name),
		})
	}
	return Schema{
		"type": "object", "required": []string{key}, "allOf": cases,
		"properties": Schema{key: Schema{"enum": names, "description": "The name of the module."}},
	}
}

// module is an object with the members of a module, and its name. Other people's modules may have any members.
func (s *schemas) module(id, key, name string) Schema {
	return s.define(id, func() Schema {
		info, err := caddy.GetModule(id)
		if err != nil {
			return Schema{}
		}
		kind := reflect.TypeOf(info.New())
		for kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if !IsOurs(kind) || kind.Kind() != reflect.Struct {
			return Schema{"type": "object"}
		}
		schema := s.structure(kind)
		schema["properties"].(Schema)[key] = Schema{"const": name, "description": "The name of the module."}
		return schema
	})
}

// structure is an object with the members of a struct. A configuration has no others: Caddy refuses members that it does not know.
func (s *schemas) structure(kind reflect.Type) Schema {
	schema := Schema{"type": "object"}
	s.describe(schema, kind, "")
	members := make(Schema)
	required := s.addMembers(members, kind)
	schema["properties"] = members
	if s.api == nil || s.api.Closed {
		schema["additionalProperties"] = false
	}
	if s.api != nil && len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// describe adds the comment on a type, or on its field.
func (s *schemas) describe(schema Schema, kind reflect.Type, field string) {
	if field == "" {
		s.types = append(s.types, kind)
	}
	if doc := s.docs[TypeName(kind)][field]; doc != "" {
		schema["description"] = doc
	}
}

// addMembers adds the members of a struct, and returns the names of those that are always there.
func (s *schemas) addMembers(members Schema, kind reflect.Type) (required []string) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			if embedded := field.Type; embedded.Kind() == reflect.Struct {
				s.types = append(s.types, embedded)
				required = append(required, s.addMembers(members, embedded)...)
			}
		case !field.IsExported() || name == "" || name == "-":
		default:
			member := s.field(field)
			always := !strings.Contains(options, "omitempty")
			if s.api != nil && always && field.Type.Kind() == reflect.Pointer {
				member = OrNull(member)
			}
			s.describe(member, kind, field.Name)
			members[name] = member
			if always {
				required = append(required, name)
			}
		}
	}
	return required
}

// field is the schema of a field, which may hold guest modules.
func (s *schemas) field(field reflect.StructField) Schema {
	options := make(map[string]string)
	for _, option := range strings.Fields(field.Tag.Get("caddy")) {
		name, value, _ := strings.Cut(option, "=")
		options[name] = value
	}
	namespace, key := options["namespace"], options["inline_key"]
	if namespace == "" || key == "" {
		return s.value(field.Type)
	}
	guest := s.guests(namespace, key)
	switch field.Type.Kind() {
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": guest}
	case reflect.Slice:
		if field.Type != reflect.TypeFor[json.RawMessage]() {
			return Schema{"type": "array", "items": guest}
		}
	}
	return guest
}

// Values that are written in several ways.
var schemasOfTexts = map[reflect.Type]Schema{
	reflect.TypeFor[caddy.Duration]():  {"type": []string{"string", "integer"}},
	reflect.TypeFor[caddyconf.Size]():  {"type": []string{"string", "integer"}},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
}

// value is the schema of a Go type. A nil pointer can be written as null, and so can be what is empty.
func (s *schemas) value(kind reflect.Type) Schema {
	if known, ok := schemasOfTexts[kind]; ok {
		return maps.Clone(known)
	}
	if s.api != nil && s.api.Known[kind] != nil {
		return maps.Clone(s.api.Known[kind])
	}
	if isOneOrMore(kind) {
		return Schema{"anyOf": []any{Schema{"type": "string"}, Schema{"type": "array", "items": Schema{"type": "string"}}}}
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return s.value(kind.Elem())
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Schema{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Slice, reflect.Array:
		return Schema{"type": "array", "items": s.value(kind.Elem())}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": s.value(kind.Elem())}
	case reflect.Struct:
		if IsOurs(kind) {
			name := TypeName(kind)
			if s.api != nil {
				name = kind.Name()
			}
			return s.define(name, func() Schema { return s.structure(kind) })
		}
	}
	return Schema{} // of other packages, which may change
}

// isOneOrMore reports whether a list of texts can be written as a single text, too.
func isOneOrMore(kind reflect.Type) bool {
	return kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.String &&
		reflect.PointerTo(kind).Implements(reflect.TypeFor[json.Unmarshaler]())
}
