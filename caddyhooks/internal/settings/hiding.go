package settings

import (
	"strings"
	"sync"
)

// HiddenSecret stands for a secret in what is kept of a request.
const HiddenSecret = "••••" //nolint:gosec // is none

// HideSecrets replaces the tokens and the secrets of hooks in a text of a caller.
func (a *Active) HideSecrets(text string) string {
	if a.secretTexts == nil {
		return text
	}
	return a.secretTexts.replacer().Replace(text)
}

// secretTexts are the secrets in force.
type secretTexts struct {
	all      []string
	replacer func() *strings.Replacer // made when it is first used
}

// fewestSecretBytes is the length from which on a secret is looked for. Shorter ones are in every text.
const fewestSecretBytes = 4

func newSecretTexts() *secretTexts {
	s := new(secretTexts)
	s.replacer = sync.OnceValue(func() *strings.Replacer {
		var pairs []string
		for _, secret := range s.all {
			pairs = append(pairs, secret, HiddenSecret)
		}
		return strings.NewReplacer(pairs...)
	})
	return s
}

// noting has the secrets noted that are resolved while settings are compiled.
func (s *secretTexts) noting(resolve func(string) (string, error)) func(string) (string, error) {
	return func(configured string) (string, error) {
		secret, err := resolve(configured)
		if err == nil && len(secret) >= fewestSecretBytes {
			s.all = append(s.all, secret)
		}
		return secret, err
	}
}
