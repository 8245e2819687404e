package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// actingVerbs are verbs with a word of their help.
var actingVerbs = map[string]string{
	"send": "--repeat", "sign": "--prefix", "render": "--template-file", "try": "--wait", "cancel": "queued", "again": "--deliver",
	"retry": "--dead", "drop": "--pending", "set": "max_payload", "hook put": "--create", "hook get": "etag", "hook rm": "404",
	"token generate": "--keep-old", "token retire": "--number",
}

// synopses are how verbs are called. A page must not take a part of it for HTML.
var synopses = map[string]string{
	"send": "send HOOK {--payload FILE | --example}", "sign": "sign {HOOK | --auth SCHEME | --header NAME [--prefix TEXT]} --payload FILE",
	"render": "render {HOOK | --template TEXT | --template-file FILE} --payload FILE", "try": "try HOOK {--payload FILE | --example}", "cancel": "cancel {RUN-ID | --all | ",
	"again": "again {RUN-ID [--to-chat CHAT]", "retry": "retry {DELIVERY-ID | --dead", "drop": "drop {DELIVERY-ID | --dead", "set": "set SETTING {VALUE | --default}",
	"hook put": "put NAME -f FILE", "hook get": "get NAME", "hook rm": "rm NAME", "token generate": "generate [--keep-old]", "token retire": "retire [--number N]",
}

// emptied finds a synopsis in which the name of an argument or a value is not there.
var emptied = regexp.MustCompile(`(?m)^fBcaddy hooks .*([\[ ]\]|--[a-z-]+ [],]|\{ ?\|)`)

func TestEveryVerbHasHelpAndAManPage(t *testing.T) {
	t.Parallel()
	b := hookstest.NewBinary(t)
	dir := t.TempDir()
	if out, err := b.Command(nil, "manpage", "--directory", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "caddy-hooks*.8"))
	if err != nil || len(pages) < len(actingVerbs) {
		t.Fatalf("%v: there are %d pages", err, len(pages))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil || emptied.Match(bytes.ReplaceAll(text, []byte(`\`), nil)) {
			t.Errorf("%v: something is lost in %s:\n%s", err, page, text)
		}
	}
	for verb, word := range actingVerbs {
		page, err := os.ReadFile(filepath.Join(dir, "caddy-hooks-"+strings.ReplaceAll(verb, " ", "-")+".8"))
		if err != nil {
			t.Error(err)
			continue
		}
		// A manual page writes a dash as \-.
		if text := strings.ReplaceAll(string(page), `\`, ""); !strings.Contains(text, word) || !strings.Contains(text, synopses[verb]) {
			t.Errorf("the page of %s does not tell of %s:\n%s", verb, word, text)
		}
		args := append(append([]string{"hooks"}, strings.Fields(verb)...), "--help")
		help, err := b.Command(nil, args...).CombinedOutput()
		if err != nil || !bytes.Contains(help, []byte(word)) || !bytes.Contains(help, []byte("  caddy hooks "+verb)) {
			t.Errorf("%v: the help of %s does not tell of %s, or has no example:\n%s", err, verb, word, help)
		}
	}
}

func TestCompletionForBashIsABashScript(t *testing.T) {
	t.Parallel()
	check := realtest.Command(t, "bash", "-n")
	script, err := hookstest.NewBinary(t).Command(nil, "completion", "bash").Output()
	if err != nil {
		t.Fatal(err)
	}
	check.Stdin = bytes.NewReader(script)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash: %v\n%s", err, out)
	}
}

func TestShellsCompleteVerbsFlagsAndNames(t *testing.T) {
	t.Parallel()
	b := hookstest.NewBinary(t)
	caddy := b.Serve(t, "", "hooks {\nhook github-issues {\n auth github secret\n}\n}")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		script, err := b.Command(nil, "completion", shell).Output()
		if err != nil || !bytes.Contains(script, []byte("__complete")) {
			t.Errorf("%s: %v\n%.200s", shell, err, script)
		}
	}
	admin := strings.TrimPrefix(caddy.Admin, "http://")
	// What the scripts of all shells ask when somebody presses the key.
	for _, c := range []struct {
		typed string
		want  []string
	}{
		{"hooks ", []string{"send", "sign", "render", "try", "cancel", "again", "retry", "drop", "set", "hook", "token", "dashboard"}},
		{"hooks token ", []string{"generate", "retire"}},
		{"hooks hook ", []string{"get", "put", "rm"}},
		{"hooks send --address " + admin + " ", []string{"github-issues", "wake", "agent"}},
		{"hooks sign --address " + admin + " git", []string{"github-issues"}},
		{"hooks hook rm --address " + admin + " ", []string{"github-issues"}},
		{"hooks sign --auth s", []string{"stripe", "slack", "shopify", "sentry", "standard"}},
		{"hooks set ", []string{"enabled", "max_payload", "history"}},
		{"hooks set enabled ", []string{"on", "off"}},
		{"hooks pause ", []string{"hook", "chat", "runner", "all"}},
		{"hooks pause --address " + admin + " hook ", []string{"github-issues", "wake", "agent"}},
		{"hooks resume all --", []string{"--rate"}},
		{"hooks retry --", []string{"--dead", "--pending", "--host", "--channel", "--yes"}},
		{"hooks send --", []string{"--payload", "--token-file", "--secret-file", "--repeat"}},
	} {
		words := strings.Split(c.typed, " ")
		out, err := b.Command(nil, append([]string{"__complete"}, words...)...).Output()
		offered := make(map[string]bool)
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			offered[word] = true
		}
		for _, want := range c.want {
			if !offered[want] {
				t.Errorf("%q: %v, %s is not offered in\n%s", c.typed, err, want, out)
			}
		}
		for _, secret := range []string{"--secret", "--token"} {
			if offered[secret] {
				t.Errorf("%q: %s is offered", c.typed, secret)
			}
		}
	}
}
