package caddyhooks_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestSetChangesSettings(t *testing.T) {
	t.Setenv("HOOKS_TOKEN", "")
	s := hookstest.StartSite(t, "hooks {\nrunner echo\nmemory_preset coding_fast\n}")
	var all strings.Builder
	for _, args := range [][]string{
		{"enabled", "on"},
		{"max_payload", "256KB"},
		{"maxPayloadSize", "256KB"},
		{"default_timeout", "90s"},
		{"history", "off"},
		{"wake_fold", "30s", "50"},
		{"wake_fold", "--default"},
		{"token", "--secret-file", writeInput(t, "token", "geheimes-token\n")},
		{"enabled", "off"},
		{"max_payload", "--default"},
		{"memory_preset", "coding_fast"},
	} {
		out, errs, err := command(t, append([]string{"set", "--address", s.Admin}, args...)...)
		wantExit(t, 0, errs, err)
		if args[0] == "token" {
			args = args[:1]
		}
		fmt.Fprintf(&all, "$ caddy hooks set %s\n%s%s", strings.Join(args, " "), out, errs)
	}
	wantGolden(t, "set", all.String(), " --address "+s.Admin, "")
	settings := s.AdminRequest("GET", "/hooks/settings", "")
	settings.WantMembers(t, `{"enabled":false,"token":"••••","defaultTimeoutSeconds":90,"maxPayloadSize":65536,"historySeconds":0}`)
	if strings.Contains(all.String(), "geheim") {
		t.Errorf("the token is shown: %s", all.String())
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"memory_preset", "coding_deep"}, 1, "memory_preset is set by Caddy's configuration, and can only be changed there"},
		{[]string{"memoryPreset", "coding_deep"}, 1, "memoryPreset is set by Caddy's configuration, and can only be changed there"},
		{[]string{"retention", "24h"}, 2, "retention is set in the Caddyfile alone: change it there, and reload Caddy"},
		{[]string{"default_timeout", "999h"}, 1, "default_timeout must be from 1 to 3600 seconds"},
		{[]string{"history", "999999h"}, 1, "history must not be longer than retention"},
		{[]string{"token", "--secret-file", writeInput(t, "token", "another")}, 2, "The old token will be refused at once. But there is no terminal to ask at: say --yes"},
	} {
		_, errs, err := command(t, append([]string{"set", "--address", s.Admin}, c.args...)...)
		wantExit(t, c.code, errs, err, c.want)
	}
	out, errs, err := command(t, "set", "--address", s.Admin, "enabled", "on", "--json")
	wantExit(t, 0, errs, err)
	if !json.Valid([]byte(out)) || !strings.Contains(out, `"enabled": true`) {
		t.Errorf("got %s", out)
	}
}

func TestSetRefuses(t *testing.T) {
	t.Setenv("HOOKS_TOKEN", "")
	file := writeInput(t, "token", "geheimes-token")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "the setting is missing; the settings are enabled, token, default_timeout"},
		{[]string{"max_paylod", "1"}, 2, `there is no setting "max_paylod"; did you mean max_payload?`},
		{[]string{"mappings", "[]"}, 2, "caddy hooks hook put NAME -f FILE"},
		{[]string{"enabled"}, 2, "enabled is on or off"},
		{[]string{"enabled", "maybe"}, 2, "enabled is on or off"},
		{[]string{"max_payload"}, 2, "max_payload takes an argument, and there is none\n"},
		{[]string{"max_payload", "much"}, 2, "'much' is not a size from 1 byte to 64MB, such as 64KB\n"},
		{[]string{"max_payload", "1KB", "2KB"}, 2, "max_payload takes one argument"},
		{[]string{"default_timeout", "90"}, 2, "'90' is not a duration of at least 1s; write 90s"},
		{[]string{"max_payload", "1KB", "--default"}, 2, "--default goes without a value"},
		{[]string{"max_payload", "1KB", "--secret-file", file}, 2, "--secret-file is for the token"},
		{[]string{"token", "geheim"}, 2, "can read the arguments of a command: put the token in a file and name that by --secret-file, or set HOOKS_TOKEN"},
		{[]string{"token", "--secret", "geheim"}, 2, "can read the arguments of a command"},
		{[]string{"enabled", "on"}, 1, "is Caddy running?"},
	} {
		_, errs, err := command(t, append([]string{"set", "--address", "127.0.0.1:1"}, c.args...)...)
		wantExit(t, c.code, errs, err, c.want)
		if strings.Contains(errs, "geheim") {
			t.Errorf("%q shows a secret: %s", c.args, errs)
		}
	}
}

func TestTokenIsReplacedWhileCallersUseTheOldOne(t *testing.T) {
	t.Setenv("HOOKS_TOKEN", "")
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, "hooks {\nrunner http "+rn.URL+"\n}")
	accepted := func(token string) bool {
		return s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+token).Status == http.StatusOK
	}
	out, errs, err := command(t, "token", "generate", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	first := strings.TrimSpace(out)
	wantGolden(t, "token-generate", out+"--- stderr\n"+errs, first, strings.Repeat("0123456789abcdef", 4), " --address "+s.Admin, "")
	if len(first) != 64 || strings.Contains(errs, first) || accepted(first) {
		t.Errorf("got %q and %s", first, errs)
	}
	_, errs, err = command(t, "set", "enabled", "on", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	_, errs, err = command(t, "token", "retire", "--yes", "--address", s.Admin)
	wantExit(t, 1, errs, err, "there is only one token, and without it webhooks are off")

	out, errs, err = command(t, "token", "generate", "--keep-old", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	second := strings.TrimSpace(out)
	wantGolden(t, "token-generate-keep-old", out+"--- stderr\n"+errs, second, strings.Repeat("0123456789abcdef", 4), " --address "+s.Admin, "")
	if !accepted(first) || !accepted(second) {
		t.Error("one of two tokens is refused")
	}
	_, errs, err = command(t, "token", "retire", "--number", "3", "--address", s.Admin)
	wantExit(t, 2, errs, err, "--number must be from 1, the oldest, to 2, the newest")
	_, errs, err = command(t, "token", "retire", "--address", s.Admin)
	wantExit(t, 2, errs, err, "Token 1 of 2 will be refused from now on. It was last used ", " ago. But there is no terminal")
	out, errs, err = command(t, "token", "list", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	for _, words := range []string{"HOOK", "(all hooks)  bearer  1", "(all hooks)  bearer  2", " ago"} {
		if !strings.Contains(out, words) || strings.Contains(out, first[:4]) {
			t.Errorf("the list of tokens is %s", out)
		}
	}
	_, seen, err := typed(t, "y\n", "token", "retire", "--address", s.Admin)
	wantExit(t, 0, seen, err, "Token 1 of 2 will be refused from now on. It was last used ", " ago. Go on? [y/N] ", "Token 1 of 2 is removed.")
	if accepted(first) || !accepted(second) {
		t.Error("the wrong token was removed")
	}

	_, errs, err = command(t, "token", "generate", "--address", s.Admin)
	wantExit(t, 2, errs, err, "The old token will be refused at once. But there is no terminal")
	out, errs, err = command(t, "token", "generate", "--yes", "--json", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	var made struct {
		Token  string
		Tokens int
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Tokens != 1 || accepted(second) || !accepted(made.Token) {
		t.Errorf("%v %s", err, out)
	}
	_, seen, err = typed(t, "typed-token\ny\n", "set", "token", "--address", s.Admin)
	wantExit(t, 0, seen, err, "Token: ")
	if !accepted("typed-token") || strings.Contains(strings.TrimPrefix(seen, "typed-token\n"), "typed-token") {
		t.Errorf("the token is refused, or shown: %s", seen)
	}
	for _, verb := range []string{"token", "hook"} {
		_, errs, err = command(t, verb)
		wantExit(t, 2, errs, err, "a verb is missing; use ")
		_, errs, err = command(t, verb, "burn")
		wantExit(t, 2, errs, err, `there is no verb "burn"; use `)
	}
}

// noRoom is a full disk.
type noRoom struct{}

func (noRoom) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestATokenThatCannotBePrintedIsNotInForce(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	first, errs, err := command(t, "token", "generate", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	s.PatchSettings(`{"enabled":true}`)
	var said strings.Builder
	err = caddyhooks.RunCommand(strings.NewReader(""), noRoom{}, &said, "token", "generate", "--yes", "--address", s.Admin)
	wantExit(t, 1, said.String(), err, "the new token cannot be printed, so it is taken back: no space left on device")
	if resp := s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+strings.TrimSpace(first)); resp.Status != http.StatusOK {
		t.Errorf("the old token: %d %s", resp.Status, resp.Body)
	}
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"token":"••••"}`)
}

func TestATokenOfTheCaddyfileIsTakenOutThere(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\ntoken "+hookstest.Token+"\n}")
	_, errs, err := command(t, "token", "retire", "--address", s.Admin)
	wantExit(t, 1, errs, err, "the token is set in the Caddyfile: take the old one out there, and reload Caddy")
}

// Every word of the Caddyfile is one that can be set while Caddy runs, or the answer says where it is set.
func TestSetKnowsEveryWordOfTheCaddyfile(t *testing.T) {
	t.Parallel()
	for _, option := range optionsOf(t, "hooks {\nunknown\n}") {
		if _, errs, err := command(t, "set", option, "1", "--address", "127.0.0.1:1"); strings.Contains(fmt.Sprint(errs, err), "there is no setting") {
			t.Errorf("%s: %v %s", option, err, errs)
		}
	}
}
