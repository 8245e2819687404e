package caddyhooks_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

// command runs `caddy hooks` without a terminal, and returns what it prints and its error.
func command(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	err = caddyhooks.RunCommand(strings.NewReader(""), &stdout, &stderr, args...)
	return stdout.String(), stderr.String(), err
}

// What differs from one run of a test to the next, and what stands for it in a golden file. A time of day stays as wide as it is, so
// that columns stay columns.
var variable = []struct {
	pattern *regexp.Regexp
	golden  string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31"},
	{regexp.MustCompile(`\bmsg_[0-9a-f]{32}_`), "msg_019a86f24c1e7b029d551f0c6c0e7a31_"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b`), "2026-11-16T10:59:12.345Z"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "10:59:12"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "2026-11-16"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:8080"},
}

// wantGolden compares what a command printed with testdata/commands/<name>.txt. More pairs of a text and what stands for it can be
// given. With -update the file is rewritten.
func wantGolden(t *testing.T, name, printed string, replaced ...string) {
	t.Helper()
	printed = strings.NewReplacer(replaced...).Replace(printed)
	for _, v := range variable {
		printed = v.pattern.ReplaceAllLiteralString(printed, v.golden)
	}
	file := filepath.Join("testdata", "commands", name+".txt")
	if *updateGoldens {
		if err := os.WriteFile(file, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if printed != string(want) {
		t.Errorf("printed\n%s\nwant, as in %s,\n%s", printed, file, want)
	}
}
