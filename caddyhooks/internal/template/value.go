package template

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// appendValue appends a value as a reader of the message sees it: strings raw, everything else as JSON. It stops and
// returns false when dst would grow beyond the bound.
func appendValue(dst []byte, value any, b *bound) ([]byte, bool) {
	if text, ok := value.(string); ok {
		if !b.fits(len(dst) + len(text)) {
			return dst, false
		}
		return append(dst, text...), true
	}
	return appendJSON(dst, value, b)
}

func appendJSON(dst []byte, value any, b *bound) (_ []byte, ok bool) {
	if !b.fits(len(dst) + 1) {
		return dst, false
	}
	switch value := value.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		if value {
			dst = append(dst, "true"...)
		} else {
			dst = append(dst, "false"...)
		}
	case json.Number:
		dst = append(dst, value...)
	case string:
		if dst, ok = appendQuoted(dst, value, b); !ok {
			return dst, false
		}
	case []any:
		dst = append(dst, '[')
		for i, item := range value {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, ok = appendJSON(dst, item, b); !ok {
				return dst, false
			}
		}
		dst = append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		var few [8]string
		for i, key := range appendSortedKeys(few[:0], value) {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, ok = appendQuoted(dst, key, b); !ok {
				return dst, false
			}
			dst = append(dst, ':')
			if dst, ok = appendJSON(dst, value[key], b); !ok {
				return dst, false
			}
		}
		dst = append(dst, '}')
	default:
		dst = fmt.Append(dst, value)
	}
	return dst, b.fits(len(dst))
}

// appendSortedKeys appends to a slice of the caller, because most objects are small and need no other.
func appendSortedKeys(keys []string, object map[string]any) []string {
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// appendQuoted writes a string as encoding/json does without its escapes for HTML. It stops and returns false when dst would grow
// beyond the bound.
func appendQuoted(dst []byte, text string, b *bound) ([]byte, bool) {
	const hex = "0123456789abcdef"
	if !b.fits(len(dst) + len(text)) {
		return dst, false
	}
	dst = append(dst, '"')
	written := 0 // text before this is in dst
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		var escape []byte
		switch {
		case c == '"' || c == '\\':
			escape = []byte{'\\', c}
		case c == '\n':
			escape = []byte(`\n`)
		case c == '\r':
			escape = []byte(`\r`)
		case c == '\t':
			escape = []byte(`\t`)
		case c == '\b':
			escape = []byte(`\b`)
		case c == '\f':
			escape = []byte(`\f`)
		case c < ' ':
			escape = []byte{'\\', 'u', '0', '0', hex[c>>4], hex[c&0xF]}
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(text[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				escape = []byte(`\ufffd`)
			case r == '\u2028':
				escape = []byte(`\u2028`)
			case r == '\u2029':
				escape = []byte(`\u2029`)
			default:
				i += size
				continue
			}
		}
		if !b.fits(len(dst) + len(text) - written + len(escape) - size) { // the rest of the text has no fewer bytes than now
			return dst, false
		}
		dst = append(dst, text[written:i]...)
		dst = append(dst, escape...)
		i += size
		written = i
	}
	dst = append(dst, text[written:]...)
	return append(dst, '"'), true
}
