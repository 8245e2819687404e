package caddyconf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretsComeFromTheirPlaceholders(t *testing.T) {
	t.Setenv("CADDYCONF_TEST_SECRET", " from the environment ")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for configured, want := range map[string]string{
		"plain": "plain", "{env.CADDYCONF_TEST_SECRET}": " from the environment ", "{file." + file + "}": "from-a-file",
	} {
		if got, err := ResolveSecret(configured); err != nil || got != want {
			t.Errorf("%s: got %q, %v", configured, got, err)
		}
	}
	if got, err := ResolveToken("{file." + file + "}"); err != nil || got != "from-a-file" {
		t.Errorf("a token from a file: got %q, %v", got, err)
	}
	if got, err := ResolveToken(" padded "); err != nil || got != "padded" {
		t.Errorf("a padded token: got %q, %v", got, err)
	}
}

func TestSecretsThatCannotBeResolved(t *testing.T) {
	t.Parallel()
	for _, configured := range []string{"", "{env.CADDYCONF_NOT_SET}", "{file./caddyconf/not/there}"} {
		if secret, err := ResolveSecret(configured); err == nil {
			t.Errorf("%q is taken for %q", configured, secret)
		}
	}
	if secrets, err := ResolveSecrets([]string{"good", "{env.CADDYCONF_NOT_SET}"}); err == nil {
		t.Errorf("a list is taken for %q", secrets)
	}
	for _, configured := range []string{" ", "two words", "line\nbreak", "schlüssel"} {
		token, err := ResolveToken(configured)
		if err == nil {
			t.Errorf("%q is taken for %q", configured, token)
		} else if text := strings.TrimSpace(configured); text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("the error quotes the token: %v", err)
		}
	}
}

func TestErrorsNameTheSourceOfASecret(t *testing.T) {
	t.Setenv("CADDYCONF_TEST_EMPTY", "")
	t.Setenv("CADDYCONF_TEST_BLANK", " ")
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const unknown = "is empty, or names an environment variable or a file that is not there"
	for configured, want := range map[string]string{
		"{env.CADDYCONF_NOT_SET}":         "names the environment variable CADDYCONF_NOT_SET, which is not set",
		"{env.CADDYCONF_TEST_EMPTY}":      "names the environment variable CADDYCONF_TEST_EMPTY, which is empty",
		"{env.CADDYCONF_TEST_BLANK}":      "names the environment variable CADDYCONF_TEST_BLANK, which is empty",
		"{file." + dir + "/nowhere}":      "names the file " + dir + "/nowhere, which cannot be read: no such file or directory",
		"{file." + dir + "}":              "names the file " + dir + ", which cannot be read: it is a directory",
		"{file." + empty + "}":            "names the file " + empty + ", which is empty",
		"":                                unknown,
		" ":                               unknown,
		"{env.CADDYCONF_NOT_SET}hush":     unknown,
		"hush{file./caddyconf/not/there}": unknown,
		"{env.hush-hush}":                 unknown,
		"{hush}":                          unknown,
		"{file./hush\nhush}":              unknown,
	} {
		if _, err := ResolveToken(configured); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", configured, err, want)
		}
	}
}
