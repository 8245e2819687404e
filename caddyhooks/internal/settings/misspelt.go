package settings

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// schemaKeywords are those of JSON Schema, Draft 2020-12, and what they have in them.
var schemaKeywords = map[string]schemaContent{
	"properties": schemasByName, "patternProperties": schemasByName, "$defs": schemasByName, "definitions": schemasByName,
	"dependentSchemas": schemasByName,
	"prefixItems":      schemaList, "allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList,
	"items": oneSchema, "additionalProperties": oneSchema, "propertyNames": oneSchema, "contains": oneSchema, "contentSchema": oneSchema,
	"not": oneSchema, "if": oneSchema, "then": oneSchema, "else": oneSchema, "unevaluatedItems": oneSchema, "unevaluatedProperties": oneSchema,

	"type": noSchema, "enum": noSchema, "const": noSchema, "format": noSchema, "pattern": noSchema, "required": noSchema,
	"dependentRequired": noSchema,
	"minimum":           noSchema, "maximum": noSchema, "exclusiveMinimum": noSchema, "exclusiveMaximum": noSchema, "multipleOf": noSchema,
	"minLength": noSchema, "maxLength": noSchema, "minItems": noSchema, "maxItems": noSchema, "uniqueItems": noSchema,
	"minContains": noSchema, "maxContains": noSchema, "minProperties": noSchema, "maxProperties": noSchema,
	"title": noSchema, "description": noSchema, "default": noSchema, "examples": noSchema, "deprecated": noSchema, "readOnly": noSchema,
	"writeOnly":       noSchema,
	"contentEncoding": noSchema, "contentMediaType": noSchema, "dependencies": noSchema,
	"$schema": noSchema, "$id": noSchema, "$ref": noSchema, "$anchor": noSchema, "$dynamicRef": noSchema, "$dynamicAnchor": noSchema,
	"$vocabulary": noSchema, "$comment": noSchema,

	"example": noSchema, "nullable": noSchema, // of OpenAPI
}

// schemaContent is what a keyword has in it.
type schemaContent int

const (
	noSchema schemaContent = iota
	oneSchema
	schemaList
	schemasByName
)

var schemaKeywordNames = slices.Sorted(maps.Keys(schemaKeywords))

// misspeltKeywords are words that are no keywords of JSON Schema, which ignores them, and the keywords that were probably meant, where
// these are too short or too far to be found by nearest.
var misspeltKeywords = map[string]string{
	"typ": "type", "types": "type", "Type": "type", "property": "properties", "item": "items", "enums": "enum", "Enum": "enum",
	"additionalProperty": "additionalProperties", "min": "minimum", "max": "maximum",
}

// MisspeltKeywords returns the misspelt keywords of a schema and of the schemas in it, sorted. Of a schema with many unknown words, which
// people may have for themselves, some are looked at.
func MisspeltKeywords(schema json.RawMessage) []IgnoredWord {
	var doc any
	if len(schema) == 0 || json.Unmarshal(schema, &doc) != nil {
		return nil
	}
	search := misspeltSearch{left: 100, found: make(map[string]string)}
	search.lookAt(doc)
	if object, _ := doc.(map[string]any); len(object) > 0 && !hasKeyword(object) { // such as an example of an answer
		for word := range object {
			search.found[word] = cmp.Or(search.found[word], "")
		}
	}
	var words []IgnoredWord
	for _, written := range slices.Sorted(maps.Keys(search.found)) {
		words = append(words, IgnoredWord{written, search.found[written]})
	}
	return words
}

func hasKeyword(schema map[string]any) bool {
	for word := range schema {
		if _, known := schemaKeywords[word]; known {
			return true
		}
	}
	return false
}

type misspeltSearch struct {
	left  int               // unknown words that may still be compared with keywords
	found map[string]string // the keywords that were probably meant
}

func (s *misspeltSearch) lookAt(doc any) {
	schema, _ := doc.(map[string]any) // not one for true and false
	for word, value := range schema {
		content, known := schemaKeywords[word]
		if !known {
			s.compare(word)
			continue
		}
		switch value := value.(type) {
		case map[string]any:
			if content == oneSchema {
				s.lookAt(value)
			}
			for _, named := range value { // whose names may be any
				if content == schemasByName {
					s.lookAt(named)
				}
			}
		case []any:
			for _, item := range value {
				if content == schemaList {
					s.lookAt(item)
				}
			}
		}
	}
}

func (s *misspeltSearch) compare(word string) {
	const shortest = 5 // a shorter word is near to others by chance
	meant := misspeltKeywords[word]
	if meant == "" && s.left > 0 && len(word) >= shortest && !strings.HasPrefix(word, "x-") {
		s.left--
		meant = text.Nearest(word, schemaKeywordNames)
	}
	if meant != "" {
		s.found[word] = meant
	}
}

// IgnoredWord is a word without an effect, and the one that was probably meant, "" if none is near.
type IgnoredWord struct{ Written, Meant string }
