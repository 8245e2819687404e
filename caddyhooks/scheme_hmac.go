package caddyhooks

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

func init() {
	registerScheme(&scheme{
		name:          "hmac",
		arguments:     "<header> <secret> [<prefix>]",
		minArgs:       2,
		maxArgs:       3,
		unmarshal:     unmarshalHMAC,
		fields:        []string{"hmacHeader", "hmacSecret"},
		compile:       compileHMAC,
		secretHeaders: func(m *Mapping) []string { return []string{m.HMACHeader} },
		challenge:     "HMAC-SHA256",
		refusal:       "The signature is missing, or is not that of this body.",
	})
}

func unmarshalHMAC(d *caddyfile.Dispenser, args []string, m *Mapping) error {
	m.HMACHeader, m.HMACSecret = args[0], args[1]
	if m.HMACSecret == "" {
		return d.Err("the secret of auth hmac must not be empty")
	}
	if len(args) > 2 {
		m.HMACPrefix = args[2]
	}
	return nil
}

func compileHMAC(m *Mapping, secrets hookSecrets) (auth.Verifier, error) {
	secret, err := secrets.resolve(m.HMACSecret)
	if err != nil {
		return nil, fieldErrorf("hmacSecret", "%v", err)
	}
	if m.HMACHeader == "" {
		return nil, fieldErrorf("hmacHeader", "must name the header that carries the signature")
	}
	if http.CanonicalHeaderKey(m.HMACHeader) == "Host" {
		return nil, fieldErrorf("hmacHeader", "must not be Host, which is no header to Caddy")
	}
	verifier, err := auth.NewHMAC(m.HMACHeader, secret, m.HMACPrefix)
	if err != nil {
		return nil, fieldErrorf("hmacHeader", "is refused: %v", err)
	}
	return verifier, nil
}
