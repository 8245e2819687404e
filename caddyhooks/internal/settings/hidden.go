package settings

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// HidesHeader reports whether a header carries a secret, which neither templates nor conditions get to see.
func (h *Hook) HidesHeader(name string) bool { return h.Hidden.Has(name) }

// HiddenHeaders are those that carry a secret.
func (h *Hook) HiddenHeaders() auth.HeaderNames {
	hidden := make(auth.HeaderNames)
	hidden.Add("Authorization", "Proxy-Authorization", "Cookie")
	hidden.Add(BearerScheme.SecretHeaders(nil)...)
	if scheme := FindScheme(h.AuthMode); scheme != nil && scheme.SecretHeaders != nil {
		hidden.Add(scheme.SecretHeaders(&h.Mapping)...)
	}
	return hidden
}
