package auth

import (
	"net/textproto"
	"strings"
)

// HeaderToken verifies requests that carry a secret, as it is, in a header of their own. The zero value accepts nothing.
type HeaderToken struct {
	header  string
	tokens  Tokens
	missing Reason
}

// NewHeaderToken returns a verifier that takes any of the secrets.
func NewHeaderToken(header string, secrets ...string) *HeaderToken {
	return &HeaderToken{textproto.CanonicalMIMEHeaderKey(header), NewTokens(secrets...), SignatureMissing(header)}
}

// Verify looks at the first four lines of the header.
func (t *HeaderToken) Verify(req *Request) Verdict {
	matched, sent := 0, false
	for i, line := range req.Header[t.header] {
		if i == maxTokenLines {
			break
		}
		token := strings.Trim(line, " \t")
		sent = sent || token != ""
		matched = t.tokens.either(matched, token)
	}
	switch {
	case matched > 0:
		return AcceptBy(matched - 1)
	case sent:
		return Refuse(TokenUnknown)
	default:
		return RefuseMissing(t.missing)
	}
}

// Sent reports whether a request carries a token.
func (t *HeaderToken) Sent(req *Request) bool { return isSent(req, t.header) }

func (t *HeaderToken) place() string { return t.header }

// Interface guards
var _ carried = (*HeaderToken)(nil)
