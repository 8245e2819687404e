package caddyhooks

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"

func init() {
	registerScheme(bearerScheme)
}

// bearerScheme is for callers that send the token of the settings. The built-in endpoints use it, and so does a mapping that
// names no scheme.
var bearerScheme = &scheme{
	name:  "bearer",
	title: "the token",
	compile: func(_ *Mapping, secrets hookSecrets) (auth.Verifier, error) {
		return secrets.tokens, nil
	},
	headersOnly:     true,
	secretHeaders:   func(*Mapping) []string { return []string{"X-Service-Token"} }, // Caddy hides Authorization itself
	wwwAuthenticate: "Bearer",
	missing:         "No token was sent. " + howToSendTokens,
	wrong:           "The token is wrong. " + howToSendTokens,
}

const howToSendTokens = "Send the webhook token as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."
