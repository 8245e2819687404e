package codec

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape returns a text as PostgreSQL can hold it: it takes neither zero bytes nor bytes that are no UTF-8. A backslash begins an escape,
// so that different texts stay different. Most texts stay as they are.
func Escape(text string) string {
	if utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\\") {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == 0 || r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\%02x`, text[i])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Unescape returns the text that Escape was given.
func Unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, `\`)
		b.WriteString(before)
		switch {
		case !found:
			return b.String()
		case strings.HasPrefix(after, `\`):
			b.WriteByte('\\')
			text = after[1:]
		case len(after) < 2:
			return b.String()
		default:
			code, _ := strconv.ParseUint(after[:2], 16, 8)
			b.WriteByte(byte(code))
			text = after[2:]
		}
	}
}

// EscapeOrNull is nil for an empty text.
func EscapeOrNull(text string) *string {
	if text == "" {
		return nil
	}
	text = Escape(text)
	return &text
}

// EscapeAll is Escape for several.
func EscapeAll(texts []string) []string { return eachText(texts, Escape) }

// UnescapeAll is Unescape for several.
func UnescapeAll(texts []string) []string { return eachText(texts, Unescape) }

func eachText(texts []string, as func(string) string) (all []string) {
	for _, text := range texts {
		all = append(all, as(text))
	}
	return all
}
