// Package strictjson parses JSON that comes from outside, in one pass and without leniency. A document has exactly one
// reading here: duplicate keys, trailing data, invalid UTF-8, lone surrogates and nesting deeper than MaxDepth are
// errors. Numbers keep the digits they were written with.
//
// Values have the types of encoding/json with UseNumber: map[string]any, []any, string, json.Number, bool and nil. They must
// not be changed: documents share their empty objects and arrays.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"
)

// MaxDepth is how many objects and arrays may be open at once.
const MaxDepth = 128

// Parse reads one JSON value. White space around it is allowed, anything else is not.
func Parse(data []byte) (any, error) {
	return ParseSelected(data, wholeDocument)
}

// ParseSelected is Parse for callers that need parts of the document only. It checks the whole document, but leaves the
// other parts out of the value, which saves most of the time and memory. A nil selection is an empty one.
func ParseSelected(data []byte, selected *Selection) (any, error) {
	return ParseWithin(data, selected, nil)
}

// ParseWithin is ParseSelected for callers that bound the memory of values. reserve is called before values are built, with about how many
// bytes they take beside those of earlier calls. If it returns false, the error is ErrNoMemory. A nil reserve allows any size.
func ParseWithin(data []byte, selected *Selection, reserve func(bytes int) bool) (any, error) {
	p, err := newParser(data)
	if err != nil {
		return nil, err
	}
	defer p.release()
	p.reserve = reserve
	v, err := p.value(selected)
	if err != nil {
		return nil, err
	}
	return v, p.end()
}

// ErrNoMemory is the error of a document whose values take more memory than there is for them.
var ErrNoMemory = errors.New("there is not enough memory for its values")

// Error says where a document stops being JSON, and why. It quotes nothing of the document.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset) }

// A parser checks a document and builds the selected values.
type parser struct {
	scanner
	openKeys
	copied  string // the document, or "". Strings and numbers are slices of it.
	scratch []byte // for strings with escapes

	reserve func(bytes int) bool // nil if memory is not bounded
	left    int                  // bytes that are reserved and not taken yet
}

// How many bytes values take. Memory of arrays and large objects is taken again while they grow.
const (
	reservedAtOnce = 32 << 10

	sizeOfText   = 16  // without its bytes
	sizeOfItem   = 40  // in an array
	sizeOfObject = 352 // with so few members that they are in one group
	fewMembers   = 8
	sizeOfGroups = 768 // when an object gets more of them
	sizeOfMember = 128 // of a larger object
)

// take counts bytes of values that are built next.
func (p *parser) take(bytes int) error {
	if p.left -= bytes; p.left < 0 && p.reserve != nil {
		return p.reserveMore()
	}
	return nil
}

func (p *parser) reserveMore() error {
	more := reservedAtOnce - p.left
	if !p.reserve(more) {
		return ErrNoMemory
	}
	p.left += more
	return nil
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

func newParser(data []byte) (*parser, error) {
	if uint64(len(data)) > math.MaxUint32 {
		return nil, &Error{0, "it is larger than 4 GB"} // an index of keys has 4 bytes for a place
	}
	p := parsers.Get().(*parser)
	p.scanner = scanner{data: data}
	return p, nil
}

// release keeps the memory of the parser for the next document, unless it is much.
func (p *parser) release() {
	const most = 4 << 10
	if cap(p.keys) > most || len(p.spare) > most/minIndex || cap(p.other) > most || cap(p.scratch) > most {
		return
	}
	p.scanner = scanner{}
	p.keys = p.keys[:0]
	p.copied = ""
	p.reserve, p.left = nil, 0
	parsers.Put(p)
}

// value checks the next value and builds the selected parts of it.
func (p *parser) value(selected *Selection) (any, error) {
	if selected == nil {
		return nil, p.skip()
	}
	switch c := p.peek(); c {
	case '{':
		return p.object(selected)
	case '[':
		return p.array(selected)
	case '"':
		t, err := p.text()
		if err == nil && selected.all { // otherwise something within it is selected that is not there, and it is no larger than the document
			err = p.take(sizeOfText + p.copySize(t))
		}
		if err != nil {
			return nil, err
		}
		return p.string(t), nil
	case 't':
		return true, p.literal("true")
	case 'f':
		return false, p.literal("false")
	case 'n':
		return nil, p.literal("null")
	default:
		start := p.pos
		if err := p.skipNumber(c); err != nil {
			return nil, err
		}
		number := text{start: start, end: p.pos}
		if selected.all {
			if err := p.take(sizeOfText + p.copySize(number)); err != nil {
				return nil, err
			}
		}
		return json.Number(p.string(number)), nil
	}
}

// skip checks the next value.
func (p *parser) skip() error {
	switch c := p.peek(); c {
	case '{':
		return p.skipObject()
	case '[':
		return p.skipArray()
	case '"':
		_, err := p.text()
		return err
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	default:
		return p.skipNumber(c)
	}
}

func (p *parser) skipNumber(c byte) error {
	switch {
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	case len(p.data) == 0:
		return p.fail("it is empty")
	default:
		return p.unexpected(noValue)
	}
}

// An object or array without a selected part takes no memory of its own.
var (
	emptyObject any = map[string]any{}
	emptyArray  any = []any{}
)

func (p *parser) object(selected *Selection) (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	if err := p.expectMany(selected); err != nil {
		return nil, err
	}
	var m map[string]any
	object := p.openObject()
	for first := true; ; first = false {
		key, ok, err := p.nextMember(&object, first)
		if err != nil {
			return nil, err
		}
		if !ok && m == nil {
			return emptyObject, nil
		}
		if !ok {
			return m, nil
		}
		member := selected.member(p.bytes(key))
		if member == nil {
			if err := p.skip(); err != nil {
				return nil, err
			}
			continue
		}
		size := p.copySize(key)
		switch {
		case m == nil:
			size += sizeOfObject
		case len(m) == fewMembers:
			size += sizeOfGroups
		case len(m) > fewMembers:
			size += sizeOfMember
		}
		if err := p.take(size); err != nil {
			return nil, err
		}
		if m == nil {
			m = make(map[string]any)
		}
		name := p.string(key)
		if m[name], err = p.value(member); err != nil {
			return nil, err
		}
	}
}

func (p *parser) skipObject() error {
	if err := p.open(); err != nil {
		return err
	}
	object := p.openObject()
	for first := true; ; first = false {
		if _, ok, err := p.nextMember(&object, first); err != nil || !ok {
			return err
		}
		if err := p.skip(); err != nil {
			return err
		}
	}
}

// nextMember moves to the value of the next member of an object and returns its key, or moves past the end of the
// object and reports false.
func (p *parser) nextMember(object *openObject, first bool) (key text, ok bool, err error) {
	c := p.peek()
	switch {
	case c == '}':
		p.close()
		p.closeObject(object)
		return text{}, false, nil
	case first:
	case c == ',':
		p.pos++
		c = p.peek()
	default:
		return text{}, false, p.unexpected("members of an object must be separated by commas")
	}
	if c != '"' {
		return text{}, false, p.unexpected("a key in double quotes must start here")
	}
	if key, err = p.text(); err != nil {
		return text{}, false, err
	}
	if p.peek() != ':' {
		return text{}, false, p.unexpected("a key must be followed by a colon")
	}
	p.pos++
	if !p.addKey(object, key) {
		p.peek()
		return text{}, false, p.fail("a key stands twice in one object")
	}
	return key, true, nil
}

func (p *parser) array(selected *Selection) (any, error) {
	items, first, last := selected.item()
	if items == nil {
		return emptyArray, p.skipArray()
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	if err := p.expectMany(selected); err != nil {
		return nil, err
	}
	var all []any
	var ends lastPlaces
	for n := 0; ; n++ {
		ok, err := p.nextItem(n == 0)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if n < first {
			if err := p.take(sizeOfItem); err != nil {
				return nil, err
			}
			v, err := p.value(items)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
			continue
		}
		p.peek()
		ends.add(p.pos, last)
		if err := p.skip(); err != nil {
			return nil, err
		}
	}
	end := p.pos
	p.depth++ // back into the array
	for _, place := range ends.inOrder() {
		p.pos = place
		v, err := p.value(items)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	p.depth--
	p.pos = end
	if all == nil {
		return emptyArray, nil
	}
	return all, nil
}

// lastPlaces are the places of the last items of an array. Which they are is known at its end alone.
type lastPlaces struct {
	places []int
	next   int // the oldest one, which is replaced next
}

// add adds a place, and forgets the oldest one if there are more than most.
func (l *lastPlaces) add(place, most int) {
	switch {
	case len(l.places) < most:
		l.places = append(l.places, place)
	case most > 0:
		l.places[l.next] = place
		l.next = (l.next + 1) % most
	}
}

func (l *lastPlaces) inOrder() []int { return slices.Concat(l.places[l.next:], l.places[:l.next]) }

func (p *parser) skipArray() error {
	if err := p.open(); err != nil {
		return err
	}
	for first := true; ; first = false {
		if ok, err := p.nextItem(first); err != nil || !ok {
			return err
		}
		if err := p.skip(); err != nil {
			return err
		}
	}
}

// expectMany is called where many strings may be selected: one copy of the document is cheaper than a copy of each.
func (p *parser) expectMany(selected *Selection) error {
	if selected.all && p.copied == "" {
		if err := p.take(len(p.data)); err != nil {
			return err
		}
		p.copied = string(p.data)
	}
	return nil
}

// copySize is how many bytes string copies.
func (p *parser) copySize(t text) int {
	if p.copied != "" && !t.escaped {
		return 0
	}
	return t.end - t.start
}

func (p *parser) string(t text) string {
	switch {
	case t.escaped:
		return string(p.bytes(t))
	case p.copied != "":
		return p.copied[t.start:t.end]
	default:
		return string(p.data[t.start:t.end])
	}
}

// bytes returns a string without its escapes. The bytes are good until the next call.
func (p *parser) bytes(t text) []byte {
	if !t.escaped {
		return p.data[t.start:t.end]
	}
	p.scratch = appendText(slices.Grow(p.scratch[:0], t.end-t.start), p.data, t)
	return p.scratch
}

// appendText appends a string without its escapes.
func appendText(dst, data []byte, t text) []byte {
	s := scanner{data: data[:t.end], pos: t.start}
	for s.pos < t.end {
		length := bytes.IndexByte(s.data[s.pos:], '\\')
		if length < 0 {
			return append(dst, s.data[s.pos:]...)
		}
		dst = append(dst, s.data[s.pos:s.pos+length]...)
		s.pos += length
		r, _ := s.escape() // was checked before
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}
