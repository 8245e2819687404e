package caddyhooks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Caddy takes {$NAME} for an environment variable before any directive sees it.
func TestTemplateWithJSONPathSurvivesTheCaddyfile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("template.txt", []byte("file: {$.a.b}, {$.list[*]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		hook quoted {
			action agent
			sync
			template "quoted: { $.a.b }, { $.list[?(@ > 1)] }"
			chat_id "chat-{ $.a.b }"
		}
		hook backticks {
			action agent
			sync
			template `+"`backticks: { $.a.b }, { $['a']['b'] }`"+`
		}
		hook heredoc {
			action agent
			sync
			template <<TEXT
				heredoc: { $.a.b }
				and {	$.list[-1]	}
				TEXT
		}
		hook file {
			action agent
			sync
			template_file template.txt
		}
	}`)
	if resp := s.AdminRequest("PUT", "/hooks/mappings/live", `{"action":"agent","syncResponse":true,"messageTemplate":"live: {$.a.b}"}`); resp.Status != 200 {
		t.Fatalf("saving a mapping: %d %s", resp.Status, resp.Body)
	}
	for hook, want := range map[string]string{
		"quoted":    "quoted: value, [2,3]",
		"backticks": "backticks: value, value",
		"heredoc":   "heredoc: value\nand 3",
		"file":      "file: value, [1,2,3]",
		"live":      "live: value",
	} {
		resp := s.Post("/api/hooks/"+hook, `{"a":{"b":"value"},"list":[1,2,3]}`)
		if resp.Status != 200 || resp.Body != want {
			t.Errorf("%s: got %d %q, want %q", hook, resp.Status, resp.Body, want)
		}
		if got := resp.Header.Get("X-Service-Chat-Id"); hook == "quoted" && got != "chat-value" {
			t.Errorf("got the chat id %q", got)
		}
	}
}

// Caddy rewrites its shorthands in every token. In a template they are keys of the payload.
func TestTemplateMayUseEveryShorthandOfCaddyAsAKey(t *testing.T) {
	shorthands := caddyShorthands(t)
	var hooks strings.Builder
	for i, sh := range shorthands {
		fmt.Fprintf(&hooks, "\t\thook plain-%d {\n\t\t\taction agent\n\t\t\tsync\n\t\t\ttemplate \"a %s b %[2]s\"\n\t\t\tchat_id \"chat %[2]s\"\n\t\t}\n", i, sh.short)
	}
	s := hookstest.StartSite(t, "\thooks {\n\t\tenabled\n\t\trunner echo\n\t\ttoken "+hookstest.Token+"\n"+hooks.String()+"\t}")
	for i, sh := range shorthands {
		t.Run(sh.short, func(t *testing.T) {
			expanded := caddyfile.Segment{{Text: sh.short}}
			httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&expanded)
			if expanded[0].Text != sh.long {
				t.Fatalf("Caddy makes it %s, and its source says %s", expanded[0].Text, sh.long)
			}
			body, want := `{}`, sh.meant // braces that hold no path stay as they stand
			if path := strings.Trim(sh.meant, "{}"); isPath.MatchString(path) {
				body, want = nested(path, "value"), "value"
			}
			resp := s.Post(fmt.Sprintf("/api/hooks/plain-%d", i), body)
			if want := "a " + want + " b " + want; resp.Status != 200 || resp.Body != want {
				t.Errorf("got %d %q, want %q", resp.Status, resp.Body, want)
			}
			chat, err := url.PathUnescape(resp.Header.Get("X-Service-Chat-Id"))
			if err != nil || chat != "chat "+want {
				t.Errorf("got the chat id %q, %v", chat, err)
			}
		})
	}
}

var isPath = regexp.MustCompile(`^[\w-]+(\.[\w-]+)*$`)

// nested is a JSON object with the value at the dotted path.
func nested(path, value string) string {
	object := strconv.Quote(value)
	keys := strings.Split(path, ".")
	for i := len(keys) - 1; i >= 0; i-- {
		object = fmt.Sprintf("{%q:%s}", keys[i], object)
	}
	return object
}

type shorthand struct {
	short, long string
	meant       string // what a template with the short form has to be read as
}

// caddyShorthands reads the shorthands from the source of the Caddy that is built in: those that are listed, an example
// of every pattern, and every pattern filled in such that its long form is one of the list's. There the shorter form of
// the two is meant.
func caddyShorthands(t *testing.T) []shorthand {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/caddyserver/caddy/v2").Output()
	if err != nil {
		t.Fatalf("looking for the source of Caddy: %v", err)
	}
	source := filepath.Join(strings.TrimSpace(string(dir)), "caddyconfig", "httpcaddyfile", "shorthands.go")
	file, err := parser.ParseFile(gotoken.NewFileSet(), source, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var plain, patterns [][2]string
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		texts := stringsIn(literal)
		switch kind := literal.Type.(type) {
		case *ast.ArrayType:
			if element, ok := kind.Elt.(*ast.Ident); ok && element.Name == "string" {
				for i := 0; i+1 < len(texts); i += 2 {
					plain = append(plain, [2]string{texts[i], texts[i+1]})
				}
				return false
			}
		case nil: // an element of the list of patterns
			if len(texts) == 2 {
				patterns = append(patterns, [2]string{texts[0], texts[1]})
			}
		}
		return true
	})
	if len(plain) < 35 || len(patterns) < 12 {
		t.Fatalf("read only %d shorthands and %d patterns from %s", len(plain), len(patterns), source)
	}

	var all []shorthand
	shortOf := make(map[string]string)
	for _, p := range plain {
		if other, ok := shortOf[p[1]]; !ok || len(p[0]) < len(other) {
			shortOf[p[1]] = p[0]
		}
	}
	for _, p := range plain {
		all = append(all, shorthand{p[0], p[1], shortOf[p[1]]})
	}
	for _, p := range patterns {
		prefix, rest, ok := strings.Cut(strings.ReplaceAll(p[0], `\.(`, `.(`), "(")
		longPrefix, ok2 := strings.CutSuffix(p[1], "$1}")
		if !ok || !ok2 {
			t.Fatalf("this test cannot fill in the pattern %s, which becomes %s", p[0], p[1])
		}
		var examples []string
		switch rest {
		case `[\w-]*)}`:
			examples = []string{"key", "Some-key_2"}
		case `[\w-\.]*)}`:
			examples = []string{"key", "Some-key_2", "two.keys"}
		default:
			t.Fatalf("this test cannot fill in the pattern %s", p[0])
		}
		for _, example := range examples {
			all = append(all, shorthand{prefix + example + "}", longPrefix + example + "}", prefix + example + "}"})
		}
		pattern := regexp.MustCompile("^" + p[0] + "$")
		for long, short := range shortOf {
			name, ok := strings.CutPrefix(long, longPrefix)
			if both := prefix + name; ok && pattern.MatchString(both) {
				all = append(all, shorthand{both, long, short})
			}
		}
	}
	return all
}

// stringsIn lists the string literals among the elements, also those that are arguments of a call.
func stringsIn(literal *ast.CompositeLit) []string {
	var texts []string
	for _, element := range literal.Elts {
		if call, ok := element.(*ast.CallExpr); ok && len(call.Args) == 1 {
			element = call.Args[0]
		}
		if basic, ok := element.(*ast.BasicLit); ok && basic.Kind == gotoken.STRING {
			if text, err := strconv.Unquote(basic.Value); err == nil {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

func TestTemplateShowsNothingOfTheMachine(t *testing.T) {
	t.Setenv("HOOKS_TEST_SECRET", "leaked")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("secret", []byte("leaked"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		hook curious {
			action agent
			sync
			template "{env.HOOKS_TEST_SECRET} {file.secret} {system.hostname} {http.request.header.Authorization}"
		}
	}`)
	want := "<missing> <missing> <missing> <missing>"
	if resp := s.Post("/api/hooks/curious", `{}`); resp.Status != 200 || resp.Body != want {
		t.Errorf("got %d %q, want %q", resp.Status, resp.Body, want)
	}
}

func TestSecretsComeFromFilesAndTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"token": "token-from-file\n", "hmac": "hmac-from-file\r\n", "runner": "runner-from-file\n",
		"whsec": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOOKS_TEST_TOKEN", "token-from-env")
	t.Setenv("HOOKS_TEST_HMAC", "hmac-from-env")
	t.Setenv("HOOKS_TEST_RUNNER", "runner-from-env")
	rn := hookstest.StartRunner(t, nil)
	config := `
	hooks {
		enabled
		token {file.token} {env.HOOKS_TEST_TOKEN} {file.` + dir + `/whsec} {$HOOKS_TEST_TOKEN}-of-the-caddyfile
		runner http ` + rn.URL + ` {
			token {file.runner}
		}
		callbacks {
			secret {file.whsec}
		}
		hook from-file {
			auth hmac X-Signature {file.hmac}
		}
		hook from-env {
			auth hmac X-Signature {env.HOOKS_TEST_HMAC}
		}
	}`
	s := hookstest.StartSite(t, config)
	for _, good := range []string{"token-from-file", "token-from-env", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "token-from-env-of-the-caddyfile"} {
		if resp := s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+good); resp.Status != 200 {
			t.Errorf("token %s: got %d %s", good, resp.Status, resp.Body)
		}
		if got := rn.Next().Header.Get("Authorization"); got != "Bearer runner-from-file" {
			t.Errorf("the runner got the credential %q", got)
		}
	}
	for _, bad := range []string{"{file.token}", "{file." + dir + "/whsec}", "{http.request.uri.path.file.token}", "{env.HOOKS_TEST_TOKEN}", "token", ""} {
		resp := s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+bad)
		resp.WantError(t, 401)
	}
	for _, hook := range []string{"from-file", "from-env"} {
		mac := hmac.New(sha256.New, []byte("hmac-"+hook))
		mac.Write([]byte(`{"a":1}`))
		if resp := s.Request("POST", "/api/hooks/"+hook, `{"a":1}`, "X-Signature", hex.EncodeToString(mac.Sum(nil))); resp.Status != 200 {
			t.Errorf("%s: got %d %s", hook, resp.Status, resp.Body)
		}
		rn.Next()
	}
	s.Reload(strings.Replace(config, "{file.runner}", "{env.HOOKS_TEST_RUNNER}", 1))
	s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer token-from-file")
	if got := rn.Next().Header.Get("Authorization"); got != "Bearer runner-from-env" {
		t.Errorf("the runner got the credential %q", got)
	}
}

func TestConfigWithASecretThatIsNotThereIsRefused(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"empty": "", "blank": "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := hookstest.NewServer(t)
	for secret, reason := range map[string]string{
		"{file.nowhere}":             "names the file nowhere, which cannot be read: no such file",
		"{file." + dir + "/nowhere}": "names the file " + dir + "/nowhere, which cannot be read: no such file",
		"{env.HOOKS_TEST_NOWHERE}":   "names the environment variable HOOKS_TEST_NOWHERE, which is not set",
		"{file.empty}":               "names the file empty, which is empty",
		"{file.blank}":               "names the file blank, which is empty",
		"{no.such.placeholder}":      "is empty, or names an environment variable or a file that is not there",
	} {
		for _, test := range []struct{ name, word, directives string }{
			{"token", "token", "token " + secret},
			{"hmac", "hmacSecret (auth in a Caddyfile)", "token x\nhook signed {\nauth hmac X-Signature " + secret + "\n}"},
			{"callbacks", "callbacks: a secret", "callbacks {\nsecret " + secret + "\n}"},
			{"runner token", "runner http: the token", "runner http http://127.0.0.1:9 {\ntoken " + secret + "\n}"},
		} {
			if err := s.TryLoad("hooks {\nenabled\nrunner spare echo\n" + test.directives + "\n}"); err == nil || !strings.Contains(err.Error(), test.word+" "+reason) {
				t.Errorf("%s %s: got %v", test.name, secret, err)
			}
		}
	}
}
