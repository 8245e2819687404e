package template

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// A path leads to one place in a document.
type path []step

// A step goes to a member of an object or, if isIndex, to an item of an array.
type step struct {
	key     string
	index   int
	isIndex bool
}

func (p path) find(value any) (any, bool) {
	for i := range p {
		s := &p[i]
		if s.isIndex {
			items, _ := value.([]any)
			index := s.index
			if index < 0 {
				index += len(items)
			}
			if index < 0 || index >= len(items) {
				return nil, false
			}
			value = items[index]
			continue
		}
		members, _ := value.(map[string]any)
		member, ok := members[s.key]
		if !ok {
			return nil, false
		}
		value = member
	}
	return value, true
}

// addTo selects the value at the end of the path.
func (p path) addTo(selection *strictjson.Selection) {
	for i := range p {
		if p[i].isIndex {
			selection = selection.Item(p[i].index)
		} else {
			selection = selection.Member(p[i].key)
		}
	}
	selection.SelectAll()
}

// parsePath reads the bare path that text begins with and returns its length, or 0 if there is none.
func parsePath(text string) (path, int) {
	var p path
	i := 0
	if n := keyLength(text); n > 0 {
		key := text[:n]
		if !strings.ContainsFunc(key, func(r rune) bool { return unicode.IsLetter(r) || r == '_' }) {
			return nil, 0
		}
		p = append(p, step{key: key})
		i = n
	}
	steps, n := parseSteps(text[i:])
	if i == 0 && strings.HasPrefix(text, ".") {
		return nil, 0
	}
	return append(p, steps...), i + n
}

// parseSteps reads the .key and [index] and ['key'] that text begins with, and returns their length.
func parseSteps(text string) (path, int) {
	var p path
	i := 0
	for i < len(text) {
		var next step
		var n int
		switch text[i] {
		case '.':
			n = keyLength(text[i+1:])
			next.key = text[i+1 : i+1+n]
			if n > 0 {
				n++
			}
		case '[':
			next, n = parseBracket(text[i:])
		}
		if n == 0 {
			return p, i
		}
		p = append(p, next)
		i += n
	}
	return p, i
}

// keyLength returns the length of the key without quotes that text begins with.
func keyLength(text string) int {
	for i, r := range text {
		switch {
		case r == '_', r == '-', r == '@' && i == 0:
		case unicode.IsLetter(r), unicode.IsNumber(r):
		case i > 0 && (unicode.IsMark(r) || r == '\u200c' || r == '\u200d'): // joiners are spelling in Persian and Hindi
		default:
			if text[:i] == "@" {
				return 0
			}
			return i
		}
	}
	return len(text)
}

// parseBracket reads a [0], ['key'] or ["key"] and returns its length, or 0.
func parseBracket(text string) (step, int) {
	if len(text) < 2 {
		return step{}, 0
	}
	if quote := text[1]; quote == '\'' || quote == '"' {
		key, n := parseQuoted(text[1:], false)
		if n == 0 || !strings.HasPrefix(text[1+n:], "]") {
			return step{}, 0
		}
		return step{key: key}, n + 2
	}
	digits, _, closed := strings.Cut(text[1:min(len(text), maxIndexLength+2)], "]")
	if !closed || strings.HasPrefix(digits, "+") {
		return step{}, 0
	}
	index, err := strconv.Atoi(digits)
	if err != nil {
		return step{}, 0
	}
	return step{index: index, isIndex: true}, len(digits) + 2
}

// maxIndexLength is as long as an index can be, with its sign.
const maxIndexLength = 9

// parseQuoted reads a text in single or double quotes and returns its length, or 0. A backslash stands before a quote or a backslash. In
// a pipe, \n and \t are a line break and a tab.
func parseQuoted(text string, pipe bool) (string, int) {
	if !strings.HasPrefix(text, `"`) && !strings.HasPrefix(text, "'") {
		return "", 0
	}
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		c := text[i]
		switch {
		case c == text[0]:
			return out.String(), i + 1
		case c == '\\' && i+1 < len(text):
			i++
			switch c = text[i]; {
			case pipe && c == 'n':
				c = '\n'
			case pipe && c == 't':
				c = '\t'
			case strings.IndexByte(`\'"`, c) < 0:
				return "", 0
			}
		case c < utf8.RuneSelf && unicode.IsControl(rune(c)) && !pipe:
			return "", 0
		}
		out.WriteByte(c)
	}
	return "", 0
}
