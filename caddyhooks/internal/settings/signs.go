package settings

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// Signs reports whether a payload can be signed by an operator, with the secret of a hook.
func (s *Scheme) Signs() bool {
	m := Mapping{AuthMode: s.Name, HMACHeader: "X-Signature", HMACSecret: Secrets{exampleSecret}, AuthSecret: Secrets{exampleSecret}}
	verifier, err := s.Compile(&m, HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }})
	_, ok := verifier.(auth.Signer)
	return err == nil && ok
}

// exampleSecret is one that every scheme takes.
const exampleSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" //nolint:gosec // nobody has it
