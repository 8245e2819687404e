package refused

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Mask leaves the secrets of a request out of what is kept of it.
type Mask struct {
	Mark        string                    // stands for a secret
	HidesHeader func(name string) bool    // a header whose values are secrets
	ShowsQuery  func(name string) bool    // a query parameter whose values are not
	HideIn      func(value string) string // replaces known secrets in other values
	Members     []string                  // members of the body, however deep, whose values are secrets
}

// maxKeptValue bounds a value of a header or of the query.
const maxKeptValue = 1 << 10

// Headers are headers without secrets, the first ones by name that are not too large.
func (m *Mask) Headers(header http.Header) http.Header {
	return m.fields(header, m.HidesHeader)
}

// Query is a query without secrets, as it would be sent.
func (m *Mask) Query(query url.Values) string {
	return url.Values(m.fields(query, func(name string) bool { return !m.ShowsQuery(name) })).Encode()
}

func (m *Mask) fields(from map[string][]string, hides func(name string) bool) map[string][]string {
	kept, size := make(map[string][]string), 0
	for _, name := range slices.Sorted(maps.Keys(from)) {
		shown := m.HideIn(strings.ToValidUTF8(name, "\uFFFD"))
		var values []string
		for _, value := range from[name] {
			switch {
			case value == "":
			case hides(name):
				value = m.Mark
			default:
				value = shorten(m.HideIn(strings.ToValidUTF8(value, "\uFFFD")), maxKeptValue)
			}
			values = append(values, value)
			size += len(value)
		}
		if size += len(shown); size > MaxKeptFields {
			break
		}
		kept[shown] = append(kept[shown], values...)
	}
	return kept
}

// Body is the beginning of a body without secrets. One that is cut in two by the end of it is not kept either. ok is false if members of
// the body are secrets, and it cannot be said where they are: then nothing may be kept of it.
func (m *Mask) Body(body []byte) (kept []byte, ok bool) {
	if len(m.Members) > 0 && len(body) > 0 {
		if body, ok = m.withoutMembers(body); !ok {
			return nil, false
		}
	}
	shown := m.HideIn(string(body[:min(len(body), enoughOfBody)]))
	shown = callbackMember.ReplaceAllString(shown, "${1}"+m.Mark)
	return []byte(text.Beginning(shown, MaxKeptBody)), true
}

// callbackMember is a callbackUrl in JSON, up to its path, which is often a secret, and the path. The end may be cut off.
var callbackMember = regexp.MustCompile(`("callbackUrl"\s*:\s*"(?:[^"\\/:]*://[^"\\/?#]*)?)(?:[^"\\]|\\.)*`)

func shorten(value string, most int) string {
	if len(value) <= most {
		return value
	}
	return text.Beginning(value, most-len("…")) + "…"
}
