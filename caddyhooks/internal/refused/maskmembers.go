package refused

import (
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// withoutMembers is the beginning of a body without the values of the members that hold secrets: of JSON, of a form, and of JSON in a form.
// ok is false if the body is neither, so that it is not known where its secrets are.
func (m *Mask) withoutMembers(body []byte) (masked []byte, ok bool) {
	if masked, ok = m.maskJSON(body); ok || !isForm(body) {
		return masked, ok
	}
	for field := range strings.SplitSeq(string(body), "&") {
		if len(masked) > enoughOfBody {
			break
		}
		if field, ok = m.maskField(field); !ok {
			return nil, false
		}
		masked = append(append(masked, field...), '&')
	}
	return masked[:len(masked)-1], true
}

// enoughOfBody is how much of a body is masked: more than is kept, so that no secret is cut in two before it is found.
const enoughOfBody = 2 * MaxKeptBody

func (m *Mask) isSecretMember(name string) bool { return slices.Contains(m.Members, name) }

// maskJSON reports false if the text is no JSON.
func (m *Mask) maskJSON(document []byte) (masked []byte, ok bool) {
	rest := 0
	err := strictjson.FindMembers(document, func(key []byte) bool { return m.isSecretMember(string(key)) }, func(start, end int) {
		if len(masked) <= enoughOfBody {
			masked = append(append(masked, document[rest:min(start, rest+enoughOfBody)]...), `"`+m.Mark+`"`...)
		}
		rest = end
	})
	if len(masked) <= enoughOfBody {
		masked = append(masked, document[rest:min(len(document), rest+enoughOfBody)]...)
	}
	if err != nil {
		return nil, false
	}
	return masked, true
}

// isForm reports whether a body has no bytes but those of which a form is made. JSON that is cut off, or broken, has others.
func isForm(body []byte) bool {
	return !slices.ContainsFunc(body, func(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 })
}

// maskField masks a field of a form, as it is sent. A value that may be JSON, as in the field payload of Slack, is masked as such.
func (m *Mask) maskField(field string) (masked string, ok bool) {
	name, value, _ := strings.Cut(field, "=")
	key, err := url.QueryUnescape(name)
	if err != nil {
		return "", false
	}
	text, err := url.QueryUnescape(value)
	switch {
	case err != nil:
		return "", false
	case m.isSecretMember(key):
		return name + "=" + url.QueryEscape(m.Mark), true
	case !strings.Contains(text, "{"):
		return field, true
	}
	inside, isJSON := m.maskJSON([]byte(text))
	if !isJSON {
		inside = []byte(m.Mark)
	}
	return name + "=" + url.QueryEscape(string(inside)), true
}
