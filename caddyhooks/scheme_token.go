package caddyhooks

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

func init() {
	registerScheme(&scheme{
		name: "token", title: "a token of its own", arguments: "<secret>...", minArgs: 1, maxArgs: maxAuthSecrets,
		unmarshal: func(d *caddyfile.Dispenser, args []string, m *Mapping, _ settingPlaces) error {
			m.AuthSecret = args
			return caddyconf.ReadBlock(d, "auth token")
		},
		fields:          []string{"authSecret"},
		compile:         compileToken,
		headersOnly:     true,
		secretHeaders:   bearerScheme.secretHeaders,
		wwwAuthenticate: "Bearer",
		missing:         "No token was sent. " + howToSendOwnTokens,
		wrong:           "The token is wrong. " + howToSendOwnTokens,
	})
}

const whenToUseTokens = "a sender without a scheme of its own, such as Alertmanager or a cron job, sends a token for which 'auth token <secret>' stands"

const howToSendOwnTokens = "Send the token of this hook as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."

// compileToken makes a verifier of the hook's own tokens, of which none may open the other hooks, too.
func compileToken(m *Mapping, secrets hookSecrets) (auth.Verifier, error) {
	tokens, err := secrets.list("authSecret", m.AuthSecret)
	if err != nil {
		return nil, err
	}
	for _, token := range tokens {
		if secrets.tokens.Has(strings.TrimSpace(token)) {
			return nil, fieldErrorf("authSecret", "must not be the token that all other hooks take")
		}
	}
	return auth.NewTokens(tokens...), nil
}
