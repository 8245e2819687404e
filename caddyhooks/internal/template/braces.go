package template

import (
	"regexp"
	"strings"
)

var doubleBraces = regexp.MustCompile(`\{\{([^{}\n]{1,100})\}\}`)

// DoubleBraces returns the first {{…}} of a text, which is no placeholder, and the placeholder that was probably meant. Each is
// "" if there is none.
func DoubleBraces(text string) (found, meant string) {
	match := doubleBraces.FindStringSubmatch(text)
	if match == nil {
		return "", ""
	}
	// {{ .Status }} is how the templates of Go name a value.
	meant = "{" + strings.TrimPrefix(strings.Trim(match[1], spaces), ".") + "}"
	if _, length, err := parsePlaceholder(meant); err != nil || length != len(meant) {
		meant = ""
	}
	return match[0], meant
}
