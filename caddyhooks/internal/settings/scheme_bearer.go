package settings

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

func init() {
	registerScheme(BearerScheme)
}

// BearerScheme is for callers that send the token of the settings. The built-in endpoints use it, and so does a mapping that
// names no scheme.
var BearerScheme = &Scheme{
	Name:  "bearer",
	Title: "the token",
	Compile: func(_ *Mapping, secrets HookSecrets) (auth.Verifier, error) {
		return secrets.Tokens, nil
	},
	HeadersOnly:     true,
	SecretHeaders:   func(*Mapping) []string { return []string{"X-Service-Token"} }, // Caddy hides Authorization itself
	WwwAuthenticate: "Bearer",
	Missing:         howToSendTokens,
	Wrong:           "The token is wrong. " + howToSendTokens,
}

const howToSendTokens = "Send the webhook token as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."
