package settings

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Secrets is a list of secrets. In JSON a single secret is a plain string.
type Secrets []string

// MarshalJSON writes one secret as a string, and several as an array.
func (s Secrets) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]string(s))
}

// UnmarshalJSON reads a string or an array of strings.
func (s *Secrets) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*s = nil
		if one != "" {
			*s = Secrets{one}
		}
		return nil
	}
	var all []string
	if json.Unmarshal(data, &all) != nil {
		return &json.UnmarshalTypeError{Value: "value", Type: reflect.TypeFor[Secrets]()} // encoding/json adds the field
	}
	*s = all
	return nil
}

func (s Secrets) masked() Secrets {
	var masked Secrets
	for range s {
		masked = append(masked, text.Mask)
	}
	return masked
}

// unmaskTokens is unmask for the tokens of the settings, none of which may be blank.
func unmaskTokens(sent, inForce Secrets) (Secrets, error) {
	tokens, err := Unmask("token", sent, inForce)
	if slices.ContainsFunc(tokens, func(token string) bool { return strings.TrimSpace(token) == "" }) {
		return nil, errors.New("must not be blank")
	}
	return tokens, err
}

// Unmask puts the secrets in force in the places of masks, by their position. Among masks, an empty text takes out the secret in
// its place. No secrets are nil. what is the word for one of them.
func Unmask(what string, sent, inForce Secrets) (secrets Secrets, err error) {
	masked := slices.Contains(sent, text.Mask)
	if masked && len(sent) < len(inForce) {
		return nil, fmt.Errorf("is ambiguous: there are %d %ss now, so send a mask for each that shall stay, and an empty string for each "+
			"that shall go", len(inForce), what)
	}
	for i, secret := range sent {
		switch {
		case secret == text.Mask && i < len(inForce):
			secrets = append(secrets, inForce[i])
		case secret == text.Mask:
			return nil, fmt.Errorf("must be the %s itself: there is none yet that a mask could stand for", what)
		case secret == "" && masked && i < len(inForce):
		default:
			secrets = append(secrets, secret)
		}
	}
	return secrets, nil
}

// sameSecrets compares in constant time, but for the number of secrets.
func sameSecrets(a, b Secrets) bool {
	if len(a) != len(b) {
		return false
	}
	equal := 1
	for i := range a {
		x, y := sha256.Sum256([]byte(a[i])), sha256.Sum256([]byte(b[i]))
		equal &= subtle.ConstantTimeCompare(x[:], y[:])
	}
	return equal == 1
}
