package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ohler55/ojg/jp"
)

// jsonPathParser reads the JSONPath of conditions and of each, which is that of RFC 9535 and, as in templates, has "in" and =~
// besides:
//
//	or         = and { "||" and }
//	and        = basic { "&&" basic }
//	basic      = [ "!" ] "(" or ")" | [ "!" ] ( query | function ) | comparison
//	comparison = operand ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) operand | operand "in" ( list | query ) | operand "=~" pattern
//	operand    = query | function | string | number | "true" | "false" | "null"
//	query      = ( "$" | "@" ) { ( "." | ".." ) ( name | "*" ) | [ ".." ] "[" selector { "," selector } "]" }
//	selector   = string | integer | slice | "*" | "?" or
//	function   = name "(" operand { "," operand } ")"
//
// Templates have a parser of their own, which takes less and is kept as it is.
type jsonPathParser struct {
	filterParser
	outside bool // of all brackets, where there is no @
}

// functionArity is how many arguments a function takes.
var functionArity = map[string]int{count: 1, length: 1, valueOf: 1, "match": 2, "search": 2}

// ErrBareWord says that a condition has a word in the place of a text.
var ErrBareWord = errors.New("a text stands in quotes")

var errNoNode = errors.New("@ stands for nothing here: the body is $")

// parseLogical reads a condition on a body.
func parseLogical(text string) (*filter, error) {
	p := jsonPathParser{filterParser{text}, true}
	if err := p.check(); err != nil {
		return nil, err
	}
	f, err := p.or()
	if err == nil && p.skipSpaces() != "" {
		err = p.unexpected()
	}
	return f, err
}

// parseQuery reads an expression that begins with $.
func parseQuery(text string) (*filter, error) {
	p := jsonPathParser{filterParser{text}, true}
	if err := p.check(); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(text, "$") {
		return nil, errors.New("it must begin with $, as in $.alerts[*]")
	}
	f, err := p.query()
	if err == nil && p.rest != "" {
		err = p.unexpected()
	}
	return f, err
}

func (p *jsonPathParser) check() error {
	switch {
	case len(p.rest) > maxExpression:
		return fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	case !utf8.ValidString(p.rest):
		return errors.New("the expression is not UTF-8")
	}
	return nil
}

func (p *jsonPathParser) or() (*filter, error) {
	return p.chain("||", p.and)
}

func (p *jsonPathParser) and() (*filter, error) {
	return p.chain("&&", p.basic)
}

func (p *jsonPathParser) basic() (*filter, error) {
	negated := !strings.HasPrefix(p.skipSpaces(), "!=") && p.accept("!")
	var f *filter
	var err error
	if p.accept("(") {
		if f, err = p.or(); err == nil && !p.accept(")") {
			err = p.unexpected()
		}
	} else {
		f, err = p.comparison(negated)
	}
	if negated {
		f = &filter{operator: "!", left: f}
	}
	return f, err
}

// comparison reads a comparison, or a test whether there is something. A test may be negated.
func (p *jsonPathParser) comparison(negated bool) (*filter, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	operator := p.operator()
	switch {
	case operator == "" && !left.isCondition():
		return nil, errors.New("it compares nothing")
	case operator == "":
		return left, nil
	case negated:
		return nil, errors.New("! stands before a path or parentheses: put the comparison in parentheses")
	}
	if err := left.checkComparable(); err != nil {
		return nil, err
	}
	if operator == "=~" {
		return p.pattern(left)
	}
	var right *filter
	if operator == "in" && p.accept("[") {
		right, err = p.list(p.literal)
	} else if right, err = p.operand(); err == nil {
		err = right.checkComparable()
		if err == nil && operator == "in" && right.operator == constant {
			err = errors.New("in takes a list, as in ['opened', 'closed']")
		}
	}
	return &filter{operator: operator, left: left, right: right}, err
}

// operator reads an operator of a comparison, "" if there is none.
func (p *jsonPathParser) operator() string {
	for _, operator := range []string{"==", "!=", "<=", ">=", "<", ">", "=~"} {
		if p.accept(operator) {
			return operator
		}
	}
	if rest, ok := strings.CutPrefix(p.skipSpaces(), "in"); ok && nameLength("x"+rest) == 1 {
		p.rest = rest
		return "in"
	}
	return ""
}

// checkComparable refuses operands that are not one value.
func (f *filter) checkComparable() error {
	switch {
	case f.query != nil:
		return errors.New("a path that can match several values is compared with nothing: put the comparison into it, as in $.labels[?@.name == 'bug']")
	case f.operator == "=~":
		return errors.New("match and search are true or false, and compared with nothing")
	}
	return nil
}

func (p *jsonPathParser) operand() (*filter, error) {
	text := p.skipSpaces()
	switch {
	case text == "":
		return nil, p.unexpected()
	case text[0] == '$', text[0] == '@':
		return p.query()
	}
	if n := functionLength(text); strings.HasPrefix(text[n:], "(") && n > 0 {
		return p.function(text[:n])
	}
	value, err := p.literal()
	return &filter{operator: constant, literal: value}, err
}

func functionLength(text string) int {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return i
		}
	}
	return len(text)
}

func (p *jsonPathParser) function(name string) (*filter, error) {
	arity := functionArity[name]
	if arity == 0 {
		return nil, noFunction(name)
	}
	p.rest = p.rest[len(name)+1:]
	var arguments [2]*filter
	for i := range arity {
		if i > 0 && !p.accept(",") {
			return nil, p.unexpected()
		}
		argument, err := p.operand()
		if err != nil {
			return nil, err
		}
		if name == count || name == valueOf {
			if argument.operator != fromHere && argument.operator != fromRoot {
				return nil, fmt.Errorf("%s takes a path", name)
			}
		} else if name == length && argument.query != nil {
			return nil, errors.New("length takes one value: write count for the number of matches")
		} else if err := argument.checkComparable(); err != nil {
			return nil, fmt.Errorf("%s takes one value: %w", name, err)
		}
		arguments[i] = argument
	}
	if !p.accept(")") {
		return nil, p.unexpected()
	}
	f := &filter{operator: name, left: arguments[0], right: arguments[1]}
	if arity == 1 {
		return f, nil
	}
	f.operator, f.whole = "=~", name == "match"
	if f.right.operator != constant {
		return f, nil
	}
	pattern, ok := f.right.literal.(string)
	if !ok {
		return nil, fmt.Errorf("%s needs a regular expression in quotes", name)
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil { // which shows it as it is written
		return nil, err
	}
	return f, f.setPattern(interoperable(pattern, f.whole))
}

func noFunction(name string) error {
	return fmt.Errorf("there is no function %s; there are count, length, match, search and value", abridged(name))
}

// interoperable is a regular expression of RFC 9485 in the syntax of Go: a dot is no end of a line.
func interoperable(pattern string, whole bool) string {
	var out strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			out.WriteByte(c)
			i++
			out.WriteByte(pattern[i])
			continue
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '.' && !class:
			out.WriteString(`[^\n\r]`)
			continue
		}
		out.WriteByte(pattern[i])
	}
	if whole {
		return `\A(?:` + out.String() + `)\z`
	}
	return out.String()
}

// query reads a path from $ or @ on.
func (p *jsonPathParser) query() (*filter, error) {
	f := &filter{operator: p.rest[:1]}
	if f.operator == fromHere && p.outside {
		return nil, errNoNode
	}
	p.rest = p.rest[1:]
	var selectors []selector
	for {
		next, err := p.segment()
		if err != nil {
			return nil, err
		}
		if next == nil {
			break
		}
		selectors = append(selectors, next...)
	}
	var single bool
	if f.path, single = singlePath(selectors); !single {
		f.query = &query{selectors}
		return f, linkUnions(selectors)
	}
	return f, nil
}

// maxUnions bounds the selectors in all unions of an expression, with those that follow.
const maxUnions = 20_000

// linkUnions gives each selector of a union those that follow after the union.
func linkUnions(selectors []selector) error {
	size := 0
	for i, s := range slices.Backward(selectors) {
		for j, one := range s.union {
			if size += len(selectors) - i; size > maxUnions {
				return errors.New("the expression has too many selectors")
			}
			s.union[j] = append(slices.Clip(one), selectors[i+1:]...)
		}
	}
	return nil
}

// segment reads the next part of a path. It returns nil if there is none.
func (p *jsonPathParser) segment() ([]selector, error) {
	text := strings.TrimLeft(p.rest, spaces)
	switch {
	case strings.HasPrefix(text, "..["):
		p.rest = text[2:]
		s, err := p.bracket()
		return []selector{{frag: jp.Descent('.')}, s}, err
	case strings.HasPrefix(text, ".."):
		p.rest = text[2:]
		s, err := p.name()
		return []selector{{frag: jp.Descent('.')}, s}, err
	case strings.HasPrefix(text, "."):
		p.rest = text[1:]
		s, err := p.name()
		return []selector{s}, err
	case strings.HasPrefix(text, "["):
		p.rest = text
		s, err := p.bracket()
		return []selector{s}, err
	}
	return nil, nil
}

// name reads a key without quotes, or a *.
func (p *jsonPathParser) name() (selector, error) {
	if rest, ok := strings.CutPrefix(p.rest, "*"); ok {
		p.rest = rest
		return selector{frag: jp.Wildcard('*')}, nil
	}
	n := nameLength(p.rest)
	if n == 0 {
		if strings.Trim(p.rest, spaces) == "" {
			return selector{}, errors.New("a key is missing after the last dot")
		}
		return selector{}, fmt.Errorf("unexpected %q after a dot; a key of other characters stands in brackets and quotes, as in ['a b']", abridged(p.rest))
	}
	key := p.rest[:n]
	p.rest = p.rest[n:]
	return selector{frag: jp.Child(key)}, nil
}

// nameLength is the length of the key without quotes that text begins with. Beyond RFC 9535 it may have dashes, and an @ at the
// start, as keys in templates do.
func nameLength(text string) int {
	for i, r := range text {
		switch {
		case r == '_', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= utf8.RuneSelf:
		case i > 0 && (r == '-' || r >= '0' && r <= '9'):
		case i == 0 && r == '@' && nameLength(text[1:]) > 0 && text[1] != '@':
		default:
			return i
		}
	}
	return len(text)
}

// bracket reads selectors in brackets.
func (p *jsonPathParser) bracket() (selector, error) {
	p.rest = p.rest[1:]
	var all [][]selector
	for len(all) == 0 || p.accept(",") {
		next, err := p.selector()
		if err != nil {
			return selector{}, err
		}
		all = append(all, []selector{next})
	}
	if !p.accept("]") {
		return selector{}, p.unexpected()
	}
	if len(all) == 1 {
		return all[0][0], nil
	}
	return selector{union: all}, nil
}

func (p *jsonPathParser) selector() (selector, error) {
	text := p.skipSpaces()
	switch {
	case text == "":
		return selector{}, p.unexpected()
	case text[0] == '\'' || text[0] == '"':
		key, err := p.text()
		return selector{frag: jp.Child(key)}, err
	case p.accept("*"):
		return selector{frag: jp.Wildcard('*')}, nil
	case p.accept("?"):
		outside := p.outside
		p.outside = false
		f, err := p.or()
		p.outside = outside
		return selector{filter: f}, err
	}
	bounds := jp.Slice{jp.SliceNotSet, jp.SliceNotSet, jp.SliceNotSet}
	for i := range bounds {
		if i > 0 && !p.accept(":") {
			break
		}
		n, found, err := p.integer()
		switch {
		case err != nil:
			return selector{}, err
		case found:
			bounds[i] = n
		}
		if i == 0 && !strings.HasPrefix(p.skipSpaces(), ":") {
			if !found {
				return selector{}, p.unexpected()
			}
			return selector{frag: jp.Nth(n)}, nil
		}
	}
	return selector{frag: bounds}, nil
}

// maxInteger is the largest index of RFC 9535.
const maxInteger int64 = 1<<53 - 1

// maxIndex stands for all larger indexes where an int has 32 bits. No array is as long, and adding two of them does not overflow.
const maxIndex int64 = math.MaxInt / 2

// integer reads an index, if there is one.
func (p *jsonPathParser) integer() (n int, found bool, err error) {
	text := p.skipSpaces()
	digits := strings.TrimLeft(strings.TrimPrefix(text, "-"), "0123456789")
	word := text[:len(text)-len(digits)]
	if word == "" {
		return 0, false, nil
	}
	index, err := strconv.ParseInt(word, 10, 64)
	if err != nil || strconv.FormatInt(index, 10) != word || index > maxInteger || index < -maxInteger {
		return 0, false, fmt.Errorf("%s is no index", abridged(word))
	}
	p.rest = digits
	return int(min(max(index, -maxIndex), maxIndex)), true, nil
}

func (p *jsonPathParser) literal() (any, error) {
	text := p.skipSpaces()
	if text != "" && (text[0] == '\'' || text[0] == '"') {
		return p.text()
	}
	word := text[:len(text)-len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-."))]
	if !json.Valid([]byte(word)) {
		if n := nameLength(word); n > 0 {
			if strings.EqualFold(word[:n], "not") {
				return nil, p.unexpected()
			}
			if strings.HasPrefix(text[n:], "(") {
				return nil, noFunction(word[:n])
			}
			begin := fromHere
			if p.outside {
				begin = fromRoot
			}
			return nil, fmt.Errorf("unexpected %s: a path begins with %s, as in %[2]s.%[1]s, and %[3]w, as in '%[1]s'", abridged(word[:n]), begin, ErrBareWord)
		}
		return nil, p.unexpected()
	}
	p.rest = text[len(word):]
	switch word {
	case "true", "false":
		return word == "true", nil
	case "null":
		return nil, nil
	}
	return newDecimal(json.Number(word)), nil
}

// text reads a string in quotes, with the escapes of JSON.
func (p *jsonPathParser) text() (string, error) {
	quote := p.rest[0]
	var out strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == quote:
			p.rest = p.rest[i+1:]
			return out.String(), nil
		case c < ' ':
			return "", errors.New("a string has no line breaks or other control characters: write them as \\n")
		case c == '\\':
			r, n := escaped(p.rest[i:], quote)
			if n == 0 {
				return "", fmt.Errorf("the string %s has a backslash that escapes nothing", abridged(p.rest))
			}
			out.WriteRune(r)
			i += n - 1
		default:
			out.WriteByte(c)
		}
	}
	return "", fmt.Errorf("the string %s has no end", abridged(p.rest))
}

// escaped reads an escape, and returns its length, or 0.
func escaped(text string, quote byte) (rune, int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch c := text[1]; c {
	case quote, '\\', '/':
		return rune(c), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	high, ok := codeUnit(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(high) {
		return high, 6
	}
	low, ok := codeUnit(text[6:])
	if r := utf16.DecodeRune(high, low); ok && r != utf8.RuneError {
		return r, 12
	}
	return 0, 0
}

// codeUnit reads a \uXXXX.
func codeUnit(text string) (rune, bool) {
	if len(text) < 6 || text[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(n), err == nil
}

// singlePath makes a path of selectors that lead to one place.
func singlePath(selectors []selector) (path, bool) {
	p := make(path, 0, len(selectors))
	for _, s := range selectors {
		switch frag := s.frag.(type) {
		case jp.Child:
			p = append(p, step{key: string(frag)})
		case jp.Nth:
			p = append(p, step{index: int(frag), isIndex: true})
		default:
			return p, false
		}
	}
	return slices.Clip(p), true
}
