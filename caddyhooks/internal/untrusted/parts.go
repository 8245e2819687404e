package untrusted

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// WrapParts is Wrap for a text that comes in parts: the wrapped text begins with before, goes on with the cleaned parts, and ends
// with after. A character that takes the place of others from two parts is in the first of them.
func (m Marker) WrapParts(parts []string) (before string, cleaned []string, after string) {
	cleaned = cleanParts(parts)
	start := len(blockStart) + len(m.id) + len(blockNotice)
	frame := m.Wrap("")
	return frame[:start], cleaned, frame[start:]
}

// cleanParts cleans the parts of a text as Clean does the whole of it.
func cleanParts(parts []string) []string {
	visible := make([]string, len(parts))
	for i, part := range parts {
		visible[i] = strings.Map(keepVisible, part)
	}
	moveMarks(visible)
	for i := range visible {
		visible[i] = norm.NFC.String(visible[i])
	}

	// The rest of the work turns characters into others, one for one.
	whole := Clean(strings.Join(visible, ""))
	cleaned := make([]string, len(parts))
	for i, part := range visible {
		end := 0
		for range part {
			_, size := utf8.DecodeRuneInString(whole[end:])
			end += size
		}
		cleaned[i], whole = whole[:end], whole[end:]
	}
	return cleaned
}

// moveMarks moves characters at the beginning of a part that can become one with those before them, such as accents, to the part
// before, so that each part can be normalized on its own.
func moveMarks(parts []string) {
	last := -1                // the part that such characters belong to …
	var moved strings.Builder // … and those that there are
	finish := func() {
		if moved.Len() > 0 {
			parts[last] += moved.String()
			moved.Reset()
		}
	}
	for i, part := range parts {
		rest := part
		for last >= 0 && rest != "" && !norm.NFC.PropertiesString(rest).BoundaryBefore() {
			_, size := utf8.DecodeRuneInString(rest)
			rest = rest[size:]
		}
		moved.WriteString(part[:len(part)-len(rest)])
		if rest != "" {
			finish()
			last = i
		}
		parts[i] = rest
	}
	finish()
}
