package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A failure is one error in a value, in our own words. The words of the library mislead, or quote without end.
type failure struct {
	at   string // JSON pointer as the library writes it
	text string
}

func (f failure) String() string { return "at " + showPointer(f.at) + ": " + f.text }

const maxFailures = 8

func (s *Schema) failures(tree *validationError, v any) []failure {
	var all []failure
	for _, e := range pickErrors(tree, maxFailures) {
		all = append(all, s.failure(e, v))
	}
	return all
}

// pickErrors returns up to limit errors from a tree of them, in the order of places in the value and in the schema. A
// choice of alternatives counts as an error, and is followed by the errors of the closest alternative.
func pickErrors(tree *validationError, limit int) []*validationError {
	var found []*validationError
	add := func(e *validationError) {
		at, same := slices.BinarySearchFunc(found, e, func(a, b *validationError) int {
			return cmp.Or(cmp.Compare(a.InstanceLocation, b.InstanceLocation), cmp.Compare(a.AbsoluteKeywordLocation, b.AbsoluteKeywordLocation))
		})
		if !same && at < limit {
			found = slices.Insert(found, at, e)
			found = found[:min(len(found), limit)]
		}
	}
	var walk func(*validationError)
	walk = func(e *validationError) {
		switch {
		case len(e.Causes) == 0 || isAbout(e, "minContains"):
			add(e)
		case isAbout(e, "anyOf") || isAbout(e, "oneOf"):
			add(e)
			walk(slices.MinFunc(e.Causes, func(a, b *validationError) int {
				return cmp.Compare(distance(a, e.InstanceLocation), distance(b, e.InstanceLocation))
			}))
		default:
			for _, cause := range e.Causes {
				walk(cause)
			}
		}
	}
	walk(tree)
	return found
}

// isAbout reports whether e is the error of a keyword. Errors that only group others have no message.
func isAbout(e *validationError, keyword string) bool {
	return e.Message != "" && strings.HasSuffix(e.AbsoluteKeywordLocation, "/"+keyword)
}

// distance says how far a value is from an alternative: the number of errors, where a wrong type counts most, and a wrong
// const or enum, which distinguish alternatives, counts much.
func distance(e *validationError, at string) int {
	total := 0
	for _, cause := range e.Causes {
		total += distance(cause, at)
	}
	switch {
	case len(e.Causes) > 0:
		return total
	case e.InstanceLocation == at && isAbout(e, "type"):
		return 10_000
	case isAbout(e, "const"), isAbout(e, "enum"):
		return 100
	default:
		return 1
	}
}

// failure words an error of the library. It looks up the schema and the validated value v.
func (s *Schema) failure(e *validationError, v any) failure {
	tokens := splitPointer(e.InstanceLocation)
	if appliesToName(e.KeywordLocation) {
		object := e.InstanceLocation[:strings.LastIndexByte(e.InstanceLocation, '/')]
		name := tokens[len(tokens)-1]
		return failure{object, fmt.Sprintf("has a property with the name %s, but the name %s", quote(name), s.explain(e, name))}
	}
	for _, token := range tokens {
		switch container := v.(type) {
		case map[string]any:
			v = container[token]
		case []any:
			if i, err := strconv.Atoi(token); err == nil && i < len(container) {
				v = container[i]
			}
		}
	}
	return failure{e.InstanceLocation, s.explain(e, v)}
}

// appliesToName reports whether a way through the schema leads to the name of a property, not to its value.
func appliesToName(way string) bool {
	tokens := strings.Split(strings.TrimPrefix(way, "/"), "/")
	for i := 0; i < len(tokens); i++ {
		switch keywords[tokens[i]] {
		case schemaList, schemaMap:
			i++ // the index or the name
		case oneSchema:
			if tokens[i] == "propertyNames" {
				return true
			}
		}
	}
	return false
}

// explain words an error about the value v.
func (s *Schema) explain(e *validationError, v any) string {
	_, at, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	m, keyword, name := s.find(at)
	if p := s.byPointer[at]; p != nil && p.doc == false && keyword != "additionalProperties" {
		return "no value is allowed here"
	}
	value := m[keyword]
	list, _ := value.([]any)
	switch keyword {
	case "type":
		return fmt.Sprintf("must be %s, but is %s", showTypes(value), typeName(v))
	case "const":
		return "must be exactly " + show(value)
	case "enum":
		switch len(list) {
		case 0:
			return "no value is allowed here, because enum is empty"
		case 1:
			return "must be exactly " + show(list[0])
		}
		return "must be one of " + showList(list)
	case "minLength":
		return fmt.Sprintf("must have at least %s characters, but has %d", show(value), runeCount(v))
	case "maxLength":
		return fmt.Sprintf("must have at most %s characters, but has %d", show(value), runeCount(v))
	case "pattern":
		return "must match the regular expression " + show(value)
	case "minimum":
		return fmt.Sprintf("must be at least %s, but is %s", show(value), show(v))
	case "exclusiveMinimum":
		return fmt.Sprintf("must be greater than %s, but is %s", show(value), show(v))
	case "maximum":
		return fmt.Sprintf("must be at most %s, but is %s", show(value), show(v))
	case "exclusiveMaximum":
		return fmt.Sprintf("must be less than %s, but is %s", show(value), show(v))
	case "multipleOf":
		return fmt.Sprintf("must be a multiple of %s, but is %s", show(value), show(v))
	case "minItems":
		return fmt.Sprintf("must have at least %s items, but has %d", show(value), childCount(v))
	case "maxItems":
		return fmt.Sprintf("must have at most %s items, but has %d", show(value), childCount(v))
	case "minProperties":
		return fmt.Sprintf("must have at least %s properties, but has %d", show(value), childCount(v))
	case "maxProperties":
		return fmt.Sprintf("must have at most %s properties, but has %d", show(value), childCount(v))
	case "uniqueItems":
		return "must have no equal items"
	case "minContains":
		if value == nil {
			value = json.Number("1")
		}
		return fmt.Sprintf("must have at least %s of the items that contains describes", show(value))
	case "maxContains":
		return fmt.Sprintf("must have at most %s of the items that contains describes", show(value))
	case "required":
		return "lacks " + showList(missing(list, v)) + ", which the schema requires"
	case "dependentRequired", "dependencies":
		others, _ := value.(map[string]any)
		list, _ = others[name].([]any)
		return fmt.Sprintf("has %s and therefore must have %s as well", quote(name), showList(missing(list, v)))
	case "additionalProperties":
		if m["patternProperties"] != nil {
			return "has properties that are not allowed"
		}
		return "has properties that are not allowed: " + showList(unlisted(m["properties"], v))
	case "not":
		return "matches the schema under not, which it must not match"
	case "anyOf":
		return fmt.Sprintf("matches none of the %d schemas under anyOf", len(list))
	case "oneOf":
		if len(e.Causes) == 0 {
			return fmt.Sprintf("matches more than one of the %d schemas under oneOf, but must match exactly one", len(list))
		}
		return fmt.Sprintf("matches none of the %d schemas under oneOf", len(list))
	default:
		return "does not match the schema"
	}
}

// find returns the subschema and the keyword at a place in the schema, and the name that follows the keyword, if any.
func (s *Schema) find(at string) (m map[string]any, keyword, name string) {
	for end := strings.LastIndexByte(at, '/'); end >= 0; end = strings.LastIndexByte(at[:end], '/') {
		if p := s.byPointer[at[:end]]; p != nil {
			m, _ = p.doc.(map[string]any)
			tokens := splitPointer(at[end:])
			if len(tokens) > 1 {
				name = tokens[1]
			}
			return m, tokens[0], name
		}
	}
	return nil, "", ""
}

// missing returns the names that are no properties of v.
func missing(names []any, v any) []any {
	object, _ := v.(map[string]any)
	return slices.DeleteFunc(slices.Clone(names), func(name any) bool {
		_, found := object[name.(string)]
		return found
	})
}

// unlisted returns the names of v that are not in properties, sorted unless they are very many.
func unlisted(properties, v any) []any {
	listed, _ := properties.(map[string]any)
	object, _ := v.(map[string]any)
	var names []any
	for name := range object {
		if _, found := listed[name]; !found {
			names = append(names, name)
		}
	}
	if len(names) < 1_000 {
		slices.SortFunc(names, func(x, y any) int { return cmp.Compare(x.(string), y.(string)) })
	}
	return names
}

func showTypes(value any) string {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var names []string
	for _, t := range list {
		switch t {
		case "null":
			names = append(names, "null")
		case "array", "integer", "object":
			names = append(names, fmt.Sprintf("an %s", t))
		default:
			names = append(names, fmt.Sprintf("a %s", t))
		}
	}
	return strings.Join(names, " or ")
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}

func runeCount(v any) int {
	text, _ := v.(string)
	return utf8.RuneCountInString(text)
}
