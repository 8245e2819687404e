package template

import (
	"regexp"
	"strings"
)

var doubleBraces = regexp.MustCompile(`\{\{([^{}\n]{1,100})\}\}`)

// longestUnclosed bounds the path after a brace without its end.
const longestUnclosed = 100

// UnclosedBrace returns the first brace of a text that is followed by a path and never closed, with that path, "" if there is
// none. Braces of code and of JSON are closed, or are followed by something else.
func UnclosedBrace(text string) string {
	for i := range len(text) {
		if text[i] != '{' || i > 0 && text[i-1] == '{' {
			continue
		}
		rest := text[i+1:]
		if next := strings.IndexByte(rest, '{'); next >= 0 {
			rest = rest[:next]
		}
		_, n := parsePath(rest)
		ends := n == len(rest) && i+1+n == len(text) || n < len(rest) && strings.IndexByte(spaces, rest[n]) >= 0
		if n > 0 && n <= longestUnclosed && ends && !strings.Contains(rest, "}") {
			return text[i : i+1+n]
		}
	}
	return ""
}

// DoubleBraces returns the first {{…}} of a text, which is no placeholder, and the placeholder that was probably meant. Each is
// "" if there is none.
func DoubleBraces(text string) (found, meant string) {
	match := doubleBraces.FindStringSubmatch(text)
	if match == nil {
		return "", ""
	}
	// {{ .Status }} is how the templates of Go name a value.
	meant = "{" + strings.TrimPrefix(strings.Trim(match[1], spaces), ".") + "}"
	if _, length, _, err := parsePlaceholder(meant); err != nil || length != len(meant) {
		meant = ""
	}
	return match[0], meant
}
