package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
)

// Tokens is a set of accepted bearer tokens; more than one is accepted while a token is being rotated. Only digests
// are kept, so the tokens themselves cannot be printed by accident, and their length does not show in the time that a
// comparison takes. The zero value accepts nothing.
type Tokens struct {
	digests [][sha256.Size]byte
}

// maxTokenLines bounds how many lines of each token header are looked at.
const maxTokenLines = 4

// NewTokens returns the set of the given tokens. White space around a token is dropped, because no header can carry
// it, and blank tokens are ignored.
func NewTokens(tokens ...string) Tokens {
	var t Tokens
	for _, token := range tokens {
		if token = strings.TrimSpace(token); token != "" {
			t.digests = append(t.digests, sha256.Sum256([]byte(token)))
		}
	}
	return t
}

// Empty reports whether the set accepts nothing.
func (t Tokens) Empty() bool { return len(t.digests) == 0 }

// Verify accepts a request whose headers carry one of the tokens, as `Authorization: Bearer <token>` or as
// `X-Service-Token: <token>`. One good header is enough: a wrong token or another scheme beside it does no harm, since
// proxies are known to add an Authorization of their own. A repeated header counts as several tries, of which the
// first four are looked at. The body is not looked at.
func (t Tokens) Verify(req *Request) Verdict {
	matched, sent := t.search(req.Header)
	switch {
	case matched > 0:
		return AcceptBy(matched - 1)
	case sent:
		return Refuse(TokenUnknown)
	case slices.ContainsFunc(req.Header["Authorization"], func(line string) bool { return strings.TrimSpace(line) != "" }):
		return RefuseMissing(TokenNotBearer)
	default:
		return RefuseMissing(TokenMissing)
	}
}

// search returns which of the tokens the headers carry, counted from 1, and 0 for none. It reports whether they carry any token at all.
func (t Tokens) search(h http.Header) (matched int, sent bool) {
	for i, line := range h["Authorization"] {
		if i == maxTokenLines {
			break
		}
		if token, ok := bearerToken(line); ok {
			sent = sent || token != ""
			matched = t.either(matched, token)
		}
	}
	for i, line := range h["X-Service-Token"] {
		if i == maxTokenLines {
			break
		}
		token := strings.Trim(line, " \t")
		sent = sent || token != ""
		matched = t.either(matched, token)
	}
	return matched, sent
}

// Credential returns a digest of the token that Verify found, to tell callers with different tokens apart.
func (t Tokens) Credential(h http.Header) [sha256.Size]byte {
	for i := range t.digests {
		if matched, _ := (Tokens{t.digests[i : i+1]}).search(h); matched > 0 {
			return t.digests[i]
		}
	}
	return [sha256.Size]byte{}
}

// Has reports whether the set has a token.
func (t Tokens) Has(token string) bool { return t.compare(token) > 0 }

// bearerToken returns the text after the scheme in an Authorization value. The scheme is read in any case (RFC 7235,
// section 2.1).
func bearerToken(value string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(strings.Trim(value, " \t"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.Trim(token, " \t"), true
}

// compare returns which token of the set this is, counted from 1, and 0 if it is none. It compares all digests, so that its time does not
// depend on the result.
func (t Tokens) compare(token string) int {
	digest := sha256.Sum256([]byte(token))
	matched := 0
	for i := range t.digests {
		matched = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(digest[:], t.digests[i][:]), i+1, matched)
	}
	return matched
}

// either is compare, or what was found before.
func (t Tokens) either(before int, token string) int {
	found := t.compare(token)
	return subtle.ConstantTimeSelect(subtle.ConstantTimeEq(int32(found), 0), before, found)
}
