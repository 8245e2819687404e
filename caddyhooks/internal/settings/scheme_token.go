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
		unmarshal:   unmarshalToken,
		Fields:      []string{"authSecret", "authHeader"},
		Compile:     compileToken,
		HeadersOnly: true,
		SecretHeaders: func(m *Mapping) []string {
			if m != nil && m.AuthHeader != "" {
				return []string{m.AuthHeader}
			}
			return BearerScheme.SecretHeaders(m)
		},
		variant: func(m *Mapping, s Scheme) Scheme {
			if m.AuthHeader != "" {
				s.WwwAuthenticate, s.Missing, s.Wrong = "Token", "Send the token of this hook in it.", "The token is wrong."
			}
			return s
		},
		WwwAuthenticate: "Bearer",
		Missing:         howToSendOwnTokens,
		Wrong:           "The token is wrong. " + howToSendOwnTokens,
	})
}

const whenToUseTokens = "a sender without a scheme of its own, such as Alertmanager or a cron job, sends a token for which 'auth token " +
	"<secret>' stands"

const howToSendOwnTokens = "Send the token of this hook as 'Authorization: Bearer <token>' or 'X-Service-Token: <token>'."

// unmarshalToken parses:
//
//	auth token <secret>... {
//		header <name>
//	}
func unmarshalToken(d *caddyfile.Dispenser, args []string, m *Mapping, places SettingPlaces) error {
	m.AuthSecret = args
	return caddyconf.ReadBlock(d, "auth token", places.Note(caddyconf.Set("header", &m.AuthHeader, caddyconf.Word), "authHeader"))
}

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
	if m.AuthHeader == "" {
		return auth.NewTokens(tokens...), nil
	}
	header, err := checkHeader("authHeader", m.AuthHeader)
	return auth.NewHeaderToken(header, tokens...), err
}
