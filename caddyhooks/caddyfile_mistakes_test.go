package caddyhooks_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// caddyfileBlocks are the blocks of a Caddyfile: the line that opens each, within which others, and its directives. A directive has the
// kind of its value, whether it is repeatable and takes a block, and after the colon a line that is right.
var caddyfileBlocks = []struct {
	owner      string // in errors
	within     []string
	directives string
}{
	{"hooks", []string{"hooks"}, `
		flag: enabled
		list: token a
		duration 1s: default_timeout 5m
		size 64: max_payload 1MB
		text: memory_preset general_chat
		text: history 1h
		text: keep_refused 1h
		own: wake_fold 30s
		text: path /hooks
		text: public_url https://hooks.example.com
		own block: health /healthz
		duration 1s: max_timeout 1h
		size 64: max_request 1MB
		least 1: max_memory 64MB
		own block repeatable: runner echo
		list repeatable: runner_for smart big
		none block: prices
		list repeatable: budget $20/24h
		own block: store memory
		number 1: workers 4
		number 1: queue_limit 10
		number 0: chat_limit 10
		number 1: max_attempts 3
		duration 1s: retention 1h
		size 1048576: history_limit 1GB
		duration 1s: queue_time 1h
		duration 1ms: drain_timeout 10s
		own block repeatable: channel ops log
		none block: callbacks
		text block repeatable: hook a`},
	{"a hook", []string{"hooks", "hook a"}, `
		text: action wake
		own block: auth bearer
		template: template {a}
		text: template_file review.tmpl
		template: chat_id {a}
		text: model smart
		text: memory_preset general_chat
		flag: sync
		text: response_schema "{}"
		text: response_schema_file verdict.json
		text: validation_tier smart
		text: callback_url https://example.com/
		list: deliver ops a
		list repeatable: ask ops a before run
		prose: progress working
		duration 1s: timeout 1m
		duration 1s: queue_time 1m
		own repeatable: metadata a b
		text: idempotency_header X-Id
		single: runner big
		text: untrusted wrap
		text: history 1h
		list: from 192.0.2.1
		text: body json
		own repeatable: only header X-Event
		own repeatable: skip header X-Event
		template: each $.alerts[*]
		own: fold 30s
		list: once {a}
		text: overlap skip
		list repeatable: rate 60/1h
		list repeatable: budget 2M tokens/24h
		own: respond 204
		number 1: workers 2
		size 64: max_payload 1MB`},
	{"callbacks", []string{"hooks", "callbacks"}, `
		list: secret whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz
		list: allow 10.0.0.0/8
		list: ports 443
		duration 1ms: timeout 10s`},
	{"health", []string{"hooks", "health /healthz"}, `
		list: despite runner_unreachable`},
	{"hooks_dashboard", []string{"hooks_dashboard"}, `
		word: user operator
		list: read_only ann
		list: instance a
		list: hosts a.example.com
		flag: hide_texts`},
	{"runner echo", []string{"hooks", "runner echo"}, `
		duration 0s: delay 1s
		prose: reply done
		number 0: invalid_first 1
		text: fail 500`},
	{"directives of Caddy go with a path, as in: runner http /turn; runner http with a URL",
		[]string{"hooks", "runner http https://127.0.0.1:9000/turn"}, `
		secret: token a
		duration 1s: idle_timeout 1m
		duration 1s: async 24h
		list repeatable: header X-Team a
		text: tls_ca ca.pem
		list: tls_client_auth runner_http_client.pem runner_http_client.key
		text: tls_server_name a.example.com
		flag: tls_insecure_skip_verify`},
	{"runner openai", []string{"hooks", "runner openai ollama"}, `
		text: url http://127.0.0.1:11434/v1
		secret: key a
		word: model a
		own repeatable: tier deep a
		word: system "be short"
		text: system_file system.txt
		own: history 20
		own repeatable: memory general_chat history 5
		own: session_header X-Session
		text: session_from X-Session
		text: model_header X-Model
		text: response_format off
		text: stream off
		single: body "{}"
		optional-duration 1s: background 1h
		duration 1s: idle_timeout 1m
		list repeatable: header X-Team a`},
	{"runner command", []string{"hooks", "runner command cat"}, `
		text: stdin json
		own: reply text
		word: model a
		own repeatable: tier deep a
		own repeatable: env A b
		list repeatable: pass_env A
		text: dir /tmp
		word: user nobody
		text: home /tmp
		list: fail_on 2
		list: busy_on 3
		size 1024: max_output 1MB`},
	{"runner acp", []string{"hooks", "runner acp cat"}, `
		own repeatable: env A b
		list repeatable: pass_env A
		text: dir /tmp
		word: user nobody
		text: home /tmp
		word: model a
		own repeatable: tier deep a
		number 1: processes 2
		duration 1s: idle 1m
		number 1: sessions 2
		list: permit read
		own repeatable: ask edit in ops a`},
	{"runner a2a", []string{"hooks", "runner a2a https://127.0.0.1:9000/"}, `
		secret: token a
		list repeatable: header X-Team a
		list: allow_to https://agents.example.com
		duration 1s: idle_timeout 1m
		optional-duration 1s: push 1h
		own: ask input-required in ops -1
		text: tls_ca ca.pem
		list: tls_client_auth a.pem a.key
		text: tls_server_name a.example.com
		flag: tls_insecure_skip_verify`},
	{"the log channel", []string{"hooks", "channel ops log"}, `
		own: allow_to a`},
	{"channel email", []string{"hooks", "channel ops email mail.example.com"}, `
		text: from a@example.com
		name: username a
		empty-secret: password a
		text: tls off
		text: subject a
		own: root_ca channel_email_root.pem
		text: helo a.example.com
		duration 1ms: timeout 10s
		own: allow_to a@example.com`},
	{"channel discord", []string{"hooks", "channel ops discord a"}, `
		text: url https://example.com/
		duration 1ms: timeout 10s
		own: allow_to 123456789012345678`},
	{"channel slack", []string{"hooks", "channel ops slack a"}, `
		text: url https://example.com/
		duration 1ms: timeout 10s
		own: allow_to C0123456789`},
	{"channel telegram", []string{"hooks", "channel ops telegram a"}, `
		text: url https://example.com/
		duration 1ms: timeout 10s
		own: allow_to 123`},
	{"channel matrix", []string{"hooks", "channel ops matrix https://example.com a"}, `
		duration 1ms: timeout 10s
		own: allow_to !a:example.com`},
	{"channel github", []string{"hooks", "channel ops github a"}, `
		own: app 12345 app.pem
		text: url https://example.com/
		duration 1ms: timeout 10s
		own: allow_to acme/widgets`},
	{"channel gitlab", []string{"hooks", "channel ops gitlab a"}, `
		text: url https://example.com/
		duration 1ms: timeout 10s
		own: allow_to acme/widgets`},
	{"channel linear", []string{"hooks", "channel ops linear a"}, `
		text: url https://example.com/
		duration 1ms: timeout 10s
		own: allow_to ENG-*`},
	{"channel mattermost", []string{"hooks", "channel ops mattermost https://example.com a"}, `
		duration 1ms: timeout 10s
		own: allow_to 4xp9fdt77pncbef59f4k1qe83o`},
	{"channel teams", []string{"hooks", "channel ops teams https://example.com/"}, `
		duration 1ms: timeout 10s
		own: allow_to a`},
	{"channel webhook", []string{"hooks", "channel ops webhook https://example.com/"}, `
		secret: token a
		list: secret whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz
		duration 1ms: timeout 10s
		own: allow_to a`},
	{"the memory store", []string{"hooks", "store memory"}, ""},
	{"the bolt store", []string{"hooks", "store bolt a.db"}, ""},
	{"the postgres store", []string{"hooks", "store postgres {env.HOOKS_TEST_DSN}"}, `
		text: schema a
		duration 3s: lease 10s
		text: migrate on
		text: listen off`},
	{"auth hmac", []string{"hooks", "hook a", "auth hmac X-Sig a"}, `
		list: secret a
		text: algorithm sha1
		template: signed {@body}
		text: key_encoding base64
		own: timestamp X-Time`},
	{"auth oidc", []string{"hooks", "hook a", "auth oidc https://issuer.example"}, `
		list: audience a
		own repeatable: claim repository octo/shop
		text: header X-Jwt
		text: keys https://issuer.example/keys`},
	{"auth stripe", []string{"hooks", "hook a", "auth stripe a"}, `
		duration 1s: tolerance 5m`},
	{"auth github", []string{"hooks", "hook a", "auth github a"}, ""},
	{"auth meta", []string{"hooks", "hook a", "auth meta a"}, `
		list: verify_token a`},
	{"auth token", []string{"hooks", "hook a", "auth token X-Token a"}, `
		text: header X-Token`},
}

// TestCaddyfileNamesMistakesOfEveryDirective tries the mistakes that every directive of every block knows. The words of a block are those
// that its error lists, so that no directive is forgotten here.
func TestCaddyfileNamesMistakesOfEveryDirective(t *testing.T) {
	setGoldenEnvironment(t)
	for _, b := range caddyfileBlocks {
		var words []string
		directives := strings.Split(strings.TrimSpace(b.directives), "\n")
		if b.directives == "" {
			words, directives = []string{"none"}, nil
		}
		for _, directive := range directives {
			_, line, _ := strings.Cut(directive, ": ")
			words = append(words, strings.Fields(line)[0])
		}
		takes := b.owner + " takes " + strings.Join(words, ", ")
		if last := len(words) - 1; last > 0 {
			takes = b.owner + " takes " + strings.Join(words[:last], ", ") + " and " + words[last]
		}
		t.Run(b.within[len(b.within)-1], func(t *testing.T) {
			for _, line := range []string{"nope", "nope a", "nope {\n}"} {
				wantMistake(t, b.within, line, "unrecognized subdirective 'nope'; "+takes, 0)
			}
			for _, directive := range directives {
				described, line, _ := strings.Cut(strings.TrimSpace(directive), ": ")
				kind, flags, _ := strings.Cut(described, " ")
				word, _, _ := strings.Cut(line, " ")
				for value, want := range mistakesOf(kind, flags, word) {
					wantMistake(t, b.within, word+" "+value, want, 0)
				}
				if !strings.Contains(flags, "repeatable") {
					wantMistake(t, b.within, line+"\n"+line, strings.TrimSuffix(word, "_file")+" is set already…", 1)
				}
				if !strings.Contains(flags, "block") {
					wantMistake(t, b.within, line+" {\n}", "unrecognized subdirective '{'; "+takes, 0)
				}
			}
		})
	}
}

// mistakesOf returns values that a directive refuses, with the errors. In these, … stands for anything.
func mistakesOf(kind, flags, word string) map[string]string {
	const unset = "; Caddy replaces {$NAME} by nothing if the environment variable NAME is not set"
	none := word + " takes an argument, and there is none" + unset
	single := map[string]string{"": none, "{$NOT_SET}": none, `""`: "the argument of " + word + " is empty" + unset}
	text := map[string]string{"a b": word + ` takes one argument; a text with spaces stands in "double quotes" or backquotes`}
	for value, want := range single {
		text[value] = want
	}
	limit, _, _ := strings.Cut(flags, " ")
	number, _ := strconv.Atoi(limit)
	refuse := func(what string, values ...string) map[string]string {
		for _, value := range values {
			text[value] = "'" + value + "' is not " + what
		}
		return text
	}
	all := func(want string, values ...string) map[string]string {
		refused := make(map[string]string)
		for _, value := range values {
			refused[value] = want
		}
		return refused
	}
	switch kind {
	case "text":
		return text
	case "single":
		return single
	case "word":
		text[`" "`] = "the argument of " + word + " is blank" + unset
		return text
	case "prose":
		delete(text, `""`)
		return text
	case "list":
		return map[string]string{"": none, "{$NOT_SET}": none, `""`: "an argument of " + word + " is empty" + unset}
	case "flag":
		return all(word+" takes no argument", "on")
	case "secret":
		return all(word+" takes one secret, which must not be blank"+unset, "", `""`, `" "`, "a b")
	case "empty-secret":
		return all(word+" takes one secret, which must not be empty"+unset, "", `""`, "a b")
	case "name":
		return all(word+" takes one name, which must not be empty"+unset, "", `""`, "a b")
	case "template":
		empty := word + " is empty: Caddy replaces {$…} by environment variables; write { $.issue.title } with a space"
		text[""], text["{$NOT_SET}"], text[`""`], text[`" "`] = empty, empty, empty, empty
		return text
	case "number":
		return refuse("a whole number of at least "+limit, "many", "all", "1.5", "-1", "99999999999999999999", strconv.Itoa(number-1))
	case "size":
		return refuse("a size from 1 byte to "+limit+"MB, such as 64KB", "much", "large", "-1", "0", strconv.Itoa(number+1)+"MB", "1025GB")
	case "least":
		return refuse("a size of at least "+limit+"MB, such as 256MB", "much", "-1", "0", strconv.Itoa(number<<10-1)+"KB")
	case "duration", "optional-duration":
		if kind != "duration" {
			delete(text, "")
			delete(text, "{$NOT_SET}")
		}
		least, _ := time.ParseDuration(limit)
		text["90"] = "'90' is not a duration of at least " + limit + "; write 90s"
		values := []string{"soon", "-1s", "-5s"}
		if least > 0 {
			values = append(values, "0", "0s", (least - least/2).String())
		}
		return refuse("a duration of at least "+limit+", such as 30s", values...)
	case "own":
		return all("…"+word+"…", "")
	}
	return nil
}

// wantMistake checks the error of lines in a block. It is at the given one of them.
func wantMistake(t *testing.T, within []string, lines, want string, at int) {
	input := ":8080 {\n" + strings.Join(within, " {\n") + " {\n" + lines + "\n" + strings.Repeat("}\n", len(within)+1)
	want += fmt.Sprintf(", at Caddyfile:%d", 2+len(within)+at)
	t.Run(lines, func(t *testing.T) { testGoldenError(t, input, want) })
}
