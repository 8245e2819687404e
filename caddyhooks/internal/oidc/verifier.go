// Package oidc verifies tokens that an OpenID Connect issuer has signed, such as those of GitHub Actions and of Google Pub/Sub. It keeps
// the public keys of issuers, and fetches them when a token needs them. It imports auth and strictjson.
package oidc

import (
	"net/textproto"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// Policy says which tokens are accepted.
type Policy struct {
	Issuer   string   // the value of iss, which is also the URL of the discovery document but for its end
	Audience []string // a token must be for one of these
	Claims   []Claim  // all of them must match
	Header   string   // that has the token as it is. Default: Authorization, after Bearer
}

// Verifier accepts requests with a token that follows a policy.
type Verifier struct {
	policy  Policy
	keys    Keys
	missing auth.Reason
}

// NewVerifier returns a verifier. The zero Keys have none, and then no token can be checked.
func NewVerifier(policy Policy, keys Keys) *Verifier {
	policy.Header = textproto.CanonicalMIMEHeaderKey(policy.Header)
	v := &Verifier{policy: policy, keys: keys, missing: auth.TokenMissing}
	if policy.Header != "" {
		v.missing = auth.SignatureMissing(policy.Header)
	}
	return v
}

// The reasons for a refusal.
const (
	TooLong        auth.Reason = "the token is longer than 16 KB"
	Malformed      auth.Reason = "the token is not a signed JWT"
	OtherAlgorithm auth.Reason = "the token is not signed with one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, " +
		"ES384, ES512 and EdDSA"
	OtherIssuer     auth.Reason = "the token is of another issuer"
	OtherAudience   auth.Reason = "the token is for another audience"
	NoExpiry        auth.Reason = "the token has no time at which it expires (exp)"
	Expired         auth.Reason = "the token is expired"
	TooEarly        auth.Reason = "the token is not valid yet (nbf or iat lies ahead)"
	BadTime         auth.Reason = "a time of the token (nbf or iat) is not a number"
	KeyUnknown      auth.Reason = "the token is signed with a key that its issuer does not publish"
	KeyMaybeNew     auth.Reason = "the token is signed with a key that is not known, and it is too early to fetch the keys of its issuer again"
	SignatureWrong  auth.Reason = "the signature of the token is wrong"
	KeysUnavailable auth.Reason = "the keys of the token's issuer cannot be fetched"
)

// Verify looks at the header alone. All that the token says is checked before its signature: so keys are fetched only for tokens that
// would be good.
func (v *Verifier) Verify(req *auth.Request) auth.Verdict {
	raw, refused := v.sent(req)
	if raw == "" {
		return refused
	}
	token, reason := parseToken(raw)
	if reason == "" {
		reason = v.policy.check(token, req.Now)
	}
	if reason != "" {
		return auth.Refuse(reason)
	}
	return v.checkSignature(token, req.Now)
}

// maxLines bounds how many lines of the header are looked at.
const maxLines = 4

// sent returns the token in the header, or why there is none.
func (v *Verifier) sent(req *auth.Request) (raw string, refused auth.Verdict) {
	if v.policy.Header != "" && v.policy.Header != "Authorization" {
		for i, line := range req.Header[v.policy.Header] {
			if raw = strings.Trim(line, " \t"); raw != "" || i == maxLines {
				return raw, auth.Verdict{}
			}
		}
		return "", auth.RefuseMissing(v.missing)
	}
	refused = auth.RefuseMissing(auth.TokenMissing)
	for i, line := range req.Header["Authorization"] {
		if i == maxLines {
			break
		}
		scheme, token, _ := strings.Cut(strings.Trim(line, " \t"), " ")
		if token = strings.Trim(token, " \t"); strings.EqualFold(scheme, "Bearer") && token != "" {
			return token, auth.Verdict{}
		}
		refused = auth.RefuseMissing(auth.TokenNotBearer)
	}
	return "", refused
}

// Interface guard
var _ auth.Verifier = (*Verifier)(nil)
