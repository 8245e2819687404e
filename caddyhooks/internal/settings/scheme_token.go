package settings

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

func init() {
	registerScheme(&Scheme{
		Name: "token", Title: "a token of its own", arguments: "<secret>...", minArgs: 1, maxArgs: maxAuthSecrets,
		unmarshal: func(d *caddyfile.Dispenser, args []string, m *Mapping, _ SettingPlaces) error {
			m.AuthSecret = args
			return caddyconf.ReadBlock(d, "auth token")
		},
		Fields:          []string{"authSecret"},
		Compile:         compileToken,
		HeadersOnly:     true,
		SecretHeaders:   BearerScheme.SecretHeaders,
		WwwAuthenticate: "Bearer",
		Missing:         howToSendOwnTokens,
		Wrong:           "The token is wrong. " + howToSendOwnTokens,
	})
}

const whenToUseTokens = "a sender without a scheme of its own, such as Alertmanager or a cron job, sends a token for which 'auth token " +
	"<secret>' stands"

const howToSendOwnTokens = "Send the token of this hook as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."

// compileToken makes a verifier of the hook's own tokens, of which none may open the other hooks, too.
func compileToken(m *Mapping, secrets HookSecrets) (auth.Verifier, error) {
	tokens, err := secrets.list("authSecret", m.AuthSecret)
	if err != nil {
		return nil, err
	}
	for _, token := range tokens {
		if secrets.Tokens.Has(strings.TrimSpace(token)) {
			return nil, FieldErrorf("authSecret", "must not be the token that all other hooks take")
		}
	}
	return auth.NewTokens(tokens...), nil
}
