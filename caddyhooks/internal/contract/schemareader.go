package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// A schemaReader checks all subschemas of a schema and makes the reduced copy of the schema for the library.
type schemaReader struct {
	numbered  []*subschema // the objects among them; the format of the copy of each is its number
	byPointer map[string]*subschema
	patterns  patternsSize
	references
}

func newSchemaReader() *schemaReader {
	return &schemaReader{
		byPointer:  make(map[string]*subschema),
		references: references{resources: make(map[string]*resource), anchors: make(map[string]string)},
	}
}

// maxSubschemas bounds the time of the library, which grows with the square of their number.
const maxSubschemas = 2_000

// kind is the form of a keyword's value.
type kind int

const (
	annotation kind = iota // left out of the reduced copy
	assertion
	count // an assertion whose value is a natural number
	oneSchema
	schemaList
	schemaMap
)

// keywords are the keywords of the draft, without annotations. The library gets to see no others: it knows more, of its
// own and from other drafts.
var keywords = map[string]kind{
	"$dynamicAnchor": assertion,
	"$defs":          schemaMap, "definitions": schemaMap,

	"allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList,
	"not": oneSchema, "if": oneSchema, "then": oneSchema, "else": oneSchema,
	"properties": schemaMap, "patternProperties": schemaMap, "additionalProperties": oneSchema,
	"propertyNames": oneSchema, "dependentSchemas": schemaMap, "unevaluatedProperties": oneSchema,
	"dependencies": schemaMap, // some of its values are lists of names
	"prefixItems":  schemaList, "items": oneSchema, "contains": oneSchema, "unevaluatedItems": oneSchema,
	"contentSchema": oneSchema,

	"type": assertion, "const": assertion, "enum": assertion,
	"multipleOf": assertion, "maximum": assertion, "exclusiveMaximum": assertion, "minimum": assertion, "exclusiveMinimum": assertion,
	"maxLength": count, "minLength": count, "pattern": assertion,
	"maxItems": count, "minItems": count, "uniqueItems": assertion, "maxContains": count, "minContains": count,
	"maxProperties": count, "minProperties": count, "required": assertion, "dependentRequired": assertion,
}

// neverEqual is nested deeper than any validated value. It is added to every enum: the library ignores empty enums, and
// lists the values of an enum in every error unless one of them is nested.
var neverEqual = json.RawMessage(strings.Repeat("[", answerBounds.depth+2) + strings.Repeat("]", answerBounds.depth+2))

// read returns the reduced copy of the subschema v, which stands a step below the subschema at above.
func (r *schemaReader) read(v any, above, step string, enclosing *resource) (any, error) {
	if len(r.byPointer) == maxSubschemas {
		return nil, fmt.Errorf("the schema has more than %d subschemas", maxSubschemas)
	}
	at := above + step
	p := &subschema{at: at, step: max(len(step), len("/$dynamicRef")), doc: v}
	r.byPointer[at] = p
	m, ok := v.(map[string]any)
	if !ok {
		return v, nil
	}
	if dialect, found := m["$schema"]; found && dialect != draft && dialect != draft+"#" {
		return nil, invalid(at+"/$schema", "only Draft 2020-12 is supported; leave $schema out or make it "+quote(draft))
	}
	if err := p.estimateCosts(m, &r.patterns); err != nil {
		return nil, err
	}
	if err := checkAgainstMetaSchema(m, at); err != nil {
		return nil, err
	}
	reduced := map[string]any{"format": strconv.Itoa(len(r.numbered))}
	r.numbered = append(r.numbered, p)
	enclosing, err := r.register(m, reduced, at, enclosing)
	if err != nil {
		return nil, err
	}
	for _, keyword := range slices.Sorted(maps.Keys(m)) {
		value := m[keyword]
		switch keywords[keyword] {
		case annotation:
			continue
		case count:
			value = clampCount(value)
		}
		if keyword == "enum" {
			value = append(slices.Clip(value.([]any)), neverEqual)
		}
		reduced[keyword], err = replaceSubschemas(keyword, value, func(sub any, step string) (any, error) {
			return r.read(sub, at, "/"+step, enclosing)
		})
		if err != nil {
			return nil, err
		}
	}
	return reduced, nil
}

// replaceSubschemas returns the value of a keyword with all subschemas in it replaced. A step is the part of a JSON
// pointer from the schema that has the keyword to the subschema.
func replaceSubschemas(keyword string, value any, replace func(sub any, step string) (any, error)) (_ any, err error) {
	isSchema := func(v any) bool {
		switch v.(type) {
		case map[string]any, bool:
			return true
		}
		return false
	}
	switch keywords[keyword] {
	case oneSchema:
		if isSchema(value) {
			return replace(value, keyword)
		}
	case schemaList:
		if items, ok := value.([]any); ok {
			items = slices.Clone(items)
			for i, item := range items {
				if !isSchema(item) {
					continue
				}
				if items[i], err = replace(item, keyword+"/"+strconv.Itoa(i)); err != nil {
					return nil, err
				}
			}
			return items, nil
		}
	case schemaMap:
		if members, ok := value.(map[string]any); ok {
			members = maps.Clone(members)
			for _, name := range slices.Sorted(maps.Keys(members)) {
				if !isSchema(members[name]) {
					continue
				}
				if members[name], err = replace(members[name], keyword+"/"+escapeToken(name)); err != nil {
					return nil, err
				}
			}
			return members, nil
		}
	}
	return value, nil
}

var metaSchema = jsonschema.MustCompile(draft)

const draft = "https://json-schema.org/draft/2020-12/schema"

// checkAgainstMetaSchema checks a subschema without the subschemas inside it, which are checked on their own. All errors
// of a schema at once would cost the library seconds.
func checkAgainstMetaSchema(m map[string]any, at string) (err error) {
	defer recoverUnusable(&err)
	own := make(map[string]any, len(m))
	for keyword, value := range m {
		own[keyword], _ = replaceSubschemas(keyword, value, func(any, string) (any, error) { return true, nil })
	}
	failed := (*validationError)(nil)
	if err = metaSchema.Validate(own); err == nil {
		return nil
	} else if !errors.As(err, &failed) {
		return errUnusable
	}
	place := pickErrors(failed, 1)[0].InstanceLocation
	keyword := splitPointer(place)[0]
	return invalid(at+place, keywordDemand(keyword, m[keyword]))
}

// invalid returns the error for a place in the schema.
func invalid(at, text string) error {
	return fmt.Errorf("the schema is not valid at %s: %s", showPointer(at), text)
}

// keywordDemand says what the value of a keyword must be.
func keywordDemand(keyword string, value any) string {
	switch keywords[keyword] {
	case count:
		return "it must be an integer of at least 0"
	case oneSchema:
		if _, ok := value.([]any); ok && keyword == "items" {
			return "it must be a schema; a list of schemas is called prefixItems"
		}
		return "it must be a schema, which is an object or a boolean"
	case schemaList:
		return "it must be an array of at least one schema, each an object or a boolean"
	case schemaMap:
		if keyword == "dependencies" {
			return "it must be an object of schemas or of arrays of different property names"
		}
		return "it must be an object of schemas, each an object or a boolean"
	}
	switch keyword {
	case "type":
		return "it must be one or several different of object, array, string, integer, number, boolean and null"
	case "required":
		return "it must be an array of different property names"
	case "dependentRequired":
		return "it must be an object of arrays of different property names"
	case "enum", "examples":
		return "it must be an array"
	case "multipleOf":
		return "it must be a number greater than 0"
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return "it must be a number"
	case "uniqueItems", "readOnly", "writeOnly", "deprecated":
		return "it must be true or false"
	case "$anchor", "$dynamicAnchor":
		return "it must be a name"
	case "$id":
		return "it must be a URI without a fragment"
	case "$ref", "$dynamicRef":
		return "it must be a URI reference"
	case "$vocabulary":
		return "it must be an object of booleans"
	default:
		return "it must be a string"
	}
}

// clampCount replaces a number that is too large for the library by a smaller one that no value reaches either.
func clampCount(v any) any {
	const most = math.MaxInt32
	if r, ok := new(big.Rat).SetString(string(v.(json.Number))); ok && r.Cmp(big.NewRat(most, 1)) > 0 {
		return json.Number(strconv.Itoa(most))
	}
	return v
}
