package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// A dissection takes a schema apart into its subschemas, checks each of them, and puts together what the library may
// work on.
type dissection struct {
	parts    []*part
	places   map[string]*part
	patterns patternsSize
	references
}

func newDissection() *dissection {
	return &dissection{
		places:     make(map[string]*part),
		references: references{resources: make(map[string]*resource), anchors: make(map[string]string)},
	}
}

// maxSubschemas is there because the library takes time by the square of their number.
const maxSubschemas = 2_000

// kind is what the value of a keyword is.
type kind int

const (
	annotation kind = iota // of no interest to the library
	assertion
	count // an assertion whose value is a natural number
	subschema
	subschemaList
	subschemaMap
)

// keywords are those of the draft that are no annotations, and that the library gets to see as they are. It knows more,
// of its own and from other drafts.
var keywords = map[string]kind{
	"$dynamicAnchor": assertion,
	"$defs":          subschemaMap, "definitions": subschemaMap,

	"allOf": subschemaList, "anyOf": subschemaList, "oneOf": subschemaList,
	"not": subschema, "if": subschema, "then": subschema, "else": subschema,
	"properties": subschemaMap, "patternProperties": subschemaMap, "additionalProperties": subschema,
	"propertyNames": subschema, "dependentSchemas": subschemaMap, "unevaluatedProperties": subschema,
	"dependencies": subschemaMap, // some of its values are lists of names
	"prefixItems":  subschemaList, "items": subschema, "contains": subschema, "unevaluatedItems": subschema,
	"contentSchema": subschema,

	"type": assertion, "const": assertion, "enum": assertion,
	"multipleOf": assertion, "maximum": assertion, "exclusiveMaximum": assertion, "minimum": assertion, "exclusiveMinimum": assertion,
	"maxLength": count, "minLength": count, "pattern": assertion,
	"maxItems": count, "minItems": count, "uniqueItems": assertion, "maxContains": count, "minContains": count,
	"maxProperties": count, "minProperties": count, "required": assertion, "dependentRequired": assertion,
}

// unequalled is nested deeper than any value that is validated. As a member of an enum it changes nothing, but keeps
// the library from ignoring an enum that is empty and from listing a long one in every error.
var unequalled = json.RawMessage(strings.Repeat("[", answerBounds.depth+2) + strings.Repeat("]", answerBounds.depth+2))

// schema returns the subschema v, which stands a step below the subschema at above, as the library may see it.
func (d *dissection) schema(v any, above, step string, home *resource) (any, error) {
	if len(d.places) == maxSubschemas {
		return nil, fmt.Errorf("the schema has more than %d subschemas", maxSubschemas)
	}
	at := above + step
	p := &part{at: at, step: max(len(step), len("/$dynamicRef")), doc: v}
	d.places[at] = p
	m, ok := v.(map[string]any)
	if !ok {
		return v, nil
	}
	if dialect, found := m["$schema"]; found && dialect != draft && dialect != draft+"#" {
		return nil, invalid(at+"/$schema", "only Draft 2020-12 is supported; leave $schema out or make it "+quote(draft))
	}
	if err := p.weigh(m, &d.patterns); err != nil {
		return nil, err
	}
	if err := checkAgainstMetaSchema(m, at); err != nil {
		return nil, err
	}
	whole := map[string]any{"format": strconv.Itoa(len(d.parts))}
	d.parts = append(d.parts, p)
	home, err := d.register(m, whole, at, home)
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
			value = append(slices.Clip(value.([]any)), unequalled)
		}
		whole[keyword], err = replaceSubschemas(keyword, value, func(sub any, step string) (any, error) {
			return d.schema(sub, at, "/"+step, home)
		})
		if err != nil {
			return nil, err
		}
	}
	return whole, nil
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
	case subschema:
		if isSchema(value) {
			return replace(value, keyword)
		}
	case subschemaList:
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
	case subschemaMap:
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

// checkAgainstMetaSchema checks a subschema without those inside it, which have their own turn. So the library never
// meets all the errors that a schema can have at once; they would cost it seconds.
func checkAgainstMetaSchema(m map[string]any, at string) (err error) {
	defer refuse(&err)
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
	place := mostTelling(failed, 1)[0].InstanceLocation
	keyword := splitPointer(place)[0]
	return invalid(at+place, keywordDemand(keyword, m[keyword]))
}

// invalid returns the error for a place in the schema.
func invalid(at, text string) error {
	return fmt.Errorf("the schema is not valid at %s: %s", showPointer(at), text)
}

// keywordDemand says what the value of a keyword must be, for one that is something else.
func keywordDemand(keyword string, value any) string {
	switch keywords[keyword] {
	case count:
		return "it must be an integer of at least 0"
	case subschema:
		if _, ok := value.([]any); ok && keyword == "items" {
			return "it must be a schema; a list of schemas is called prefixItems"
		}
		return "it must be a schema, which is an object or a boolean"
	case subschemaList:
		return "it must be an array of at least one schema, each an object or a boolean"
	case subschemaMap:
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

// clampCount replaces a natural number that is too large for the library by one that no value reaches either.
func clampCount(v any) any {
	const most = 1 << 50
	if r, ok := new(big.Rat).SetString(string(v.(json.Number))); ok && r.Cmp(big.NewRat(most, 1)) > 0 {
		return json.Number(strconv.Itoa(most))
	}
	return v
}
