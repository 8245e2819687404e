package api

import (
	"iter"
	"strings"
)

// WantsEvents reports whether a request asks for server-sent events: its Accept headers list text/event-stream, and do not
// prefer text/plain. Ranges such as */* say how welcome plain text is, and do not ask for events.
func WantsEvents(accept []string) bool {
	const unlisted = -1
	events, plain, text, anything := unlisted, unlisted, unlisted, unlisted
	for r := range MediaRanges(accept) {
		switch {
		case strings.EqualFold(r.Name, "text/event-stream"):
			events = max(events, r.Quality)
		case strings.EqualFold(r.Name, "text/plain"):
			plain = max(plain, r.Quality)
		case strings.EqualFold(r.Name, "text/*"):
			text = max(text, r.Quality)
		case r.Name == "*/*":
			anything = max(anything, r.Quality)
		}
	}
	for _, wider := range [...]int{text, anything} { // the closest range counts
		if plain == unlisted {
			plain = wider
		}
	}
	return events > 0 && events >= plain
}

// mediaRange is an element of an Accept header.
type mediaRange struct {
	Name    string
	Quality int // in thousandths; 0 is unwelcome
}

// MediaRanges are the elements of the Accept headers of a request.
func MediaRanges(accept []string) iter.Seq[mediaRange] {
	return func(yield func(mediaRange) bool) {
		for _, rest := range accept {
			for rest != "" {
				var r mediaRange
				if r, rest = nextRange(rest); !yield(r) {
					return
				}
			}
		}
	}
}

// nextRange reads the first element of an Accept header (RFC 9110, section 12.5.1). One whose quality is malformed counts as
// unwelcome.
func nextRange(header string) (r mediaRange, rest string) {
	element, rest := cutUnquoted(header, ',')
	name, parameters := cutUnquoted(element, ';')
	r = mediaRange{strings.Trim(name, " \t"), 1000}
	for parameters != "" {
		var parameter string
		parameter, parameters = cutUnquoted(parameters, ';')
		key, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.Trim(key, " \t"), "q") {
			r.Quality = parseQuality(strings.Trim(value, " \t"))
		}
	}
	return r, rest
}

// cutUnquoted cuts a header at the first separator that is not in a quoted string.
func cutUnquoted(text string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// parseQuality reads a number from 0 to 1 with up to three decimals, in thousandths. Anything else is 0.
func parseQuality(text string) int {
	whole, decimals, _ := strings.Cut(text, ".")
	if whole != "0" && whole != "1" || len(decimals) > 3 {
		return 0
	}
	quality, unit := 0, 1000
	for _, digit := range []byte(whole + decimals) {
		if digit < '0' || digit > '9' {
			return 0
		}
		quality += int(digit-'0') * unit
		unit /= 10
	}
	if quality > 1000 {
		return 0
	}
	return quality
}
