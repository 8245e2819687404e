package oidc

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// token is a JWT. What it says is not to be believed before its signature is checked.
type token struct {
	signed    *jose.JSONWebSignature
	kid       string // of the key that signed it; "" if the token does not say
	algorithm jose.SignatureAlgorithm
	claims    map[string]any
}

const (
	// maxToken is the size of a token. Those with all groups of a user have some KB.
	maxToken = 16 << 10

	// leeway is the time by which clocks may differ.
	leeway = 60 * time.Second
)

// algorithms are those with a public key. With an HMAC, the public key itself would be the secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// parseToken reads a token without checking its signature.
func parseToken(raw string) (*token, auth.Reason) {
	if len(raw) > maxToken {
		return nil, TooLong
	}
	signed, err := jose.ParseSignedCompact(raw, algorithms)
	var other *jose.ErrUnexpectedSignatureAlgorithm
	switch {
	case errors.As(err, &other):
		return nil, OtherAlgorithm
	case err != nil || len(signed.Signatures) != 1:
		return nil, Malformed
	}
	doc, err := strictjson.Parse(signed.UnsafePayloadWithoutVerification())
	claims, ok := doc.(map[string]any)
	if err != nil || !ok {
		return nil, Malformed
	}
	header := signed.Signatures[0].Protected
	return &token{signed, header.KeyID, jose.SignatureAlgorithm(header.Algorithm), claims}, ""
}

// check returns why a token does not follow the policy, "" if it does.
func (p *Policy) check(t *token, now time.Time) auth.Reason {
	if issuer, _ := t.claims["iss"].(string); issuer != p.Issuer {
		return OtherIssuer
	}
	if !t.isFor(p.Audience) {
		return OtherAudience
	}
	if reason := t.checkTimes(now); reason != "" {
		return reason
	}
	for _, claim := range p.Claims {
		if reason := claim.check(t.claims); reason != "" {
			return reason
		}
	}
	return ""
}

// isFor reports whether one of the audiences is among those of the token.
func (t *token) isFor(audience []string) bool {
	switch aud := t.claims["aud"].(type) {
	case string:
		return slices.Contains(audience, aud)
	case []any:
		return slices.ContainsFunc(aud, func(one any) bool {
			text, ok := one.(string)
			return ok && slices.Contains(audience, text)
		})
	}
	return false
}

func (t *token) checkTimes(now time.Time) auth.Reason {
	at, most := float64(now.Unix()), leeway.Seconds()
	expires, ok := seconds(t.claims["exp"])
	switch {
	case !ok:
		return NoExpiry
	case expires+most <= at:
		return Expired
	}
	for _, name := range []string{"nbf", "iat"} {
		value, sent := t.claims[name]
		if !sent {
			continue
		}
		begins, ok := seconds(value)
		switch {
		case !ok:
			return BadTime
		case begins-most > at:
			return TooEarly
		}
	}
	return ""
}

// seconds reads a time in seconds since 1970, which may have a fraction.
func seconds(value any) (float64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	at, err := strconv.ParseFloat(number.String(), 64)
	return at, err == nil
}

// Claim is a condition on what a token says.
type Claim struct {
	Name   string
	Values []string // of which one must match; a * at the end stands for any text
}

// check returns why the claims of a token do not match, "" if they do. A claim that is a list matches if one of its items does.
func (c *Claim) check(claims map[string]any) auth.Reason {
	value, ok := findClaim(claims, c.Name)
	if !ok {
		return auth.Reason("the token has no claim " + c.Name)
	}
	matches := c.matches(value)
	if list, ok := value.([]any); ok {
		matches = slices.ContainsFunc(list, c.matches)
	}
	// An address that nobody has verified says nothing about who has it.
	if verified, sent := claims["email_verified"]; c.Name == "email" && sent && verified != true && verified != "true" {
		return "the email address in the token is not verified"
	}
	if !matches {
		return auth.Reason("the claim " + c.Name + " of the token has another value")
	}
	return ""
}

func (c *Claim) matches(value any) bool {
	var text string
	switch value := value.(type) {
	case string:
		text = value
	case bool:
		text = strconv.FormatBool(value)
	case json.Number:
		text = value.String()
	default:
		return false
	}
	return slices.ContainsFunc(c.Values, func(want string) bool {
		if begin, ok := strings.CutSuffix(want, "*"); ok {
			return strings.HasPrefix(text, begin)
		}
		return text == want
	})
}

// findClaim finds a claim by its name or, if there is none, by a path of names with dots between them. The names may have dots themselves.
func findClaim(claims map[string]any, name string) (any, bool) {
	if value, ok := claims[name]; ok {
		return value, true
	}
	for i, c := range []byte(name) {
		if c != '.' {
			continue
		}
		if inner, ok := claims[name[:i]].(map[string]any); ok {
			if value, ok := findClaim(inner, name[i+1:]); ok {
				return value, true
			}
		}
	}
	return nil, false
}
