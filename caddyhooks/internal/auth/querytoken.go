package auth

import "strings"

// QueryToken verifies requests that carry a token in a query parameter. A request without it has the token in its headers, as for Tokens.
type QueryToken struct {
	name   string
	tokens Tokens
}

// NewQueryToken returns a verifier that takes any of the secrets.
func NewQueryToken(name string, secrets ...string) QueryToken {
	return QueryToken{name, NewTokens(secrets...)}
}

// Verify looks at the query first: a good token in the headers does not help a wrong one there.
func (q QueryToken) Verify(req *Request) Verdict {
	var values []string
	if req.Query != nil {
		values = req.Query()[q.name]
	}
	if len(values) == 0 {
		return q.tokens.Verify(req)
	}
	if secret := q.tokens.compare(strings.Trim(values[0], " \t")); secret > 0 && len(values) == 1 {
		return AcceptBy(secret - 1)
	}
	return Refuse(TokenUnknown)
}
