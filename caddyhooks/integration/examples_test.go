package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// People copy examples. None may be reachable from other machines with a token that everybody knows.
func TestCaddyfilesAreSafeToCopy(t *testing.T) {
	t.Parallel()
	for _, file := range caddyfiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range unsafeToCopy(t, file, string(text)) {
			t.Errorf("%s: %s", file, problem)
		}
	}
	for _, page := range pages(t) {
		for _, block := range fences(t, page) {
			if block.language != "caddyfile" {
				continue
			}
			for _, problem := range unsafeToCopy(t, "Caddyfile", block.text) {
				t.Errorf("%s, line %d: %s", page, block.line, problem)
			}
		}
	}
}

// The check above finds what it is for.
func TestUnsafeCaddyfilesAreFound(t *testing.T) {
	t.Parallel()
	const site = "http://127.0.0.1:8080 {\n\tbind 127.0.0.1\n\thooks {\n"
	for name, test := range map[string]struct {
		text string
		want string // a part of the only problem, "" if there is none
	}{
		"all addresses":            {"http://127.0.0.1:8080 {\n\thooks\n}\n", "listens on :8080"},
		"all addresses, localhost": {"localhost:8080 {\n\thooks\n}\n", "listens on :8080"},
		"another address":          {"http://127.0.0.1:8080 {\n\tbind 0.0.0.0\n\thooks\n}\n", "listens on 0.0.0.0:8080"},
		"loopback":                 {site + "\t}\n}\n", ""},
		"loopback for all sites":   {"{\n\tdefault_bind 127.0.0.1 [::1]\n}\nhttp://127.0.0.1:8080 {\n\thooks\n}\n", ""},
		"a public site":            {"example.com {\n\thooks {\n\t\ttoken {env.A}\n\t}\n}\n", ""},
		"a token":                  {site + "\t\ttoken a-fixed-one\n\t}\n}\n", "line 4"},
		"a token with a comment":   {site + "\t\ttoken a-fixed-one # yours is a secret\n\t}\n}\n", ""},
		"a comment above":          {site + "\t\t# only for trying it out\n\t\tworkers 1\n\t\ttoken a-fixed-one\n\t}\n}\n", ""},
		"a comment on other lines": {site + "\t\t# only for trying it out\n\n\t\ttoken a-fixed-one\n\t}\n}\n", "line 6"},
		"a comment about more":     {site + "\t\ttoken a-fixed-one # the token\n\t}\n}\n", "line 4"},
		"one of two tokens":        {site + "\t\ttoken {env.A} a-fixed-one\n\t}\n}\n", "line 4"},
		"a token in a file":        {site + "\t\ttoken {file./a}\n\t}\n}\n", ""},
		"the secret of a hook":     {site + "\t\thook a {\n\t\t\tauth hmac X-A a-fixed-one\n\t\t}\n\t}\n}\n", "line 5"},
		"the token of a channel":   {site + "\t\tchannel a slack xoxb-1\n\t}\n}\n", "line 4"},
		"internal addresses":       {site + "\t\tcallbacks {\n\t\t\tallow 10.0.0.0/8\n\t\t}\n\t}\n}\n", "line 5"},
		"explained addresses":      {site + "\t\tcallbacks {\n\t\t\tallow 10.0.0.0/8 # for trying it out\n\t\t}\n\t}\n}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			problems := unsafeToCopy(t, "Caddyfile", test.text)
			if test.want == "" && len(problems) > 0 || test.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], test.want)) {
				t.Errorf("found %q, want %q", problems, test.want)
			}
		})
	}
}

// caddyfiles are all Caddyfiles of this repository that people read.
func caddyfiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasPrefix(entry.Name(), "Caddyfile"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(files, filepath.Join(root, "Caddyfile.example")) || len(files) < 2 {
		t.Fatalf("found no Caddyfile.example, or no example besides it: %v", files)
	}
	return files
}

// pages are the README and those of the examples.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil || len(found) < 4 {
		t.Fatalf("found the examples %v, %v", found, err)
	}
	senders, err := filepath.Glob(filepath.Join(root, "examples", "senders", "*", "README.md"))
	if err != nil || len(senders) < 17 {
		t.Fatalf("found the senders %v, %v", senders, err)
	}
	return append(append(found, senders...), docs(t)...)
}

// docs are the README and the pages of the documentation.
func docs(t *testing.T) (found []string) {
	t.Helper()
	for _, pattern := range []string{"README.md", "caddyhooks/docs/*.md", "caddyhooks/docs/*/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(some) == 0 {
			t.Fatalf("found no pages %s, %v", pattern, err)
		}
		found = append(found, some...)
	}
	return found
}

// unsafeToCopy returns what is wrong with a Caddyfile that people may copy: it is for one machine and listens on other
// addresses too, or has a fixed secret or allows internal addresses and no comment says so.
func unsafeToCopy(t *testing.T, file, text string) (problems []string) {
	t.Helper()
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": file})
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct {
					Listen []string        `json:"listen"`
					Routes json.RawMessage `json:"routes"`
				} `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	var all any
	if json.Unmarshal(adapted, &config) != nil || json.Unmarshal(adapted, &all) != nil {
		t.Fatalf("%s: became %s", file, adapted)
	}
	for _, server := range config.Apps.HTTP.Servers {
		if !bytes.Contains(server.Routes, []byte(`"127.0.0.1"`)) && !bytes.Contains(server.Routes, []byte(`"localhost"`)) {
			continue
		}
		for _, listen := range server.Listen {
			addr, err := caddy.ParseNetworkAddress(listen)
			if ip := net.ParseIP(addr.Host); err != nil || ip == nil || !ip.IsLoopback() {
				problems = append(problems, "is for one machine, and listens on "+listen)
			}
		}
	}
	for line, what := range linesToExplain(all, text) {
		if !explained(strings.Split(text, "\n"), line) {
			problems = append(problems, fmt.Sprintf("line %d has %s, and no comment says that it is for trying it out", line+1, what))
		}
	}
	return problems
}

var (
	secretName = regexp.MustCompile(`(?i)(token|secret|password)$`)
	fromAfar   = regexp.MustCompile(`^\{(env\.|file\.)[^{}]+\}$`)
)

// linesToExplain are the lines of a Caddyfile with fixed secrets, which are found by their names in JSON, and with allow.
func linesToExplain(adapted any, text string) map[int]string {
	secrets := make(map[string]bool)
	var walk func(name string, value any)
	walk = func(name string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, member := range value {
				walk(name, member)
			}
		case []any:
			for _, element := range value {
				walk(name, element)
			}
		case string:
			if secretName.MatchString(name) && !fromAfar.MatchString(value) {
				secrets[value] = true
			}
		}
	}
	walk("", adapted)
	lines := make(map[int]string)
	for i, line := range strings.Split(text, "\n") {
		line = withoutComment(line)
		words := strings.Fields(line)
		if len(words) > 0 && words[0] == "allow" {
			lines[i] = "allow"
		}
		if slices.ContainsFunc(words, func(word string) bool { return secrets[strings.Trim(word, "\"`")] }) {
			lines[i] = "a fixed secret"
		}
	}
	return lines
}

func withoutComment(line string) string {
	if i := regexp.MustCompile(`(^|\s)#`).FindStringIndex(line); i != nil {
		return line[:i[0]]
	}
	return line
}

var warning = regexp.MustCompile(`(?i)yours is a secret|trying it out|made up|to try`)

// explained reports whether a comment in a line, or above it without a blank line between them, warns of it.
func explained(lines []string, line int) bool {
	comment := strings.TrimPrefix(lines[line], withoutComment(lines[line]))
	for i := line - 1; i >= 0 && strings.TrimSpace(lines[i]) != ""; i-- {
		if strings.HasPrefix(strings.TrimSpace(lines[i]), "#") {
			comment = lines[i] + comment
		}
	}
	return warning.MatchString(comment)
}
