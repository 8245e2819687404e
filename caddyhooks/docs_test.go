package caddyhooks_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const root = ".."

// Caddyfile.example claims to show every option.
func TestExampleShowsEveryOption(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join(root, "Caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range []string{"hooks {\nunknown\n}", "hooks {\ncallbacks {\nunknown\n}\n}", "hooks {\nhook a {\nunknown\n}\n}",
		"hooks_dashboard {\nunknown\n}"} {
		for _, option := range optionsOf(t, block) {
			found++
			if !regexp.MustCompile(`(?m)^\s*(# )?` + regexp.QuoteMeta(option) + `\b`).Match(example) {
				t.Errorf("Caddyfile.example does not show %s", option)
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d options", found)
	}
}

// optionsOf are the directives that a block takes in which there is an unknown one: the error lists them.
func optionsOf(t *testing.T, block string) []string {
	t.Helper()
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("http://localhost {\n"+block+"\n}"), map[string]any{"filename": "Caddyfile"})
	if err == nil {
		t.Fatalf("an unknown directive is taken in %s", block)
	}
	_, list, _ := strings.Cut(err.Error(), " takes ")
	list, _, _ = strings.Cut(strings.Replace(list, " and ", ", ", 1), ", at Caddyfile")
	return strings.Split(list, ", ")
}

// So it does for the modules that come with it.
func TestExampleShowsEveryModule(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join(root, "Caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	shows := func(what, pattern string) {
		if !regexp.MustCompile(`(?m)^\s*(# \s*)?` + pattern + `\b`).Match(example) {
			t.Errorf("Caddyfile.example does not show %s", what)
		}
	}
	directives := map[string]string{"runners": "runner ", "stores": "store ", "channels": `channel \w+ `}
	options, modules := 0, 0
	for dir, directive := range directives {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		inRooms, err := filepath.Glob(filepath.Join(dir, "*", "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range append(files, inRooms...) {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`"hooks\.`+dir+`\.([a-z]+)"`).FindAllStringSubmatch(string(source), -1) {
				modules++
				shows(m[0], directive+m[1])
			}
			for _, m := range regexp.MustCompile(`(?m)^//\t\t([a-z_]+) `).FindAllStringSubmatch(string(source), -1) {
				options++
				shows(m[1]+" of "+file, m[1])
			}
		}
	}
	if modules < 11 || options < 20 {
		t.Errorf("found only %d modules with %d options", modules, options)
	}
}

// The line in the crontab is an order: it reaches the agent as it is written, in one chat, with a memory.
func TestCronExampleIsAnOrderThatTheAgentRemembers(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, "examples", "cron-order", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rn := hookstest.StartRunner(t, nil)
	hooks := regexp.MustCompile(`(?s)\thooks \{.*\n\t\}`).FindString(read("Caddyfile"))
	if !strings.Contains(hooks, "\trunner echo ") {
		t.Fatalf("the example has the hooks %q", hooks)
	}
	s := hookstest.StartSite(t, strings.Replace(hooks, "\trunner echo ", "\trunner http "+rn.URL+" ", 1))
	line := regexp.MustCompile(`(?m)^0 7 .* https://example\.com(/\S+) .* -d '([^']*)'`).FindStringSubmatch(read("README.md"))
	if line == nil {
		t.Fatal("the page has no line for a crontab")
	}
	if resp := s.Request("POST", line[1], line[2], "Authorization", "Bearer only-for-trying-it-out"); resp.Status != 202 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	turn := rn.Next()
	memory, _ := turn.Body["memory"].(map[string]any)
	if turn.Text("message") != "Good morning. Go through the open incidents." || turn.Text("chatId") != "morning" || memory["recall"] != true {
		t.Errorf("the agent gets %v", turn.Body)
	}
}
