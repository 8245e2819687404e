package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

var updateGoldens = flag.Bool("update", false, "rewrite the JSON in testdata/caddyfile")

// TestCaddyfileAdaptsAsInGoldenFiles goes through testdata/caddyfile. A file there has a Caddyfile, a line of ten dashes,
// and what comes of it: the JSON, or what the error ends with, which has to name the file and the line. There, … stands
// for words that are the business of another package.
func TestCaddyfileAdaptsAsInGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/caddyfile/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no golden files: %v", err)
	}
	for i, file := range files {
		if files[i], err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"HOOKS_TEST_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY"} {
		t.Setenv(name, "token-from-the-environment")
	}
	t.Setenv("HOOKS_TEST_DSN", "postgres://hooks@127.0.0.1/hooks")
	t.Setenv("HOOKS_TEST_SCHEMA", "hooks_of_a_test")
	t.Chdir("testdata/caddyfile") // where the files are that the Caddyfiles refer to

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(text), "\n----------\n")
			if !ok {
				t.Fatal("has no line of ten dashes")
			}
			input += "\n"
			want = strings.TrimSpace(want)
			if strings.HasPrefix(want, "{") || *updateGoldens && want == "" {
				testGoldenJSON(t, file, input, want)
			} else {
				testGoldenError(t, input, want)
			}
		})
	}
}

func testGoldenJSON(t *testing.T, file, input, want string) {
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatalf("adapting: %v", err)
	}
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, config, "", "\t"); err != nil {
		t.Fatal(err)
	}
	if *updateGoldens {
		if err := os.WriteFile(file, []byte(input+"----------\n"+indented.String()+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if indented.String() != want {
		t.Errorf("adapted to\n%s\nwant\n%s", indented.String(), want)
	}

	// What a Caddyfile can say has to be fit for use, too.
	var parsed *caddy.Config
	if err := json.Unmarshal(config, &parsed); err != nil {
		t.Fatal(err)
	}
	parsed.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "PANIC"}}}}
	if err := caddy.Validate(parsed); err != nil {
		t.Errorf("the JSON is refused: %v", err)
	}
}

var endsInPlace = regexp.MustCompile(` at Caddyfile:[0-9]+$`)

func testGoldenError(t *testing.T, input, want string) {
	if !endsInPlace.MatchString(want) {
		t.Errorf("the golden file names no line: %q", want)
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
	if err == nil {
		t.Fatalf("adapted to %s\nwant the error\n%s", config, want)
	}
	pattern := "(?s)" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
	if !regexp.MustCompile(pattern + "$").MatchString(err.Error()) {
		t.Errorf("got the error\n%v\nwant\n%s", err, want)
	}
}

func TestCaddyfileRefersToFilesUpToAMegabyte(t *testing.T) {
	dir := t.TempDir()
	adapt := func() error {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(":8080 {\n\thooks {\n\t\thook large {\n\t\t\ttemplate_file large.txt\n\t\t}\n\t}\n}\n"),
			map[string]any{"filename": filepath.Join(dir, "Caddyfile")})
		return err
	}
	file := filepath.Join(dir, "large.txt")
	if err := os.WriteFile(file, bytes.Repeat([]byte("a"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := adapt(); err != nil {
		t.Errorf("a file of a megabyte: %v", err)
	}
	if err := os.Truncate(file, 1<<20+1); err != nil {
		t.Fatal(err)
	}
	err := adapt()
	if want := "large.txt: it is larger than 1048576 bytes, at " + filepath.Join(dir, "Caddyfile") + ":4"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got the error\n%v\nwant\n%s", err, want)
	}
}
