package caddyhooks

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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

// mask is shown in place of a secret.
const mask = "••••"

func (s Secrets) masked() Secrets {
	var masked Secrets
	for range s {
		masked = append(masked, mask)
	}
	return masked
}

// unmaskTokens puts the tokens in force in the places of masks. Among masks, an empty text takes out the token in its place.
// No tokens are nil.
func unmaskTokens(sent, inForce Secrets) (tokens Secrets, err error) {
	masked := slices.Contains(sent, mask)
	if masked && len(sent) < len(inForce) {
		return nil, fmt.Errorf("is ambiguous: there are %d tokens now, so send a mask for each that shall stay, and an empty string for each that shall go", len(inForce))
	}
	for i, token := range sent {
		switch {
		case token == mask && i < len(inForce):
			tokens = append(tokens, inForce[i])
		case token == mask:
			return nil, errors.New("must be the token itself: there is none yet that a mask could stand for")
		case token == "" && masked && i < len(inForce):
		case strings.TrimSpace(token) == "":
			return nil, errors.New("must not be blank")
		default:
			tokens = append(tokens, token)
		}
	}
	return tokens, nil
}

// unmaskSecrets puts the secrets in force in the places of masks, by their position. Among masks, an empty text takes out the
// secret in its place.
func unmaskSecrets(sent, inForce Secrets) (Secrets, error) {
	masked := slices.Contains(sent, mask)
	if masked && len(sent) < len(inForce) {
		return nil, fmt.Errorf("is ambiguous: there are %d secrets now, so send a mask for each that shall stay, and an empty string for each that shall go", len(inForce))
	}
	var secrets Secrets
	for i, secret := range sent {
		switch {
		case secret == mask && i < len(inForce):
			secrets = append(secrets, inForce[i])
		case secret == mask:
			return nil, errors.New("must be the secret itself: there is none yet that a mask could stand for")
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
