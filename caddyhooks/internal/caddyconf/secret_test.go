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
