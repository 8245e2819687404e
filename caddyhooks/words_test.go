package caddyhooks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func TestEveryFieldHasItsNameInACaddyfile(t *testing.T) {
	t.Parallel()
	jsonOnly := []string{"message", "pinned", "warnings"}
	for _, field := range settings.MappingFields {
		name := settings.CaddyfileNames()[field]
		if slices.Contains(jsonOnly, field) {
			if name != "" {
				t.Errorf("%s is %s in a Caddyfile, and is said to be there in JSON alone", field, name)
			}
		} else if !regexp.MustCompile(`^[a-z_]+$`).MatchString(name) {
			t.Errorf("%s has the name %q in a Caddyfile", field, name)
		}
	}
	for field, want := range map[string]string{
		"name": "hook", "syncResponse": "sync", "responseJsonSchema": "response_schema", "messageTemplate": "template", "hmacSecret": "auth",
		"channel": "deliver", "timeoutSeconds": "timeout", "defaultTimeoutSeconds": "default_timeout", "maxPayloadSize": "max_payload", "token": "token",
	} {
		if got := settings.CaddyfileNames()[field]; got != want {
			t.Errorf("%s is %s in a Caddyfile, want %s", field, got, want)
		}
	}
}

// jsonNames matches the names in JSON that a Caddyfile does not know.
func jsonNames() *regexp.Regexp {
	var names []string
	for field, directive := range settings.CaddyfileNames() {
		if field != directive && strings.ToLower(field) != field {
			names = append(names, field)
		}
	}
	return regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
}

func TestErrorsOfACaddyfileUseItsWords(t *testing.T) {
	t.Parallel()
	const schema = "response_schema `{\"type\": \"object\"}`\n"
	// A line for every directive of a hook that is refused when the whole block is known.
	lines := map[string]string{
		"action":             "action sing",
		"auth":               "auth hmac Host a-secret",
		"template":           "template `{ $.[ }`",
		"chat_id":            "chat_id `{ $.[ }`",
		"model":              "model huge",
		"memory_preset":      "memory_preset all",
		"response_schema":    schema,
		"validation_tier":    "sync\n" + schema + "validation_tier huge",
		"callback_url":       "callback_url ftp://example.com",
		"deliver":            "deliver nowhere room",
		"ask":                "ask nowhere a before run",
		"progress":           "progress " + strings.Repeat("x", 201),
		"timeout":            "timeout 2h",
		"queue_time":         "queue_time 48h",
		"idempotency_header": "idempotency_header Host",
		"runner":             "runner nobody",
		"untrusted":          "untrusted maybe",
		"history":            "history 9999h",
		"fold":               "action agent\nsync\nfold 30s",
		"once":               "once {a} 32d",
		"overlap":            "overlap maybe",
		"rate":               "rate 60",
		"budget":             "budget 20/24h",
		"from":               "from somewhere",
		"body":               "body xml",
		"only":               "only opened",
		"skip":               "skip header",
		"each":               "each alerts",
		"respond":            "respond 302",
	}
	neverRefused := []string{"sync", "metadata", "template_file", "response_schema_file", "workers", // the files are as the texts
		"max_payload"} // but with max_memory, see below
	forbidden, withBoth := jsonNames(), regexp.MustCompile(`\w+ \(\w+ in a Caddyfile\)`)
	check := func(directive, block string) {
		t.Helper()
		err := new(Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("hooks {\n" + block + "\n}"))
		if err == nil {
			t.Errorf("%s is taken", block)
		} else if !strings.HasPrefix(err.Error(), directive+" ") || forbidden.MatchString(withBoth.ReplaceAllString(err.Error(), "")) {
			t.Errorf("%s: got %v", block, err)
		}
	}
	for _, directive := range new(settings.HookBlock).Directives() {
		line, ok := lines[directive.Word]
		if ok == slices.Contains(neverRefused, directive.Word) {
			t.Errorf("this test must try a %s that is refused", directive.Word)
		}
		if ok {
			check(directive.Word, "hook a {\n"+line+"\n}")
		}
	}
	check("max_payload", "max_memory 8MB\nhook a {\nmax_payload 2MB\n}")
	check("hook", "hook .a")
	check("duplicate hook", "hook a\nhook a")
	check("prices", "prices {\ngpt-5* 1 10\n*-mini 0.25 2\n}")
	check("prices", "prices {\ngpt-5 1 lots\n}")
	for _, line := range []string{"once a", "once {a} 0s", "once {a} 1h x", "once `{ $.[ }`"} {
		check("once", "hook a {\n"+line+"\n}")
	}
	for _, line := range []string{"rate 3/1h by", "rate 3/1h by a", "rate 3/1h for {a}", "rate 3/1h by {a}\nrate 3/1h by {b}", "rate 3/1h\nrate 4/1h"} {
		check("rate", "hook a {\n"+line+"\n}")
	}
	check("overlap", "hook a {\nfold 5s\noverlap replace\n}")
	check("budget", "budget $0/24h")
	check("budget", "budget $5/24h by {a}")
	check("default_timeout", "default_timeout 2h")
	check("memory_preset", "memory_preset all")
	check("history", "history 9999h")
	check("wake_fold", "wake_fold 2h")
	check("wake_fold", "queue_time 1m\nwake_fold 1m")
	check("wake_fold", "wake_fold 5s 1001")
}

func TestErrorsOfJSONUseItsWords(t *testing.T) {
	t.Parallel()
	r := &settings.Rules{MaxTimeout: time.Hour, QueueTime: 24 * time.Hour}
	for _, c := range []struct {
		fields settings.AgentFields
		want   string
	}{
		{settings.AgentFields{ResponseJSONSchema: []byte(`{"type":"object"}`)}, "responseJsonSchema needs syncResponse (sync in a Caddyfile) to be true"},
		{settings.AgentFields{TimeoutSeconds: 7200}, "timeoutSeconds must be from 1 to 3600 seconds (1h)"},
		{settings.AgentFields{QueueTimeSeconds: 200_000}, "queueTimeSeconds must be from 1 to 86400 seconds (24h)"},
		{settings.AgentFields{Deliver: true}, "channel must name a channel when deliver is true"},
	} {
		if err := c.fields.Check(r); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// A configuration in JSON may have come from a Caddyfile.
func TestErrorsOfALoadedHookHaveBothNames(t *testing.T) {
	t.Parallel()
	err := settings.FieldErrorf("hmacSecret", "%v", errors.New("is empty"))
	if got := fmt.Sprint(settings.WithBothNames(err, true)); got != "hmacSecret (auth in a Caddyfile) is empty" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(settings.WithBothNames(err, false)); got != "hmacSecret is empty" {
		t.Errorf("a live hook: got %s", got)
	}
	if got := fmt.Sprint(settings.WithBothNames(settings.FieldErrorf("model", "is bad"), true)); got != "model is bad" {
		t.Errorf("the same name in both: got %s", got)
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 10 * time.Second: "10s", time.Hour + time.Second: "1h0m1s", 100 * time.Second: "1m40s",
		0: "0s",
	} {
		if got := text.ShortDuration(d); got != want {
			t.Errorf("%d ns is %s, want %s", d, got, want)
		}
	}
}
