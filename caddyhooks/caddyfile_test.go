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

var updateGoldens = flag.Bool("update", false, "write what tests compare: the JSON in testdata/caddyfile, comments for schemas, tables of the reference")

// A golden is a case in one of the files of testdata/caddyfile. There, each case begins with a line "-- name --". A Caddyfile follows,
// a line of ten dashes, and the result: the JSON, or the end of the error, which names the file and the line. In an error, … stands for
// text that another package decides.
type golden struct {
	file, name, input, want string
}

// readGoldens reads all cases.
func readGoldens(t *testing.T) []*golden {
	t.Helper()
	dir, err := filepath.Abs("testdata/caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no golden files: %v", err)
	}
	var all []*golden
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for section := range strings.SplitSeq(strings.TrimPrefix(string(text), "-- "), "\n-- ") {
			name, content, named := strings.Cut(section, " --\n")
			input, want, ok := strings.Cut(content+"\n", "\n----------\n")
			if !named || !ok {
				t.Fatalf("%s: %q has no name or no line of ten dashes", file, name)
			}
			all = append(all, &golden{file, name, input + "\n", strings.TrimSpace(want)})
		}
	}
	return all
}

// writeGoldens writes all cases to their files.
func writeGoldens(t *testing.T, all []*golden) {
	t.Helper()
	files := make(map[string]string)
	for _, g := range all {
		files[g.file] += "-- " + g.name + " --\n" + g.input + "----------\n" + g.want + "\n"
	}
	for file, text := range files {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCaddyfileAdaptsAsInGoldenFiles(t *testing.T) {
	goldens := readGoldens(t)
	if *updateGoldens {
		defer writeGoldens(t, goldens)
	}
	setGoldenEnvironment(t)
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			if strings.HasPrefix(g.want, "{") || *updateGoldens && g.want == "" {
				testGoldenJSON(t, g)
			} else {
				testGoldenError(t, g.input, g.want)
			}
		})
	}
}

// setGoldenEnvironment sets the variables and the directory that the Caddyfiles refer to.
func setGoldenEnvironment(t *testing.T) {
	for _, name := range []string{"HOOKS_TEST_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY"} {
		t.Setenv(name, "token-from-the-environment")
	}
	t.Setenv("HOOKS_TEST_DSN", "postgres://hooks@127.0.0.1/hooks")
	t.Setenv("HOOKS_TEST_SCHEMA", "hooks_of_a_test")
	t.Chdir("testdata/caddyfile")
}

func testGoldenJSON(t *testing.T, g *golden) {
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(g.input), map[string]any{"filename": "Caddyfile"})
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
		g.want = indented.String()
	} else if indented.String() != g.want {
		t.Errorf("adapted to\n%s\nwant\n%s", indented.String(), g.want)
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
