package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestVariablesMayHoldBraces(t *testing.T) {
	t.Setenv("TEST_BRACES", `{"a": "{env.HOME}"}`)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"model": "fake/fake"}`:                      `{"model": "fake/fake"}`,
		`{"a": {"b": "{env.TEST_BRACES}"}}`:           `{"a": {"b": "{"a": "{env.HOME}"}"}}`, // and no more than once
		`{"key": "{file.` + file + `}", "tiers": {}}`: `{"key": "from-a-file", "tiers": {}}`,
		`{env.TEST_BRACES}{env.TEST_BRACES}`:          `{"a": "{env.HOME}"}{"a": "{env.HOME}"}`,
		`{`:                                           `{`,
		`{}`:                                          `{}`,
		`{environment.of.nothing} {http.request.host}}}`: `{environment.of.nothing} {http.request.host}}}`,
		`\{env}`: `\{env}`,
	} {
		p := Program{Env: map[string]string{"A": value}}
		if err := p.Resolve(); err != nil || p.env["A"] != want {
			t.Errorf("%s: got %s, %v", value, p.env["A"], err)
		}
	}
	for value, want := range map[string]string{
		`{"a": "{env.TEST_NOT_THERE}"}`:      "the value of env A names the environment variable TEST_NOT_THERE, which is not set",
		`{"a": "{file./nothing/is/there}"}`:  "the value of env A names the file /nothing/is/there, which cannot be read",
		`{env.TEST_BRACES}{env.TEST_ABSENT}`: "TEST_ABSENT, which is not set",
	} {
		p := Program{Env: map[string]string{"A": value}}
		if err := p.Resolve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", value, err)
		}
	}
}

func TestDirIsRelativeToTheFolderOfCaddy(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	p := Program{Dir: "."}
	if err := p.Resolve(); err != nil || p.dir != here {
		t.Errorf("got %q, %v", p.dir, err)
	}
}

// testProcess is a process that nothing looks after, or of which something is left.
type testProcess struct {
	alone bool
	left  []int
}

func (p testProcess) Alone() bool { return p.alone }
func (p testProcess) Left() []int { return p.left }

func TestProcessesThatMayBeLeftAreLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	log := zap.New(core)
	var w processWarnings
	w.Started(log, testProcess{})
	w.Ended(log, testProcess{}, zap.String("program", "agent"))
	if logs.Len() != 0 {
		t.Errorf("got %v", logs.All())
	}
	for range 2 {
		w.Started(log, testProcess{alone: true})
	}
	for _, pid := range []int{7, 8} {
		w.Ended(log, testProcess{left: []int{pid}}, zap.String("program", "agent"))
	}
	all := logs.All()
	if len(all) != 3 || !strings.Contains(all[0].Message, "only their process group") {
		t.Fatalf("got %v", all)
	}
	if got := fmt.Sprint(all[2].ContextMap()); got != "map[pids:[8] program:agent]" {
		t.Errorf("got %s", got)
	}
}
