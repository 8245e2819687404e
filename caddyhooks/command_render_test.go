package caddyhooks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const issuePayload = `{"issue":{"number":1207,"title":"Login loops after password reset"},"repository":{"full_name":"acme/api"}}`

// writeInput writes a file that a command reads, and returns its path.
func writeInput(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// wantExit checks how a command ends: 0, 1 for what is refused or fails, 2 for wrong usage. all are the words of its error.
func wantExit(t *testing.T, code int, errs string, err error, all ...string) {
	t.Helper()
	got := 0
	if err != nil {
		got = 1
		if err.Error() == "exiting with status 2" { // an error of Caddy's that has the exit code
			got = 2
		}
	}
	if got != code {
		t.Errorf("exit %d, want %d: %v\n%s", got, code, err, errs)
	}
	for _, words := range all {
		if !strings.Contains(errs, words) {
			t.Errorf("%q does not speak of %q", errs, words)
		}
	}
}

func TestRenderWithoutAServer(t *testing.T) {
	payload := writeInput(t, "issue.json", issuePayload)
	template := writeInput(t, "template.txt", "From {@header.X-GitHub-Event} {@query.a}\n\tabout {issue.title}\n")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"render", []string{"--template", "Issue #{issue.number}: {issue.title} ({milestone})"}},
		{"render-all-there", []string{"--template", "Issue #{issue.number}"}},
		{"render-file", []string{"--template-file", template, "--header", "x-github-event: issues", "--query", "a=b"}},
		{"render-body", []string{"--template", ""}},
		{"render-json", []string{"--template", "#{issue.number} {milestone}", "--json"}},
		{"render-warning", []string{"--template", "{issue.title | shorten 5}"}},
	} {
		out, errs, err := command(t, append([]string{"render", "--payload", payload}, c.args...)...)
		wantExit(t, 0, errs, err)
		wantGolden(t, c.name, out+"--- stderr\n"+errs)
	}
}

func TestRenderReadsAForm(t *testing.T) {
	payload := writeInput(t, "form", "Body=hello+there&From=%2B49")
	out, errs, err := command(t, "render", "--template", "{From}: {Body}", "--payload", payload, "--header", "Content-Type: application/x-www-form-urlencoded")
	wantExit(t, 0, errs, err)
	if out != "+49: hello there\n" {
		t.Errorf("got %q", out)
	}
}

func TestRenderShowsNoControlCharacters(t *testing.T) {
	payload := writeInput(t, "hostile.json", `{"title":"\u001b]0;gotcha\u0007\u009b31m\u202etxt\r\nnext"}`)
	out, errs, err := command(t, "render", "--template", "{title} {a\x1bb}", "--payload", payload)
	wantExit(t, 0, errs, err)
	if want := `\x1b]0;gotcha\a\u009b31m\u202etxt\r` + "\nnext {a\\x1bb}\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	out, errs, err = command(t, "render", "--template", "{title}", "--payload", payload, "--json")
	wantExit(t, 0, errs, err)
	if strings.ContainsAny(out, "\x1b\u009b\u202e\a\r") {
		t.Errorf("got %q", out)
	}
	var shown struct{ Message []struct{ Text string } }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Message[0].Text != "\x1b]0;gotcha\a\u009b31m\u202etxt\r\nnext" {
		t.Errorf("%v %+v", err, shown)
	}
}

func TestRenderRefuses(t *testing.T) {
	payload := writeInput(t, "issue.json", issuePayload)
	broken := writeInput(t, "broken.json", `{"a":`)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "what to render is missing"},
		{[]string{"--template", "a", "--template-file", "b"}, 2, "do not go together"},
		{[]string{"--template", "a"}, 2, "--payload is missing"},
		{[]string{"--template", "a", "--payload", "not-there.json"}, 1, "reading the payload: open not-there.json"},
		{[]string{"--template-file", "not-there.txt", "--payload", payload}, 1, "reading the template: open not-there.txt"},
		{[]string{"--template-file", "-", "--payload", "-"}, 2, "cannot both come from standard input"},
		{[]string{"--template", "{$.a[}", "--payload", payload}, 1, "messageTemplate is refused: line 1, column 1"},
		{[]string{"--template", "{a}", "--payload", broken}, 1, "payload"},
		{[]string{"--template", "{a}", "--payload", payload, "--header", "no colon geheim"}, 2, "--header takes a name and a value"},
		{[]string{"--template", "{a}", "--payload", payload, "--header", "Authorization: Bearer geheim"}, 2, "the header Authorization carries a secret"},
		{[]string{"--template", "{a}", "--payload", payload, "--query", "%zz"}, 2, "--query cannot be read"},
		{[]string{"wake", "--payload", payload}, 1, "wake has no template"},
		{[]string{"one", "two", "--payload", payload}, 2, "is one argument too many"},
		{[]string{"one", "--payload", payload, "--address", "127.0.0.1:1"}, 1, "is Caddy running?"},
	} {
		_, errs, err := command(t, append([]string{"render"}, c.args...)...)
		wantExit(t, c.code, errs, err, c.want)
		if strings.Contains(errs, "geheim") {
			t.Errorf("%q shows what may be a secret: %s", c.args, errs)
		}
	}
}

func TestRenderForAHook(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `hook issues {
		action agent
		chat_id "repo:{repository.full_name}"
		template "Issue #{issue.number}: {issue.title} ({milestone})"
		skip "$.action == 'deleted'"
	}`))
	payload := writeInput(t, "issue.json", issuePayload)
	out, errs, err := command(t, "render", "issues", "--payload", payload, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	wantGolden(t, "render-hook", out+"--- stderr\n"+errs)
	out, errs, err = command(t, "render", "issues", "--template", "{issue.number}", "--payload", payload, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if out != "1207\n" {
		t.Errorf("got %q", out)
	}
}
