package api

import "time"

// TokenList has the tokens that all hooks take, and then the secrets of hooks.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// Token is a token or the secret of a hook, without the secret.
type Token struct {
	ID         string     `json:"id"`             // tells it from others, and tells nothing about it
	Hook       string     `json:"hook,omitempty"` // whose secret it is; "" for a token that all hooks take
	Scheme     string     `json:"authMode"`
	Number     int        `json:"number"`               // among those of its hook; 1 is the oldest
	Pinned     bool       `json:"pinned,omitempty"`     // it is in the Caddyfile
	Since      *time.Time `json:"since"`                // when it was set; if it is pinned, when a Caddy first saw it
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"` // none if no request has used it yet
}
