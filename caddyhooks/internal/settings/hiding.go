package settings

import (
	"strings"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// HideSecrets replaces the tokens and the secrets of hooks in a text of a caller.
func (a *Active) HideSecrets(sent string) string {
	if a.secretTexts == nil {
		return sent
	}
	return a.secretTexts.replacer().Replace(sent)
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
	s.replacer = sync.OnceValue(func() *strings.Replacer { return newMasks(s.all) })
	return s
}

// newMasks puts masks in the places of secrets.
func newMasks(secrets []string) *strings.Replacer {
	var pairs []string
	for _, secret := range secrets {
		pairs = append(pairs, secret, text.Mask)
	}
	return strings.NewReplacer(pairs...)
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
