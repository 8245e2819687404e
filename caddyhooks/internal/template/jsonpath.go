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

// parser reads JSONPath, which is that of RFC 9535 and has "in" and =~ besides:
//
//	or         = and { "||" and }
//	and        = not { "&&" not }
//	not        = [ "!" ] "(" or ")" | [ "!" ] ( query | function ) | comparison
//	comparison = operand ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) operand | operand "in" ( list | query ) | operand "=~" pattern
//	operand    = query | function | string | number | "true" | "false" | "null"
//	query      = ( "$" | "@" ) { ( "." | ".." ) ( name | "*" ) | [ ".." ] "[" selector { "," selector } "]" }
//	selector   = string | integer | slice | "*" | "?" or
//	function   = name "(" operand { "," operand } ")"
//
// Templates differ. A path has no spaces between its steps, unions of keys and indexes alone, and one ".." at most, which may stand at
// the end or before another dot. A "*" needs no dot. A path in a filter has keys and indexes alone, and there is no count and no value.
// Parentheses, lists and conditions may stand wherever an operand may, and "!" before any condition.
//
// jp has a parser, too. But it gives && and || the same rank, reads numbers as float64, and takes no filter or slice in a union.
type parser struct {
	rest      string
	outside   bool // of all brackets, where there is no @
	template  bool
	explained bool // the error says what is wrong with a template
}

// functionArity is how many arguments a function takes.
var functionArity = map[string]int{count: 1, length: 1, valueOf: 1, "match": 2, "search": 2}

// ErrBareWord says that a condition has a word in the place of a text.
var ErrBareWord = errors.New("a text stands in quotes")

var errNoNode = errors.New("@ stands for nothing here: the body is $")

// parseExpression reads the JSONPath expression of a template. It returns a path if the expression leads to one place only, and a
// query otherwise.
func parseExpression(expression string) (path, *query, error) {
	p := parser{rest: expression, outside: true, template: true}
	if len(expression) > maxExpression {
		return nil, nil, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	f, err := p.query()
	switch {
	case p.explained:
		return nil, nil, err
	case err != nil || p.rest != "":
		return nil, nil, fmt.Errorf("not a JSONPath expression: cannot read %s", expression[1:])
	case f.query == nil:
		return f.path, nil, nil
	}
	descents := 0
	for _, s := range f.query.selectors {
		if _, ok := s.frag.(jp.Descent); ok {
			descents++
		}
	}
	if descents > 1 {
		return nil, nil, errors.New("an expression can hold one .. only")
	}
	return nil, f.query, nil
}

// parseLogical reads a condition on a body.
func parseLogical(text string) (*filter, error) {
	p := parser{rest: text, outside: true}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p.all()
}

// parseQuery reads an expression that begins with $.
func parseQuery(text string) (*filter, error) {
	p := parser{rest: text, outside: true}
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

func (p *parser) check() error {
	switch {
	case len(p.rest) > maxExpression:
		return fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	case !utf8.ValidString(p.rest):
		return errors.New("the expression is not UTF-8")
	}
	return nil
}

func (p *parser) skipSpaces() string {
	p.rest = strings.TrimLeft(p.rest, spaces)
	return p.rest
}

// accept skips text if it comes next.
func (p *parser) accept(text string) bool {
	rest, ok := strings.CutPrefix(p.skipSpaces(), text)
	p.rest = rest
	return ok
}

func (p *parser) unexpected() error {
	if p.skipSpaces() == "" {
		return errors.New("it ends too early")
	}
	return fmt.Errorf("unexpected %q%s", abridged(p.rest), operatorHint(p.rest))
}

// operatorHint says how an operator is written here, if text begins with that of another language.
func operatorHint(text string) string {
	word := strings.ToLower(text[:nameLength(text)])
	if word == "" && text[0] == '=' {
		word = "="
	}
	if meant := otherOperators[word]; meant != "" {
		return ": write " + meant
	}
	return ""
}

// otherOperators are those of other languages, with ours.
var otherOperators = map[string]string{
	"=": "==", "is": "==", "eq": "==", "and": "&&", "or": "||", "not": "!",
	"contains": "$.labels[?@ == 'bug'] for an item of a list, search($.title, 'bug') for a part of a text",
}

// all reads a condition up to the end.
func (p *parser) all() (*filter, error) {
	f, err := p.or()
	if err == nil && p.skipSpaces() != "" {
		err = p.unexpected()
	}
	if err == nil && !f.isCondition() {
		err = errComparesNothing
	}
	return f, err
}

var errComparesNothing = errors.New("it compares nothing")

func (p *parser) or() (*filter, error) {
	return p.chain("||", p.and)
}

func (p *parser) and() (*filter, error) {
	return p.chain("&&", p.not)
}

func (p *parser) chain(operator string, next func() (*filter, error)) (*filter, error) {
	f, err := next()
	for err == nil && p.accept(operator) {
		var right *filter
		right, err = next()
		if err == nil && (!f.isCondition() || !right.isCondition()) {
			err = fmt.Errorf("%s joins conditions only", operator)
		}
		f = &filter{operator: operator, left: f, right: right}
	}
	return f, err
}

func (p *parser) not() (*filter, error) {
	if strings.HasPrefix(p.skipSpaces(), "!=") || !p.accept("!") {
		return p.comparison()
	}
	var f *filter
	var err error
	switch {
	case p.template:
		if f, err = p.not(); err == nil && !f.isCondition() {
			err = errors.New("! negates conditions only")
		}
	case p.accept("("):
		f, err = p.group()
	default:
		if f, err = p.operand(); err == nil && p.operator() != "" {
			err = errors.New("! stands before a path or parentheses: put the comparison in parentheses")
		} else if err == nil && !f.isCondition() {
			err = errComparesNothing
		}
	}
	return &filter{operator: "!", left: f}, err
}

// group reads what stands in parentheses, of which the first was read.
func (p *parser) group() (*filter, error) {
	f, err := p.or()
	if err == nil && !p.accept(")") {
		err = p.unexpected()
	}
	return f, err
}

// comparison reads a comparison, or a test whether there is something, or a condition in parentheses.
func (p *parser) comparison() (*filter, error) {
	if !p.template && p.accept("(") {
		return p.group()
	}
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	operator := p.operator()
	switch {
	case operator == "" && !p.template && !left.isCondition():
		return nil, errComparesNothing
	case operator == "":
		return left, nil
	}
	if err := p.checkComparable(left); err != nil {
		return nil, err
	}
	if operator == "=~" {
		return p.pattern(left)
	}
	var right *filter
	if operator == "in" && p.accept("[") {
		right, err = p.list()
	} else if right, err = p.operand(); err == nil {
		err = p.checkComparable(right)
		if err == nil && operator == "in" && right.operator == constant && !p.template {
			err = errors.New("in takes a list, as in ['opened', 'closed']")
		}
	}
	return &filter{operator: operator, left: left, right: right}, err
}

// operator reads an operator of a comparison, "" if there is none.
func (p *parser) operator() string {
	for _, operator := range []string{"==", "!=", "<=", ">=", "<", ">", "=~"} {
		if p.accept(operator) {
			return operator
		}
	}
	if p.template && p.accept("~=") {
		return "=~"
	}
	if rest, ok := strings.CutPrefix(p.skipSpaces(), "in"); ok && (p.template || nameLength("x"+rest) == 1) {
		p.rest = rest
		return "in"
	}
	return ""
}

// checkComparable refuses operands that are not one value.
func (p *parser) checkComparable(f *filter) error {
	switch {
	case p.template:
	case f.query != nil:
		return errors.New("a path that can match several values is compared with nothing: " +
			"put the comparison into it, as in $.labels[?@.name == 'bug']")
	case f.operator == "=~":
		return errors.New("match and search are true or false, and compared with nothing")
	}
	return nil
}

// pattern reads the regular expression of =~.
func (p *parser) pattern(left *filter) (*filter, error) {
	f := &filter{operator: "=~", left: left}
	p.skipSpaces()
	n := -1
	if strings.HasPrefix(p.rest, "/") {
		n = delimitedLength(p.rest)
	}
	if n < 0 {
		return nil, errors.New("=~ needs a regular expression such as /^a.*b$/")
	}
	pattern := strings.ReplaceAll(p.rest[1:n-1], `\/`, "/")
	p.rest = p.rest[n:]
	return f, f.setPattern(pattern)
}

// list reads a list, of which the first bracket was read.
func (p *parser) list() (*filter, error) {
	list := []any{}
	for !p.accept("]") {
		if len(list) > 0 && !p.accept(",") {
			return nil, p.unexpected()
		}
		item, err := p.literal()
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return &filter{operator: constant, literal: list}, nil
}

func (p *parser) operand() (*filter, error) {
	text := p.skipSpaces()
	switch {
	case text == "":
		return nil, p.unexpected()
	case p.template && p.accept("("):
		return p.group()
	case p.template && p.accept("["):
		return p.list()
	case p.template && (text[0] == '$' || text[0] == '@'):
		path, n := parseSteps(text[1:])
		p.rest = text[1+n:]
		return &filter{operator: text[:1], path: path}, nil
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

func (p *parser) function(name string) (*filter, error) {
	arity := functionArity[name]
	if arity == 0 || p.template && (name == count || name == valueOf) {
		return nil, p.noFunction(name)
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
		} else if err := p.checkComparable(argument); err != nil {
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
	pattern, ok := f.right.literal.(string)
	switch {
	case p.template && !ok:
		return nil, fmt.Errorf("%s needs a quoted regular expression", name)
	case p.template && f.whole:
		return f, f.setPattern("^(?:" + pattern + ")$")
	case p.template:
		return f, f.setPattern(pattern)
	case f.right.operator != constant:
		return f, nil
	case !ok:
		return nil, fmt.Errorf("%s needs a regular expression in quotes", name)
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil { // which shows it as it is written
		return nil, err
	}
	return f, f.setPattern(interoperable(pattern, f.whole))
}

func (p *parser) noFunction(name string) error {
	if p.template {
		return p.unexpected()
	}
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
func (p *parser) query() (*filter, error) {
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
	}
	return f, nil
}

// segment reads the next part of a path. It returns nil if there is none.
func (p *parser) segment() ([]selector, error) {
	text := p.rest
	if !p.template {
		text = strings.TrimLeft(text, spaces)
	}
	switch {
	case strings.HasPrefix(text, "..["):
		p.rest = text[2:]
		s, err := p.bracket()
		return []selector{{frag: jp.Descent('.')}, s}, err
	case p.template && text == "..":
		p.rest = ""
		return []selector{{frag: jp.Descent('.')}, {frag: jp.Wildcard('*')}}, nil
	case p.template && strings.HasPrefix(text, "..."):
		p.rest = text[2:]
		return []selector{{frag: jp.Descent('.')}}, nil
	case p.template && strings.HasPrefix(text, "*"):
		p.rest = text[1:]
		return []selector{{frag: jp.Wildcard('*')}}, nil
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
func (p *parser) name() (selector, error) {
	if rest, ok := strings.CutPrefix(p.rest, "*"); ok {
		p.rest = rest
		return selector{frag: jp.Wildcard('*')}, nil
	}
	n := nameLength(p.rest)
	if p.template {
		n = len(p.rest) - len(strings.TrimLeftFunc(p.rest, inTemplateName))
		if key := p.rest[:n]; strings.Contains(key, "-") {
			p.explained = true
			return selector{}, fmt.Errorf("not a JSONPath expression: the key %s must be quoted, as in ['%[1]s']", key)
		}
	}
	if n == 0 {
		if strings.Trim(p.rest, spaces) == "" {
			return selector{}, errors.New("a key is missing after the last dot")
		}
		return selector{}, fmt.Errorf("unexpected %q after a dot; a key of other characters stands in brackets and quotes, as in ['a b']",
			abridged(p.rest))
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

// inTemplateName reports whether a key without quotes may have r in a template. A dash stands in quotes.
func inTemplateName(r rune) bool {
	return r == '-' || r >= '0' && r <= '9' || strings.ContainsRune("#%;?^~", r) || nameLength(string(r)) > 0
}

// bracket reads selectors in brackets.
func (p *parser) bracket() (selector, error) {
	p.rest = p.rest[1:]
	var all []selector
	for len(all) == 0 || p.accept(",") {
		next, err := p.selector()
		if err != nil {
			return selector{}, err
		}
		all = append(all, next)
	}
	if !p.accept("]") {
		return selector{}, p.unexpected()
	}
	if len(all) == 1 {
		return all[0], nil
	}
	if _, places := singlePath(all); p.template && !places {
		return selector{}, errors.New("a union has keys and indexes")
	}
	return selector{union: all}, nil
}

func (p *parser) selector() (selector, error) {
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
		f, err := p.filter()
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

// filter reads the condition of a selector. That of a template is read up to the bracket that closes it, which its errors show.
func (p *parser) filter() (*filter, error) {
	if !p.template {
		outside := p.outside
		p.outside = false
		f, err := p.or()
		p.outside = outside
		return f, err
	}
	scan := scanner{depth: 1}
	for i := 0; i < len(p.rest); i += scan.next(p.rest[i:]) {
		if p.rest[i] != ']' || scan.depth != 1 {
			continue
		}
		condition := parser{rest: p.rest[:i], template: true}
		f, err := condition.all()
		if err != nil {
			p.explained = true
			return nil, fmt.Errorf("filter [?%s]: %w", p.rest[:i], err)
		}
		p.rest = p.rest[i:]
		return f, nil
	}
	return nil, p.unexpected()
}

// maxInteger is the largest index of RFC 9535.
const maxInteger int64 = 1<<53 - 1

// maxIndex stands for all larger indexes where an int has 32 bits. No array is as long, and adding two of them does not overflow.
const maxIndex int64 = math.MaxInt / 2

// integer reads an index, if there is one.
func (p *parser) integer() (n int, found bool, err error) {
	text := p.skipSpaces()
	digits := strings.TrimLeft(strings.TrimPrefix(text, "-"), "0123456789")
	word := text[:len(text)-len(digits)]
	if word == "" {
		return 0, false, nil
	}
	index, err := strconv.ParseInt(word, 10, 64)
	if err != nil || strconv.FormatInt(index, 10) != word && !p.template || index > maxInteger || index < -maxInteger {
		return 0, false, fmt.Errorf("%s is not an index", abridged(word))
	}
	p.rest = digits
	return int(min(max(index, -maxIndex), maxIndex)), true, nil
}

func (p *parser) literal() (any, error) {
	text := p.skipSpaces()
	if text != "" && (text[0] == '\'' || text[0] == '"') {
		return p.text()
	}
	word := text[:len(text)-len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-."))]
	if !json.Valid([]byte(word)) {
		if n := nameLength(word); n > 0 && !p.template {
			if strings.EqualFold(word[:n], "not") {
				return nil, p.unexpected()
			}
			if strings.HasPrefix(text[n:], "(") {
				return nil, p.noFunction(word[:n])
			}
			begin := fromHere
			if p.outside {
				begin = fromRoot
			}
			return nil, fmt.Errorf("unexpected %s: a path begins with %s, as in %[2]s.%[1]s, and %[3]w, as in '%[1]s'",
				abridged(word[:n]), begin, ErrBareWord)
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
func (p *parser) text() (string, error) {
	quote := p.rest[0]
	var out strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == quote:
			p.rest = p.rest[i+1:]
			return out.String(), nil
		case c < ' ' && !p.template:
			return "", errors.New("a string has no line breaks or other control characters: write them as \\n")
		case c == '\\':
			r, n := p.escaped(p.rest[i:], quote)
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
func (p *parser) escaped(text string, quote byte) (rune, int) {
	if len(text) < 2 {
		return 0, 0
	}
	if p.template && (text[1] == '\'' || text[1] == '"') {
		quote = text[1]
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
