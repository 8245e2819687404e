package caddyhooks

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"

func init() {
	registerScheme(&scheme{
		name: "none", title: "nothing but their address",
		compile: func(m *Mapping, _ hookSecrets) (auth.Verifier, error) {
			if len(m.From) == 0 {
				return nil, fieldErrorf("authMode", "must not be none without from: name the address ranges that callers come from, or take another, such as bearer, hmac or token")
			}
			return anyone{}, nil
		},
		headersOnly:     true,
		secretHeaders:   func(*Mapping) []string { return nil },
		wwwAuthenticate: "None",
		missing:         "This hook takes no request.",
		wrong:           "This hook takes no request.",
	})
}

// anyone accepts every request: that it comes from an address of the hook is checked before.
type anyone struct{}

func (anyone) Verify(*auth.Request) auth.Verdict { return auth.Accept() }
