package settings

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

func init() {
	registerScheme(&Scheme{
		Name: "none", Title: "nothing but their address",
		Compile: func(m *Mapping, _ HookSecrets) (auth.Verifier, error) {
			if len(m.From) == 0 {
				return nil, FieldErrorf("authMode", "must not be none without from: name the address ranges that callers come from, or take "+
					"another, such as bearer, hmac or token")
			}
			return anyone{}, nil
		},
		HeadersOnly:     true,
		SecretHeaders:   func(*Mapping) []string { return nil },
		WwwAuthenticate: "None",
		Missing:         "This hook takes no request.",
		Wrong:           "This hook takes no request.",
	})
}

// anyone accepts every request: that it comes from an address of the hook is checked before.
type anyone struct{}

func (anyone) Verify(*auth.Request) auth.Verdict { return auth.Accept() }
