package caddyhooks

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Secrets is a list of secrets. A single one is a plain string in JSON.
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
		return errors.New("a secret must be a string or an array of strings")
	}
	*s = all
	return nil
}

// mask is what is shown of a secret.
const mask = "••••"

// unmaskTokens puts the tokens that masks stand for in their places.
func unmaskTokens(sent, known Secrets) (Secrets, error) {
	if slices.Contains(sent, mask) && len(sent) < len(known) {
		return nil, fieldErrorf("token", "is ambiguous: there are %d tokens now, so send the ones that shall stay themselves", len(known))
	}
	for i, token := range sent {
		switch {
		case token == mask && i < len(known):
			sent[i] = known[i]
		case token == mask:
			return nil, fieldErrorf("token", "must be the token itself: there is none yet that a mask could stand for")
		case strings.TrimSpace(token) == "":
			return nil, fieldErrorf("token", "must not be blank")
		}
	}
	if len(sent) == 0 {
		return nil, nil
	}
	return sent, nil
}

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
