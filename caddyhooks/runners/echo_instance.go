package runners

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// schemaInstance makes JSON for a schema: its first example, its default, its constant or first choice, or a value of its type with
// the members, items and characters that it requires. The value need not fit the rest of the schema, which its check reports.
func schemaInstance(schema []byte) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(schema))
	decoder.UseNumber()
	var root any
	if err := decoder.Decode(&root); err != nil {
		return "", err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	builder := instanceBuilder{root: root, left: 1000}
	err := encoder.Encode(builder.instance(root))
	return strings.TrimSuffix(out.String(), "\n"), err
}

// instanceBuilder builds the values of one instance. A schema can refer to itself, so their number and size is limited.
type instanceBuilder struct {
	root any
	left int // values, or 100 bytes of the schema that are repeated
}

func (b *instanceBuilder) instance(from any) any {
	schema, _ := from.(map[string]any)
	if b.left--; b.left < 0 || schema == nil {
		return nil
	}
	if examples, _ := schema["examples"].([]any); len(examples) > 0 {
		return b.literal(examples[0])
	}
	for _, keyword := range []string{"default", "const"} {
		if value, ok := schema[keyword]; ok {
			return b.literal(value)
		}
	}
	for _, keyword := range []string{"enum", "anyOf", "oneOf", "allOf"} {
		if choices, _ := schema[keyword].([]any); len(choices) > 0 && keyword == "enum" {
			return b.literal(choices[0])
		} else if len(choices) > 0 && schema["type"] == nil {
			return b.instance(choices[0])
		}
	}
	if name, ok := schema["$ref"].(string); ok {
		return b.instance(b.definition(name))
	}
	switch typeOf(schema) {
	case "object":
		object := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			name, _ := name.(string)
			if b.left -= len(name) / 100; b.left > 0 {
				object[name] = b.instance(properties[name])
			}
		}
		return object
	case "array":
		items := []any{}
		for len(items) < atLeast(schema, "minItems") && b.left > 0 {
			items = append(items, b.instance(schema["items"]))
		}
		return items
	case "string":
		return strings.Repeat("a", min(atLeast(schema, "minLength"), 1000))
	case "integer", "number":
		if least, ok := schema["minimum"]; ok {
			return b.literal(least)
		}
		return 0
	case "boolean":
		return false
	}
	return nil
}

// literal returns a value that stands in the schema.
func (b *instanceBuilder) literal(value any) any {
	text, _ := json.Marshal(value)
	b.left -= len(text) / 100
	return value
}

// typeOf returns the first type of a schema. One without a type is that of an object if it has members.
func typeOf(schema map[string]any) any {
	types, several := schema["type"].([]any)
	switch {
	case several && len(types) > 0:
		return types[0]
	case schema["type"] == nil && (schema["properties"] != nil || schema["required"] != nil):
		return "object"
	}
	return schema["type"]
}

// definition finds the schema that a reference such as #/$defs/name leads to.
func (b *instanceBuilder) definition(reference string) any {
	found := b.root
	for _, key := range slices.DeleteFunc(strings.Split(strings.TrimPrefix(reference, "#"), "/"), func(key string) bool { return key == "" }) {
		object, _ := found.(map[string]any)
		found = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]
	}
	return found
}

// atLeast returns the number at a keyword, 0 if there is none.
func atLeast(schema map[string]any, keyword string) int {
	number, _ := schema[keyword].(json.Number)
	n, _ := number.Int64()
	return int(max(n, 0))
}
