package runners

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		if err := p.provision(); err != nil || p.env["A"] != want {
			t.Errorf("%s: got %s, %v", value, p.env["A"], err)
		}
	}
	for value, want := range map[string]string{
		`{"a": "{env.TEST_NOT_THERE}"}`:      "the value of env A names the environment variable TEST_NOT_THERE, which is not set",
		`{"a": "{file./nothing/is/there}"}`:  "the value of env A names the file /nothing/is/there, which cannot be read",
		`{env.TEST_BRACES}{env.TEST_ABSENT}`: "TEST_ABSENT, which is not set",
	} {
		p := Program{Env: map[string]string{"A": value}}
		if err := p.provision(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", value, err)
		}
	}
}
