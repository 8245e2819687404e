package strictjson

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner moves through a document token by token and checks each token. It allocates nothing.
type scanner struct {
	data  []byte
	pos   int
	depth int // open objects and arrays
}

func (s *scanner) fail(reason string) error { return &Error{s.pos, reason} }

// unexpected is the error of a place where another token must start.
func (s *scanner) unexpected(reason string) error {
	if s.pos == len(s.data) {
		reason = endsEarly
	}
	return s.fail(reason)
}

const (
	endsEarly   = "it ends too early"
	noValue     = "a value must start here"
	noDigit     = "a number needs a digit here"
	invalidUTF8 = "a string is not valid UTF-8"
	control     = "a control character in a string must be escaped"
)

// peek skips white space and returns the byte after it, or 0 at the end of the document.
func (s *scanner) peek() (c byte) {
	if s.pos < len(s.data) {
		c = s.data[s.pos]
	}
	if c > ' ' {
		return c
	}
	return s.peekAfterSpace()
}

//go:noinline
func (s *scanner) peekAfterSpace() byte {
	data, pos := s.data, s.pos
	for pos < len(data) {
		c := data[pos]
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			s.pos = pos
			return c
		}
		pos++
		for len(data)-pos >= 8 && binary.LittleEndian.Uint64(data[pos:]) == ' '*eachByte { // indented documents
			pos += 8
		}
	}
	s.pos = pos
	return 0
}

// open moves past the bracket that starts an object or array.
func (s *scanner) open() error {
	if s.depth == MaxDepth {
		return s.fail(fmt.Sprintf("it is nested deeper than %d levels", MaxDepth))
	}
	s.depth++
	s.pos++
	return nil
}

// close moves past the bracket that ends an object or array.
func (s *scanner) close() {
	s.depth--
	s.pos++
}

// end checks that nothing follows the value.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.fail("there is more after the end of the value")
	}
	return nil
}

// nextItem moves to the next item of an array, or past the end of the array and reports false.
func (s *scanner) nextItem(first bool) (bool, error) {
	switch c := s.peek(); {
	case c == ']':
		s.close()
		return false, nil
	case first:
		return true, nil
	case c == ',':
		s.pos++
		return true, nil
	}
	return false, s.unexpected("items of an array must be separated by commas")
}

func (s *scanner) literal(word string) error {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.fail(noValue)
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) number() error {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if !s.digits() {
		return s.fail(noDigit)
	}
	if s.at('.') {
		s.pos++
		if !s.digits() {
			return s.fail(noDigit)
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return s.fail(noDigit)
		}
	}
	return nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

// digits skips digits and reports whether there were any.
func (s *scanner) digits() bool {
	data, pos := s.data, s.pos
	for pos < len(data) && data[pos]-'0' <= 9 {
		pos++
	}
	found := pos > s.pos
	s.pos = pos
	return found
}

// A text is the place of a string in the document, without its quotes.
type text struct {
	start, end int
	escaped    bool // there are escapes in it
}

// text moves past the string that starts here. Most strings are plain, and over at the first special character.
func (s *scanner) text() (text, error) {
	data, start := s.data, s.pos+1
	end := start
	for len(data)-end >= 8 {
		if special := findSpecial(binary.LittleEndian.Uint64(data[end:])); special != 0 {
			end += bits.TrailingZeros64(special) / 8
			if data[end] == '"' {
				s.pos = end + 1
				return text{start: start, end: end}, nil
			}
			break
		}
		end += 8
	}
	s.pos = end
	return s.specialText(start)
}

// specialText moves past the rest of a string.
func (s *scanner) specialText(start int) (text, error) {
	t := text{start: start}
	ascii := true
	for {
		s.pos = skipPlain(s.data, s.pos)
		if s.pos == len(s.data) {
			return text{}, s.fail(endsEarly)
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			t.end = s.pos
			if !ascii && !utf8.Valid(s.data[t.start:t.end]) {
				return text{}, s.fail(invalidUTF8)
			}
			s.pos++
			return t, nil
		case c == '\\':
			t.escaped = true
			if _, err := s.escape(); err != nil {
				return text{}, err
			}
		case c < ' ':
			return text{}, s.fail(control)
		default:
			ascii = false
			for s.pos < len(s.data) && s.data[s.pos] >= utf8.RuneSelf {
				s.pos++
			}
		}
	}
}

const (
	eachByte = 0x0101010101010101 // times a byte: a word of eight such bytes
	highBits = 0x80 * eachByte
)

// skipPlain returns the place of the first character from pos on that is special in a string.
func skipPlain(data []byte, pos int) int {
	for len(data)-pos >= 8 {
		special := findSpecial(binary.LittleEndian.Uint64(data[pos:]))
		if special != 0 {
			return pos + bits.TrailingZeros64(special)/8
		}
		pos += 8
	}
	for pos < len(data) && ' ' <= data[pos] && data[pos] < utf8.RuneSelf && data[pos] != '"' && data[pos] != '\\' {
		pos++
	}
	return pos
}

// findSpecial sets the high bit of the first byte of a word that is not ASCII, or does not stand for itself in a string.
// It may set other bits further on.
func findSpecial(word uint64) uint64 {
	quote, backslash := word^'"'*eachByte, word^'\\'*eachByte
	// Subtracting sets the high bit of a byte that is less.
	return (word | (word - ' '*eachByte) | (quote - eachByte) | (backslash - eachByte)) & highBits
}

// escape moves past an escape and returns its character.
func (s *scanner) escape() (rune, error) {
	s.pos++ // the backslash
	if s.pos == len(s.data) {
		return 0, s.fail(endsEarly)
	}
	c := s.data[s.pos]
	s.pos++
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
		return s.unicodeEscape()
	default:
		return 0, s.fail("an unknown escape stands in a string")
	}
}

func (s *scanner) unicodeEscape() (rune, error) {
	r, ok := s.hex4()
	if !ok {
		return 0, s.fail(`\u must be followed by four hex digits`)
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if s.pos+1 < len(s.data) && s.data[s.pos] == '\\' && s.data[s.pos+1] == 'u' {
		s.pos += 2
		if low, ok := s.hex4(); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, nil
			}
		}
	}
	return 0, s.fail("half of a surrogate pair stands alone")
}

func (s *scanner) hex4() (rune, bool) {
	if len(s.data)-s.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s.data[s.pos : s.pos+4] {
		switch {
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
	s.pos += 4
	return r, true
}
