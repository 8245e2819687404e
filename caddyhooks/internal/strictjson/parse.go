// Package strictjson parses JSON that comes from outside, in one pass and without leniency. A document has exactly one
// reading here: duplicate keys, trailing data, invalid UTF-8, lone surrogates and nesting deeper than MaxDepth are
// errors. Numbers keep the digits they were written with.
//
// Values are what encoding/json gives with UseNumber: map[string]any, []any, string, json.Number, bool and nil.
package strictjson

import (
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays may be open at once.
const MaxDepth = 128

// Parse reads the one JSON value that data holds. White space around it is allowed, anything else is not.
func Parse(data []byte) (any, error) {
	return ParseWanted(data, everything)
}

// ParseWanted is Parse for callers that need some parts of the document only: all of it is checked, but what is not
// wanted is left out of the value, which saves most of the time and memory.
func ParseWanted(data []byte, want *Want) (any, error) {
	p := parser{data: string(data)}
	v, err := p.value(want)
	if err != nil {
		return nil, err
	}
	return v, p.end()
}

// Error says where a document stops being JSON, and why. It quotes nothing of the document.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset) }

// parser works on one copy of the document, made as a string, so that the strings and numbers it finds are slices of
// that copy and cost no memory of their own.
type parser struct {
	data  string
	pos   int
	depth int
}

func (p *parser) fail(reason string) error { return &Error{p.pos, reason} }

func (p *parser) skipSpace() {
	for p.pos < len(p.data) && p.data[p.pos] <= ' ' && isSpace(p.data[p.pos]) {
		p.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func (p *parser) end() error {
	p.skipSpace()
	if p.pos < len(p.data) {
		return p.fail("there is more after the end of the value")
	}
	return nil
}

func (p *parser) value(want *Want) (any, error) {
	p.skipSpace()
	if p.pos == len(p.data) {
		if p.pos == 0 {
			return nil, p.fail("it is empty")
		}
		return nil, p.fail("it ends too early")
	}
	switch c := p.data[p.pos]; c {
	case '{':
		if want == nil || !want.all {
			return p.pruned(want)
		}
		return p.object()
	case '[':
		return p.array(want.item())
	case '"':
		s, err := p.str(want != nil)
		if want == nil {
			return nil, err // without the cost of making it an any
		}
		return s, err
	case 't':
		return true, p.literal("true")
	case 'f':
		return false, p.literal("false")
	case 'n':
		return nil, p.literal("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			start := p.pos
			if err := p.number(); err != nil || want == nil {
				return nil, err
			}
			return json.Number(p.data[start:p.pos]), nil
		}
		return nil, p.fail("a value must start here")
	}
}

func (p *parser) open() error {
	if p.depth == MaxDepth {
		return p.fail(fmt.Sprintf("it is nested deeper than %d levels", MaxDepth))
	}
	p.depth++
	p.pos++
	p.skipSpace()
	return nil
}

// object reads an object of which everything is wanted.
func (p *parser) object() (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	m := make(map[string]any)
	for first := true; ; first = false {
		key, ok, err := p.nextMember(first)
		if err != nil || !ok {
			return m, err
		}
		if _, dup := m[key]; dup {
			return nil, p.fail(duplicate)
		}
		if m[key], err = p.value(everything); err != nil {
			return nil, err
		}
	}
}

// pruned reads an object of which not everything is wanted.
func (p *parser) pruned(want *Want) (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	var m map[string]any
	if want != nil {
		m = make(map[string]any)
	}
	var seen keySet
	for first := true; ; first = false {
		key, ok, err := p.nextMember(first)
		if err != nil || !ok {
			if want == nil {
				return nil, err
			}
			return m, err
		}
		if !seen.add(key) {
			return nil, p.fail(duplicate)
		}
		v, err := p.value(want.member(key))
		if err != nil {
			return nil, err
		}
		if want.member(key) != nil {
			m[key] = v
		}
	}
}

// nextMember reads up to the value of the next member of an object and returns its key, or reads the end of the object
// and reports false.
func (p *parser) nextMember(first bool) (key string, ok bool, err error) {
	p.skipSpace()
	if p.pos == len(p.data) {
		return "", false, p.fail("it ends too early")
	}
	switch c := p.data[p.pos]; {
	case c == '}':
		p.pos++
		p.depth--
		return "", false, nil
	case !first && c != ',':
		return "", false, p.fail("members of an object must be separated by commas")
	case !first:
		p.pos++
		p.skipSpace()
	}
	if p.pos == len(p.data) || p.data[p.pos] != '"' {
		return "", false, p.fail("a key in double quotes must start here")
	}
	if key, err = p.str(true); err != nil {
		return "", false, err
	}
	p.skipSpace()
	if p.pos == len(p.data) || p.data[p.pos] != ':' {
		return "", false, p.fail("a key must be followed by a colon")
	}
	p.pos++
	p.skipSpace()
	return key, true, nil
}

// array reads an array of whose items want is wanted.
func (p *parser) array(want *Want) (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	items := []any{}
	for first := true; ; first = false {
		if first && p.pos < len(p.data) && p.data[p.pos] == ']' {
			break
		}
		v, err := p.value(want)
		if err != nil {
			return nil, err
		}
		if want != nil {
			items = append(items, v)
		}
		p.skipSpace()
		if p.pos == len(p.data) {
			return nil, p.fail("it ends too early")
		}
		if p.data[p.pos] == ']' {
			break
		}
		if p.data[p.pos] != ',' {
			return nil, p.fail("items of an array must be separated by commas")
		}
		p.pos++
	}
	p.pos++
	p.depth--
	if want == nil {
		return nil, nil
	}
	return items, nil
}

func (p *parser) literal(word string) error {
	if len(p.data)-p.pos < len(word) || p.data[p.pos:p.pos+len(word)] != word {
		return p.fail("a value must start here")
	}
	p.pos += len(word)
	return nil
}

func (p *parser) number() error {
	if p.data[p.pos] == '-' {
		p.pos++
	}
	if p.pos < len(p.data) && p.data[p.pos] == '0' {
		p.pos++
	} else if !p.digits() {
		return p.fail("a number needs a digit here")
	}
	if p.pos < len(p.data) && p.data[p.pos] == '.' {
		p.pos++
		if !p.digits() {
			return p.fail("a number needs a digit here")
		}
	}
	if p.pos < len(p.data) && (p.data[p.pos] == 'e' || p.data[p.pos] == 'E') {
		p.pos++
		if p.pos < len(p.data) && (p.data[p.pos] == '+' || p.data[p.pos] == '-') {
			p.pos++
		}
		if !p.digits() {
			return p.fail("a number needs a digit here")
		}
	}
	return nil
}

// digits skips a run of digits and reports whether there was one.
func (p *parser) digits() bool {
	start := p.pos
	for p.pos < len(p.data) && '0' <= p.data[p.pos] && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > start
}

// plain are the bytes that stand for themselves in a string, and need no second look.
var plain = func() (table [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// str reads a string. Most strings have no escape in them and are taken as they stand. One that is not wanted is only
// checked.
func (p *parser) str(wanted bool) (string, error) {
	p.pos++
	start := p.pos
	ascii := true
	for {
		p.skipPlain()
		if p.pos == len(p.data) {
			return "", p.fail("it ends too early")
		}
		switch c := p.data[p.pos]; {
		case c == '"':
			s := p.data[start:p.pos]
			if !ascii && !utf8.ValidString(s) {
				return "", p.fail("a string is not valid UTF-8")
			}
			p.pos++
			return s, nil
		case c == '\\' && wanted:
			return p.escaped(start)
		case c == '\\':
			if _, err := p.escape(); err != nil {
				return "", err
			}
		case c < ' ':
			return "", p.fail("a control character in a string must be escaped")
		default:
			ascii = false
			p.pos++
		}
	}
}

func (p *parser) skipPlain() {
	data, pos := p.data, p.pos
	for pos < len(data) && plain[data[pos]] {
		pos++
	}
	p.pos = pos
}

// escaped reads the rest of a string that starts at start and whose first escape is here.
func (p *parser) escaped(start int) (string, error) {
	out := append(make([]byte, 0, 2*(p.pos-start)+32), p.data[start:p.pos]...)
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			p.pos++
			if !utf8.Valid(out) {
				return "", p.fail("a string is not valid UTF-8")
			}
			return string(out), nil
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		case c < ' ':
			return "", p.fail("a control character in a string must be escaped")
		default:
			from := p.pos
			p.pos++
			p.skipPlain()
			out = append(out, p.data[from:p.pos]...)
		}
	}
	return "", p.fail("it ends too early")
}

func (p *parser) escape() (rune, error) {
	p.pos++ // the backslash
	if p.pos == len(p.data) {
		return 0, p.fail("it ends too early")
	}
	c := p.data[p.pos]
	p.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		r, ok := p.hex4()
		if !ok {
			return 0, p.fail(`\u must be followed by four hex digits`)
		}
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		if p.pos+1 < len(p.data) && p.data[p.pos] == '\\' && p.data[p.pos+1] == 'u' {
			p.pos += 2
			if low, ok := p.hex4(); ok {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					return pair, nil
				}
			}
		}
		return 0, p.fail("half of a surrogate pair stands alone")
	default:
		return 0, p.fail("an unknown escape stands in a string")
	}
}

func (p *parser) hex4() (rune, bool) {
	if len(p.data)-p.pos < 4 {
		return 0, false
	}
	var r rune
	for i := range 4 {
		switch c := p.data[p.pos+i]; {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	p.pos += 4
	return r, true
}
