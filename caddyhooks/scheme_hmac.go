package caddyhooks

import (
	"net/http"
	"regexp"

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
		fields:        []string{"hmacHeader", "hmacSecret", "hmacPrefix"},
		compile:       compileHMAC,
		secretHeaders: func(m *Mapping) []string { return []string{m.HMACHeader} },
		challenge:     "HMAC-SHA256",
		missing:       "No signature was sent. This hook takes a signature of the body, in a header of its own, and no token.",
		wrong:         "The signature is wrong.",
	})
}

func unmarshalHMAC(d *caddyfile.Dispenser, args []string, m *Mapping) error {
	m.HMACHeader, m.HMACSecret = args[0], args[1]
	if likePrefix.MatchString(m.HMACSecret) && (len(args) == 2 || !likePrefix.MatchString(args[2])) {
		return d.Err("the secret of auth hmac reads like a prefix, such as sha256=: the secret before it is missing, " +
			"because an environment variable {$NAME} is not set, or secret and prefix are in the wrong order")
	}
	if len(args) > 2 {
		m.HMACPrefix = args[2]
	}
	return nil
}

// likePrefix matches what is a prefix of signatures rather than a secret. Secrets in base64 end with = too.
var likePrefix = regexp.MustCompile(`(?i)^(v[0-9]{1,2}|[st]|sig|sign|hmac|signature|(hmac[_-]?)?(sha[_-]?[0-9]{1,3}([_-][0-9]{3})?|md5|blake[0-9a-z]{1,3}))[=:]$`)

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
