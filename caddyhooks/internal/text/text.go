// Package text has the wording that messages for people share: lists, counts, durations, shortened texts, and small forms of
// JSON; and patterns with *. It imports the standard library alone.
package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Abridge bounds a text from outside that an error quotes.
func Abridge(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// List joins words as in "a, b and c".
func List(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// IsControl reports whether a character is a control character of ASCII or Latin-1.
func IsControl(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }

// Count is a number with its noun, as in "1 run" and "2 runs".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// WasOrWere is the verb for a number of things.
func WasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// Beginning is as much of a text as fits, without half a character at its end.
func Beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
