package settings

import (
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	hook := func(m Mapping) Settings {
		m.Name = "a"
		return Settings{Mappings: []Mapping{m}}
	}
	agent := func(f AgentFields) Settings { return hook(Mapping{Action: engine.Agent, AgentFields: f}) }
	const long = "a-token-that-nobody-guesses"
	for _, c := range []struct {
		name     string
		settings Settings
		tokens   []string
		want     []string
	}{
		{name: "nothing is set"},
		{name: "on, with a token", settings: Settings{Enabled: new(true)}, tokens: []string{long}},
		{name: "off, without a token", settings: Settings{Enabled: new(false)}},
		{
			name: "on, without a token", settings: Settings{Enabled: new(true)},
			want: []string{"enabled: there is no token, so webhooks stay off and answer 404: write 'token <secret>' in the Caddyfile, or set the token with the admin API"},
		},
		{
			name: "one token is short", settings: Settings{Enabled: new(true)}, tokens: []string{long, "fifteen-letters"},
			want: []string{"token: token 2 of 2 has fewer than 16 characters and can be guessed: use a long random one, for example from: openssl rand -hex 32"},
		},
		{name: "a token of sixteen letters", tokens: []string{"sixteen-letters-"}},
		{
			name: "a token of letters with many bytes", tokens: []string{"ööööööööö"},
			want: []string{"token: the token has fewer than 16 characters and can be guessed: use a long random one, for example from: openssl rand -hex 32"},
		},

		{
			name: "a token that is the name of a variable to a shell", settings: Settings{Token: Secrets{long, "$HOOKS_TOKEN_OF_MINE"}}, tokens: []string{long},
			want: []string{"token: token 2 of 2 begins with $ and is taken as it is written: write {env.NAME} for an environment variable"},
		},
		{name: "a token with signs of its own", settings: Settings{Token: Secrets{"$a.b-$c", "{env.TOKEN}", "$1abc", "$", "${A", "$A}", "a$B"}}, tokens: []string{long}},

		{
			name: "a wake hook with all it uses",
			settings: hook(Mapping{Action: engine.Wake, MessageTemplate: "{a}", HistorySeconds: new(0), IdempotencyHeader: "X-Id",
				AgentFields: AgentFields{ChatID: "{b}", QueueTimeSeconds: 1, Metadata: []byte(`{}`)}}),
		},
		{
			name: "a wake hook with a model", settings: hook(Mapping{Action: engine.Wake, AgentFields: AgentFields{Model: "smart"}}),
			want: []string{`hook a: model is for agent hooks alone, and this is a wake hook: set action to agent, or leave it out`},
		},
		{
			name: "no action, and everything else",
			settings: hook(Mapping{Untrusted: "pass", AgentFields: AgentFields{
				ChatID: "c", Model: "smart", MemoryPreset: "disabled", SyncResponse: true, ResponseJSONSchema: []byte(`{"type":"object"}`),
				ResponseValidationModelTier: "smart", CallbackURL: "https://example.com", Deliver: true, Channel: "c", To: "t",
				TimeoutSeconds: 1, QueueTimeSeconds: 1, Metadata: []byte(`{}`),
			}}),
			want: []string{"hook a: model, memoryPreset (memory_preset in a Caddyfile), syncResponse (sync in a Caddyfile), responseJsonSchema (response_schema in a Caddyfile), " +
				"responseValidationModelTier (validation_tier in a Caddyfile), callbackUrl (callback_url in a Caddyfile), deliver, " +
				"channel (deliver in a Caddyfile), to (deliver in a Caddyfile), " +
				`timeoutSeconds (timeout in a Caddyfile) and untrusted are for agent hooks alone, and this is a wake hook, because it sets no action: set action to agent, or leave them out`},
		},

		{name: "deliver with all it needs", settings: agent(AgentFields{Deliver: true, Channel: "c", To: "t"})},
		{
			name: "channel without deliver", settings: agent(AgentFields{Channel: "c", To: "t"}),
			want: []string{"hook a: channel and to are ignored without deliver: set deliver to true, or leave them out"},
		},
		{
			name: "to without deliver", settings: agent(AgentFields{To: "t"}),
			want: []string{"hook a: to is ignored without deliver: set deliver to true, or leave it out"},
		},
		{
			name: "message for messageTemplate", settings: hook(Mapping{Message: "x"}),
			want: []string{"hook a: message is ignored: the text for the agent is messageTemplate"},
		},

		{
			name: "double braces", settings: hook(Mapping{MessageTemplate: "{a} {{ issue.title }}", AgentFields: AgentFields{ChatID: "{{range .Alerts}}"}}),
			want: []string{
				"hook a: messageTemplate (template in a Caddyfile) has {{ issue.title }}, which is not replaced: write {issue.title}",
				"hook a: chatId (chat_id in a Caddyfile) has {{range .Alerts}}, which is not replaced: write a path in one pair of braces, such as {issue.title}",
			},
		},

		{
			name: "pipes and sources", settings: hook(Mapping{MessageTemplate: "{a | json} {@hook} {a || b}", AgentFields: AgentFields{ChatID: "{@header.X | default 'c'}"}}),
		},
		{
			name: "pipes and sources that are none", settings: hook(Mapping{MessageTemplate: "{a | upper}", AgentFields: AgentFields{ChatID: "{@body.x}"}}),
			want: []string{
				"hook a: messageTemplate (template in a Caddyfile): {a | upper} is not replaced: there is no pipe upper; there are truncate, default, join, json and indent",
				"hook a: chatId (chat_id in a Caddyfile): {@body.x} is not replaced: @body has no parts; a key of that name is written as $['@body']",
			},
		},

		{
			name: "what tells events, senders and spenders apart",
			settings: hook(Mapping{Action: engine.Agent, AuthMode: "github", Once: "{{data.id}} {b}", RateByLimit: "2/1h", RateBy: "{a | upper} {@header.Authorization}",
				Budgets: []Budget{{Limit: "$5/24h", By: "{a} {source"}}, Ask: []Ask{{Before: "run", First: "{@header.Cookie}"}}}),
			want: []string{
				"hook a: once has {{data.id}}, which is not replaced: write {data.id}",
				"hook a: rateBy (rate in a Caddyfile): {a | upper} is not replaced: there is no pipe upper; there are truncate, default, join, json and indent",
				"hook a: rateBy (rate in a Caddyfile): {@header.Authorization} is always missing: the header may carry a secret",
				"hook a: budgets (budget in a Caddyfile) has a brace without its end: {source is not replaced; write {source}",
				"hook a: ask: {@header.Cookie} is always missing: the header may carry a secret",
			},
		},

		{
			name: "a token with the word that stands before it", settings: hook(Mapping{AuthMode: "token", AuthSecret: Secrets{long, "bearer " + long}}),
			want: []string{"hook a: authSecret (auth in a Caddyfile) 2 of 2 begins with the word Bearer: leave it out, callers send it before the token"},
		},

		{
			name: "conditions, each and sources",
			settings: hook(Mapping{AuthMode: "github", Each: "$.alerts[*]", Only: []string{"header X-GitHub-Event issues push", "header X ~ ^a", "query token"},
				MessageTemplate: "{@root.a} {@header.X-GitHub-Event}"}),
		},
		{
			name: "conditions on headers with secrets",
			settings: hook(Mapping{AuthMode: "github", Only: []string{"header X-Hub-Signature-256", "query a"}, Skip: []string{`not header authorization "Bearer abc"`},
				MessageTemplate: "{@header.Cookie} {@root.a}"}),
			want: []string{
				"hook a: messageTemplate (template in a Caddyfile): {@header.Cookie} is always missing: the header may carry a secret",
				"hook a: messageTemplate (template in a Caddyfile): @root is for hooks with each: without it, {a} is a key of the body, and {@root.a} is missing",
				"hook a: only: the header X-Hub-Signature-256 may carry a secret, so it is always missing in conditions: auth checks callers",
				"hook a: skip: the header Authorization may carry a secret, so it is always missing in conditions: auth checks callers",
			},
		},
		{
			name:     "conditions with values that are none",
			settings: hook(Mapping{Only: []string{"header X-Event issues, push", "header X-Event ~issues", "query a == b", "header X ,"}}),
			want: []string{
				"hook a: only header X-Event: a value ends with a comma: values stand with spaces between them",
				"hook a: only header X-Event: a value begins with ~: before a regular expression stands ~ and a space",
				"hook a: only query a: the values stand after the name without ==",
			},
		},
		{
			name: "each of one place", settings: hook(Mapping{Each: "$.alerts"}),
			want: []string{"hook a: each $.alerts leads to one place, so a request is one run: write $.alerts[*] for a run of each item"},
		},
		{
			name: "a timestamp that is not signed", settings: hook(Mapping{AuthMode: "hmac", TimestampHeader: "x-time"}),
			want: []string{"hook a: the timestamp is not signed, so whoever repeats a request can change it: if the sender signs it, put it in signed (auth in a Caddyfile), " +
				"as in {@time}.{@body}"},
		},

		{
			name: "a schema with words of its own",
			settings: agent(AgentFields{ResponseJSONSchema: []byte(`{"type":"object","properties":{"item":{"enum":["typ"],"default":{"min":1}},"types":true},
				"required":["item"],"items":true,"x-note":"require"}`)}),
		},
		{
			name: "an example of an answer", settings: agent(AgentFields{ResponseJSONSchema: []byte(`{"fine":true}`)}),
			want: []string{`hook a: responseJsonSchema (response_schema in a Caddyfile) has "fine", an unknown keyword that is ignored`},
		},
		{
			name: "a schema with misspelt keywords",
			settings: agent(AgentFields{ResponseJSONSchema: []byte(`{"type":"object","require":["a"],
				"properties":{"a":{"typ":"string"},"b":{"type":"array","items":{"typ":"string","enums":[]}}}}`)}),
			want: []string{
				`hook a: responseJsonSchema (response_schema in a Caddyfile) has "enums", an unknown keyword that is ignored: did you mean enum?`,
				`hook a: responseJsonSchema (response_schema in a Caddyfile) has "require", an unknown keyword that is ignored: did you mean required?`,
				`hook a: responseJsonSchema (response_schema in a Caddyfile) has "typ", an unknown keyword that is ignored: did you mean type?`,
			},
		},

		{name: "the prefix of SHA-256", settings: hook(Mapping{AuthMode: "hmac", HMACPrefix: "sha256="})},
		{name: "a prefix of no algorithm", settings: hook(Mapping{AuthMode: "hmac", HMACPrefix: "v0="})},
		{
			name: "a prefix without hmac", settings: hook(Mapping{HMACPrefix: "sha1="}),
			want: []string{`hook a: hmacPrefix is ignored without "authMode": "hmac", so callers send the token: set authMode, or leave it out`},
		},
		{
			name: "a header and a secret with bearer", settings: hook(Mapping{AuthMode: "bearer", HMACHeader: "X-Sig", HMACSecret: Secrets{"$SECRET"}}),
			want: []string{`hook a: hmacHeader and hmacSecret are ignored without "authMode": "hmac", so callers send the token: set authMode, or leave them out`},
		},
		{
			name: "a secret that is the name of a variable to a shell", settings: hook(Mapping{AuthMode: "hmac", HMACSecret: Secrets{"${SECRET}"}}),
			want: []string{"hook a: hmacSecret (auth in a Caddyfile) begins with $ and is taken as it is written: write {env.NAME} for an environment variable"},
		},
		{
			name: "secret and prefix are swapped", settings: hook(Mapping{AuthMode: "hmac", HMACSecret: Secrets{"sha256="}, HMACPrefix: "a-secret"}),
			want: []string{"hook a: hmacSecret (auth in a Caddyfile) reads like a prefix, such as sha256=: secret and prefix may be swapped"},
		},
		{
			name: "a timestamp that is not signed", settings: hook(Mapping{AuthMode: "hmac", HMACHeader: "X-Sig", HMACSecret: Secrets{"a-secret"}, TimestampHeader: "X-Time"}),
			want: []string{"hook a: the timestamp is not signed, so whoever repeats a request can change it: if the sender signs it, put it in signed (auth in a Caddyfile), as in {@time}.{@body}"},
		},
		{
			name: "the prefix of SHA-1", settings: hook(Mapping{AuthMode: "hmac", HMACPrefix: "sha1="}),
			want: []string{"hook a: hmacPrefix (auth in a Caddyfile) is sha1=, which is that of another algorithm: signatures here are HMAC-SHA256, so use the header of those, " +
				"such as X-Hub-Signature-256 with the prefix sha256="},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inForce := defaultSettings(new(Rules)).Merge(c.settings)
			if got := api.ShowAll(warningsAbout(&inForce, c.tokens), Warning.String); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestPrefixesOfOtherAlgorithms(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]bool{
		"sha1=": true, "SHA1=": true, "sha-1=": true, "sha512=": true, "sha384=": true, "sha224=": true, "md5=": true, "hmac-sha1=": true, "hmac_sha512 ": true,
		"sha3-256=": true, "sha512": true,
		"sha256=": false, "sha-256=": false, "hmac-sha256=": false, "v1=": false, "": false, "Signature ": false, "sha1=a-secret-that-was-put-here": false,
	} {
		if got := otherAlgorithm.MatchString(prefix); got != want {
			t.Errorf("%q: got %t", prefix, got)
		}
	}
}
