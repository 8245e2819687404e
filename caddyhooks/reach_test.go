package caddyhooks_test

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// A webhook that misses the hooks gets an empty 200, which its sender takes for delivered.
func TestWebhooksThatMissTheHooksAreWarnedAbout(t *testing.T) {
	const on = "enabled\n token " + hookstest.Token + "\n runner echo\n store memory\n"
	const (
		stripped = "off the path, so the hooks are at "
		before   = "comes before the hooks and answers requests to "
		other    = "stand in a block for other paths"
		empty    = "other paths of the site, /hooks/wake for example, are answered with an empty 200"
	)
	s := hookstest.NewServer(t)
	for directives, want := range map[string]string{
		"hooks {\n" + on + "}": empty,
		"hooks {\n" + on + "health /healthz\n}\nheader X-A b\nencode gzip":                                     empty,
		"hooks {\n" + on + "}\nrespond 404":                                                                    "",
		"hooks {\n" + on + "}\nrespond /version 1":                                                             "",
		"hooks /api/* {\n" + on + "}\nfile_server":                                                             "",
		"hooks {\n" + on + "}\nhooks_dashboard {\n user me\n}":                                                 "",
		"handle_path /api/hooks/* {\n hooks {\n" + on + "}\n}\nrespond 404":                                    "takes /api/hooks " + stripped + "/api/hooks/api/hooks alone: use handle",
		"handle_path /api/* {\n hooks {\n" + on + "}\n}\nrespond 404":                                          "takes /api " + stripped + "/api/api/hooks alone: use handle",
		"handle_path /prefix/* {\n hooks {\n" + on + "}\n}\nrespond 404":                                       "",
		"handle_path /API/* {\n hooks {\n path /in\n" + on + "}\n}\nrespond 404":                               "",
		"handle /webhooks/* {\n hooks {\n" + on + "}\n}\nrespond 404":                                          other,
		"handle /api/hooks {\n hooks {\n" + on + "}\n}\nrespond 404":                                           other,
		"handle /API/hooks/* {\n hooks {\n" + on + "}\n}\nrespond 404":                                         "",
		"handle /webhooks/* {\n rewrite * /api/hooks{uri}\n route {\n hooks {\n" + on + "}\n}\n}\nrespond 404": "",
		"@some path /x/* /api/*\nhandle @some {\n hooks {\n" + on + "}\n}\nrespond 404":                        "",
		"@not not path /x/*\nhandle @not {\n hooks {\n" + on + "}\n}\nrespond 404":                             "",
		"route {\n respond 404\n hooks {\n" + on + "}\n}":                                                      "respond or redir " + before + "/api/hooks: put hooks above it",
		"route {\n respond /api/* 404\n hooks {\n" + on + "}\n}":                                               "respond or redir " + before,
		"route {\n handle {\n respond 403\n}\n hooks {\n" + on + "}\n}":                                        "respond or redir " + before,
		"route {\n forward_auth 127.0.0.1:1 {\n uri /x\n}\n hooks {\n" + on + "}\n respond 404\n}":             "",
		"route {\n respond /version 1\n hooks {\n" + on + "}\n}":                                               "",
		"route {\n uri strip_prefix /v1\n respond /v1/* 404\n hooks {\n" + on + "}\n}":                         "",
		"route {\n @get method GET\n respond @get 404\n hooks {\n" + on + "}\n}":                               "",
		"route {\n hooks {\n" + on + "}\n respond 404\n}":                                                      "",
	} {
		readLog := logFile(t, s)
		if err := validate(t, "{\n"+s.Globals+"\n}\n"+s.Site+" {\n"+directives+"\n}"); err != nil {
			t.Fatalf("%s: %v", directives, err)
		}
		validated := readLog()
		s.Load(directives)
		loaded := strings.TrimPrefix(readLog(), validated)
		for when, log := range map[string]string{"validated": validated, "loaded": loaded} {
			warned := strings.Count(log, "webhooks may not reach the hooks")
			if want == "" && warned > 0 || want != "" && (warned != 1 || !strings.Contains(log, want)) {
				t.Errorf("%s, %s: want a warning %q in\n%s", directives, when, want, log)
			}
		}
	}
}

// A matcher of the block itself that lets no webhook through is refused, also by caddy adapt.
func TestMatcherThatLetsNoWebhookThroughIsRefused(t *testing.T) {
	t.Parallel()
	for directives, want := range map[string]string{
		"hooks /webhooks/*":                           "leave it out, and write 'path /webhooks' in the block to have them there, at Caddyfile:2",
		"hooks /api/hooks":                            "they are below /api/hooks; leave it out, or write /api/hooks/*, at Caddyfile:2",
		"@a path /x /y/*\nhooks @a":                   "lets no webhook through",
		"hooks /webhooks/* {\npath /in\n}":            "they are below /in",
		"hooks /API/hooks/*":                          "",
		"hooks /api*":                                 "",
		"hooks /webhooks/* {\npath /webhooks\n}":      "",
		"hooks /api/hooks/deploy":                     "",
		"hooks *":                                     "",
		"@a path */wake\nhooks @a":                    "",
		"hooks /{env.HOOKS_TEST_PREFIX}/*":            "",
		"@a path /x /api/*\nhooks @a":                 "",
		"@a not path /api/*\nhooks @a":                "",
		"@a {\npath /api/*\nmethod POST\n}\nhooks @a": "",
	} {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("http://localhost {\n"+directives+"\n}"), map[string]any{"filename": "Caddyfile"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", directives, err, want)
		}
	}
}
