package api

import (
	"iter"
	"strings"
)

// WantsEvents reports whether a request asks for server-sent events: its Accept headers list text/event-stream, and do not
// prefer text/plain. Ranges such as */* say how welcome plain text is, and do not ask for events.
func WantsEvents(accept []string) bool {
	events, _ := welcome(accept, "text/event-stream")
	_, plain := welcome(accept, "text/plain")
	return events > 0 && events >= plain
}

// AcceptsJSON reports whether Accept headers list application/json, or a range with it.
func AcceptsJSON(accept []string) bool {
	_, quality := welcome(accept, "application/json")
	return quality > 0
}

// welcome returns how welcome a media type is: where it is listed itself, and by the closest range. -1 is unlisted.
func welcome(accept []string, mediaType string) (itself, closest int) {
	const unlisted = -1
	family, _, _ := strings.Cut(mediaType, "/")
	itself, ofFamily, anything := unlisted, unlisted, unlisted
	for r := range MediaRanges(accept) {
		switch {
		case strings.EqualFold(r.Name, mediaType):
			itself = max(itself, r.Quality)
		case strings.EqualFold(r.Name, family+"/*"):
			ofFamily = max(ofFamily, r.Quality)
		case r.Name == "*/*":
			anything = max(anything, r.Quality)
		}
	}
	closest = itself
	for _, wider := range [...]int{ofFamily, anything} {
		if closest == unlisted {
			closest = wider
		}
	}
	return itself, closest
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
