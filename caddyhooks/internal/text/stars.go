package text

import "strings"

// MatchesStars reports whether a text is written as a pattern, in which * stands for any characters.
func MatchesStars(pattern, text string) bool {
	pieces := strings.Split(pattern, "*")
	if len(pieces) == 1 {
		return text == pattern
	}
	last := len(pieces) - 1
	text, begins := strings.CutPrefix(text, pieces[0])
	text, ends := strings.CutSuffix(text, pieces[last])
	for _, piece := range pieces[1:last] {
		var found bool
		if _, text, found = strings.Cut(text, piece); !found {
			return false
		}
	}
	return begins && ends
}

// StarsOverlap reports whether some text matches both patterns.
func StarsOverlap(a, b string) bool {
	switch firstA, firstB := strings.IndexByte(a, '*'), strings.IndexByte(b, '*'); {
	case firstA < 0:
		return MatchesStars(b, a)
	case firstB < 0:
		return MatchesStars(a, b)
	default: // if their ends agree, the longer ends with the rest of both between them is such a text
		beginA, beginB, endA, endB := a[:firstA], b[:firstB], a[strings.LastIndexByte(a, '*')+1:], b[strings.LastIndexByte(b, '*')+1:]
		return (strings.HasPrefix(beginA, beginB) || strings.HasPrefix(beginB, beginA)) &&
			(strings.HasSuffix(endA, endB) || strings.HasSuffix(endB, endA))
	}
}
