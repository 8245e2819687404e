package channels

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// splitter cuts texts into parts that a service takes in one message. The same text always gives the same parts, so that
// a delivery can go on with the part where it stopped.
type splitter struct {
	// The largest size of a part.
	limit int
	// The size of a text as it is sent. A longer text has a size that is no smaller, and no character has a size below 1.
	size func(text string) int
	// Drops what the service would drop, rune by rune as for strings.Map. It may be nil.
	drop func(r rune) rune
}

// maxParts bounds the messages that one answer can become.
const maxParts = 50

// split returns the parts of a text, none of which is blank. Only white space between them is lost, and the text
// after maxParts parts: the last part then says how much is missing, and names the run that has it.
func (s splitter) split(text, runID string) []string {
	if s.drop != nil {
		text = strings.Map(s.drop, text)
	}
	var parts []string
	rest := trimBlankLines(text)
	for at := firstVisible(rest); at >= 0; at = firstVisible(rest) {
		if at > 4*s.limit { // more invisible characters than fit in a part
			rest = rest[at:]
		}
		if len(parts) == maxParts-1 && s.cut(rest, "") < len(rest) {
			return append(parts, s.lastPart(rest, runID))
		}
		n := s.cut(rest, "")
		if part := strings.TrimRightFunc(rest[:n], unicode.IsSpace); !isBlank(part) {
			parts = append(parts, part)
		}
		rest = trimSpaceAfterCut(rest[n:])
	}
	return parts
}

// first is as much of a text as fits into one part, which says how much does not. It is "" if the text is blank.
func (s splitter) first(text, runID string) string {
	if s.drop != nil {
		text = strings.Map(s.drop, text)
	}
	text = strings.TrimRightFunc(trimBlankLines(text), unicode.IsSpace)
	switch at := firstVisible(text); {
	case at < 0:
		return ""
	case at > 4*s.limit: // more invisible characters than fit in a part
		text = text[at:]
	}
	if s.cut(text, "") < len(text) {
		return s.lastPart(text, runID)
	}
	return text
}

// lastPart is as much of rest as fits, and how much does not.
func (s splitter) lastPart(rest, runID string) string {
	note := func(left int) string {
		if runID == "" {
			return fmt.Sprintf("[%d more characters are left out here.]", left)
		}
		return fmt.Sprintf("[%d more characters are left out here. Run %s has all of them.]", left, runID)
	}
	part := strings.TrimRightFunc(rest[:s.cut(rest, "\n\n"+note(utf8.RuneCountInString(rest)))], unicode.IsSpace)
	left := utf8.RuneCountInString(strings.TrimFunc(rest[len(part):], unicode.IsSpace))
	if isBlank(part) {
		return note(left)
	}
	return part + "\n\n" + note(left)
}

// cut returns how many bytes of text go into its first part, if tail is to follow there: at least a character, up to the
// best place to break that leaves no room unused without need.
func (s splitter) cut(text, tail string) int {
	end := len(text)
	if n := 0; len(text) > s.limit {
		for i := range text {
			if n++; n > s.limit {
				end = i
				break
			}
		}
	}
	fits := func(n int) bool { return s.size(text[:n]+tail) <= s.limit }
	if end == len(text) && fits(end) {
		return end
	}
	fit := runeStart(text, sort.Search(end, func(n int) bool { return !fits(runeStart(text, n+1)) }))
	if fit == 0 {
		_, fit = utf8.DecodeRuneInString(text)
	}
	return breakBefore(text, fit)
}

// runeStart is the last place up to n where a character begins or the text ends.
func runeStart(text string, n int) int {
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// The kinds of places to break at, the best first.
const (
	paragraph = iota
	line
	sentence
	word
	breakKinds
)

// breakBefore returns the best place to break a text, up to n: a paragraph, else a line, a sentence or a word, if one ends
// in the second half; else the last of them; else a place between two characters, as a reader sees characters; else n.
func breakBefore(text string, n int) int {
	var last [breakKinds]int
	ended := false // whether a sentence has ended, quotes and brackets aside
	for i := 0; i <= n && i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !isBreak(r) {
			closes := strings.ContainsRune(closers, r)
			if ended && !closes && endsInWideStop(text[:i]) {
				last[sentence] = i
			}
			ended = ended && closes || strings.ContainsRune(".!?…。！？", r)
			i += size
			continue
		}
		end := i
		lines := 0
		for end < len(text) {
			r, size := utf8.DecodeRuneInString(text[end:])
			if !isBreak(r) {
				break
			}
			if r == '\n' {
				lines++
			}
			end += size
		}
		kind := word
		switch {
		case lines > 1:
			kind = paragraph
		case lines == 1:
			kind = line
		case ended:
			kind = sentence
		}
		if after, _ := utf8.DecodeRuneInString(text[end:]); !extendsCharacter(after) {
			last[kind] = i
		}
		i, ended = end, false
	}
	best := 0
	for _, place := range last {
		if place >= n/2 && place > 0 {
			return place
		}
		best = max(best, place)
	}
	if best > 0 {
		return best
	}
	for i := n; i > 0; i = runeStart(text, i-1) {
		if isBoundary(text, i) {
			return i
		}
	}
	return n
}

// closers may stand between the end of a sentence and the space after it.
const closers = `"')]}»”’」』）`

// endsInWideStop reports whether a text ends with a full stop that no space follows, as in Chinese.
func endsInWideStop(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, closers))
	return strings.ContainsRune("。！？", r)
}

// isBreak reports whether a text may be broken at r: at white space other than no-break spaces.
func isBreak(r rune) bool {
	return unicode.IsSpace(r) && r != '\u00A0' && r != '\u2007' && r != '\u202F'
}

// isBoundary reports whether a character, as a reader sees characters, ends at i. It covers the common cases of UAX #29.
func isBoundary(text string, i int) bool {
	if i == 0 || i == len(text) {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	after, _ := utf8.DecodeRuneInString(text[i:])
	switch {
	case extendsCharacter(after), before == zeroWidthJoiner, isHangul(before) && joinsHangul(before, after):
		return false
	case isRegional(before) && isRegional(after): // flags are pairs of them
		pairs := 0
		for i > 0 && isRegional(before) {
			i = runeStart(text, i-1)
			pairs++
			before, _ = utf8.DecodeLastRuneInString(text[:i])
		}
		return pairs%2 == 0
	case unicode.Is(unicode.Mn, before) && unicode.IsLetter(after): // a virama joins consonants
		return norm.NFC.PropertiesString(string(before)).CCC() != 9
	}
	return true
}

const zeroWidthJoiner = '\u200D'

// extendsCharacter reports whether r belongs to the character before it.
func extendsCharacter(r rune) bool {
	return unicode.Is(unicode.M, r) || r == zeroWidthJoiner || r == '\u200C' ||
		0x1F3FB <= r && r <= 0x1F3FF || // skin tones
		0xE0020 <= r && r <= 0xE007F || // tags, which flags of regions are spelled with
		r == 0xFF9E || r == 0xFF9F // voice marks of half width
}

func isRegional(r rune) bool { return 0x1F1E6 <= r && r <= 0x1F1FF }

func isHangul(r rune) bool { return unicode.Is(unicode.Hangul, r) }

// joinsHangul reports whether after, a part of a syllable or a whole one, goes on with the syllable of before.
func joinsHangul(before, after rune) bool {
	leading := 0x1100 <= before && before <= 0x115F || 0xA960 <= before && before <= 0xA97C
	return leading && isHangul(after) || 0x1160 <= after && after <= 0x11FF || 0xD7B0 <= after && after <= 0xD7FB
}

// trimBlankLines drops the blank lines that a text begins with, and leaves the first line that is not as it is.
func trimBlankLines(text string) string {
	space := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
	return text[strings.LastIndexByte(text[:space], '\n')+1:]
}

// trimSpaceAfterCut drops the white space that a text was broken at. The first line keeps its indent, if it has one.
func trimSpaceAfterCut(text string) string {
	if trimmed := trimBlankLines(text); len(trimmed) < len(text) {
		return trimmed
	}
	return strings.TrimLeftFunc(text, unicode.IsSpace)
}

// isBlank reports whether there is nothing to see in a text. Services refuse such messages.
func isBlank(text string) bool { return firstVisible(text) < 0 }

// firstVisible is the place of the first character in a text that can be seen, -1 if there is none.
func firstVisible(text string) int {
	return strings.IndexFunc(text, func(r rune) bool {
		switch {
		case unicode.IsSpace(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r):
			return false
		case r == 0x34F, r == 0x115F, r == 0x1160, r == 0x2800, r == 0x3164, r == 0xFFA0, r == 0xFFFC: // fillers
			return false
		}
		return true
	})
}

// cleanText makes an answer fit for every service: valid UTF-8, lines that end with a line feed, and no other control
// characters but tabs.
func cleanText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r == '\r', r == 0x85, r == 0x2028, r == 0x2029:
			return '\n'
		case unicode.IsControl(r), r&0xFFFE == 0xFFFE, 0xFDD0 <= r && r <= 0xFDEF: // controls and no characters at all
			return -1
		}
		return r
	}, text)
}

// utf16Length is the number of UTF-16 code units of a text. Some services count code units, others code points, of which
// there are never more.
func utf16Length(text string) int {
	n := 0
	for _, r := range text {
		if n++; r > 0xFFFF {
			n++
		}
	}
	return n
}
