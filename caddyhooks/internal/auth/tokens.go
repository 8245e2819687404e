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
	case matched:
		return Accept()
	case sent:
		return Refuse(TokenUnknown)
	case slices.ContainsFunc(req.Header["Authorization"], func(line string) bool { return strings.TrimSpace(line) != "" }):
		return RefuseMissing(TokenNotBearer)
	default:
		return RefuseMissing(TokenMissing)
	}
}

// search reports whether the headers carry one of the tokens, and whether they carry any token at all.
func (t Tokens) search(h http.Header) (matched, sent bool) {
	matches := 0
	for i, line := range h["Authorization"] {
		if i == maxTokenLines {
			break
		}
		if token, ok := bearerToken(line); ok {
			sent = sent || token != ""
			matches |= t.compare(token)
		}
	}
	for i, line := range h["X-Service-Token"] {
		if i == maxTokenLines {
			break
		}
		token := strings.Trim(line, " \t")
		sent = sent || token != ""
		matches |= t.compare(token)
	}
	return matches == 1, sent
}

// Credential returns a digest of the token that Verify found, to tell callers with different tokens apart.
func (t Tokens) Credential(h http.Header) [sha256.Size]byte {
	for i := range t.digests {
		if matched, _ := (Tokens{t.digests[i : i+1]}).search(h); matched {
			return t.digests[i]
		}
	}
	return [sha256.Size]byte{}
}

// Has reports whether the set has a token.
func (t Tokens) Has(token string) bool { return t.compare(token) == 1 }

// bearerToken returns the text after the scheme in an Authorization value. The scheme is read in any case (RFC 7235,
// section 2.1).
func bearerToken(value string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(strings.Trim(value, " \t"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.Trim(token, " \t"), true
}

// compare returns 1 if the token is in the set and 0 if not. It compares all digests, so that its time does not depend
// on the result.
func (t Tokens) compare(token string) int {
	digest := sha256.Sum256([]byte(token))
	matched := 0
	for i := range t.digests {
		matched |= subtle.ConstantTimeCompare(digest[:], t.digests[i][:])
	}
	return matched
}
