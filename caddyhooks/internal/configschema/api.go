package configschema

import (
	"reflect"
)

// API makes schemas of what an API takes and answers. Members that are always there are required.
type API struct {
	Known   map[reflect.Type]Schema // of types that are not described by their fields
	Closed  bool                    // objects have no other members, for tests; clients have to accept members of later versions
	schemas *schemas
}

// Of is the schema of a type, which refers to Definitions.
func (a *API) Of(kind reflect.Type) (Schema, error) {
	if a.schemas == nil {
		var err error
		if a.schemas, err = newSchemas(); err != nil {
			return nil, err
		}
		a.schemas.api = a
	}
	return a.schemas.value(kind), nil
}

// Definitions are the schemas that others refer to, by the name of the type.
func (a *API) Definitions() Schema { return a.schemas.defs }

// Types are the types of which there are schemas.
func (a *API) Types() []reflect.Type { return a.schemas.types }

// OrNull is a schema for null, too.
func OrNull(schema Schema) Schema {
	if kind, ok := schema["type"].(string); ok && schema["enum"] == nil {
		schema["type"] = []string{kind, "null"}
		return schema
	}
	if len(schema) == 0 { // anything
		return schema
	}
	return Schema{"anyOf": []any{schema, Schema{"type": "null"}}}
}
