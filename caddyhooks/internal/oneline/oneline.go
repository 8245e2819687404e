// Package oneline makes text from outside fit for a line of a log: one line of valid UTF-8, without control and invisible
// characters, and not too long.
package oneline

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Of is a text on one line. What does not print is written as in a Go string, as in \n. Text beyond a number of bytes is left
// out, and an ellipsis says so.
func Of(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text // as most are
	}
	const ellipsis = "…"
	var line strings.Builder
	fits := 0 // the bytes of line that leave room for the ellipsis
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		shown := string(r) // of a byte that is not UTF-8, the replacement character
		if !unicode.IsPrint(r) {
			shown = strconv.QuoteRune(r)
			shown = shown[1 : len(shown)-1]
		}
		if line.Len()+len(shown) > most {
			return line.String()[:fits] + ellipsis
		}
		line.WriteString(shown)
		if line.Len()+len(ellipsis) <= most {
			fits = line.Len()
		}
		i += size
	}
	return line.String()
}

// First is the first line of a text that is not blank, as Of shows it.
func First(text string, most int) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return Of(line, most)
		}
	}
	return ""
}
