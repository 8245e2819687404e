package caddyhooks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

// writeConfig writes a configuration, and returns its path.
func writeConfig(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// twoStores has two instances in PostgreSQL, one of which two sites have, and one that is elsewhere. The token is needed by nodes alone.
const twoStores = `
(main) {
	hooks {
		enabled
		token {env.HOOKS_TEST_UNSET}
		runner echo
		store postgres {env.HOOKS_TEST_DSN} {
			migrate off
		}
	}
}
:1 {
	import main
}
:2 {
	route /a/* {
		import main
		hooks second {
			store postgres {env.HOOKS_TEST_DSN} {
				schema other
				migrate off
			}
		}
	}
	hooks third {
		store bolt
	}
}`

func TestMigrateStoreFindsNoStore(t *testing.T) {
	t.Setenv("HOOKS_TEST_DSN", "host=127.0.0.1 port=1 user=hooks password=geheimnis sslmode=disable")
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		name, config string
		args         []string
		want         string
	}{
		{"Caddyfile", ":1 {\nrespond hello\n}", nil, "Caddyfile has no hooks"},
		{"Caddyfile", ":1 {\nhooks\nhooks two {\nstore memory\n}\n}", nil, "is in PostgreSQL: the hooks of default and two have another one"},
		{"Caddyfile", twoStores, []string{"--instance", "third"}, "is in PostgreSQL: the hooks of third have another one"},
		{"Caddyfile", twoStores, []string{"--instance", "fourth"}, `there is no hooks instance "fourth" in `},
		{"Caddyfile", ":1 {\nhooks {\nstore postgres {env.HOOKS_TEST_UNSET}\n}\n}", nil, "names the environment variable HOOKS_TEST_UNSET, which is not set"},
		{"Caddyfile", ":1 {\nhooks {\nstore postgres {env.HOOKS_TEST_DSN}\n}\n}\n:2 {\nhooks {\nstore memory\n}\n}", nil, `hooks instance "default" is configured twice, and with different stores`},
		{"Caddyfile", ":1 {\nhooks {\nstore elsewhere\n}\n}", nil, "there is no such store; there are bolt, memory, postgres"},
		{"config.json", `{"apps":{"http":{"servers":{"a":{"routes":[{"handle":[{"handler":"hooks","store":{"store":"postgres","dsn":"{env.HOOKS_TEST_DSN}"}}]}]}}}}}`, nil,
			"127.0.0.1:1/ schema hooks_default: "},
		{"config.json", `{"apps":{"http":{"servers":{"a":{"routes":[{"handle":[{"handler":"hooks","name":1}]}]}}}}}`, nil, "reading a hooks handler"},
		{"config.json", ":1", nil, "config is not valid JSON"},
		{"sites", ":1 {\nrespond hello\n}", []string{"--adapter", "caddyfile"}, "sites has no hooks"},
		{"sites", ":1", []string{"--adapter", "none"}, "unrecognized config adapter: none"},
	} {
		out, err := caddyhooks.RunVerb(append([]string{"migrate-store", "--config", writeConfig(t, c.name, c.config)}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(out+err.Error(), "geheimnis") {
			t.Errorf("%s: got %v %s, want %q", c.config, err, out, c.want)
		}
	}
	if _, err := caddyhooks.RunVerb("migrate-store", "--config", "not-there"); err == nil || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("without a file: %v", err)
	}
}

func TestMigrateStoreRefusesWhatDoesNotGoTogether(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "what to bring up to date is missing: --config <file>, or a DSN such as '{env.HOOKS_DSN}'"},
		{[]string{"--adapter", "json"}, "--adapter goes with --config"},
		{[]string{"--dsn-env", "A"}, "--dsn-env goes with --config"},
		{[]string{"--config", "c", "host=geheimnis"}, "with --config the DSN is that of the configuration"},
		{[]string{"--config", "c", "--schema", "s"}, "with --config the schema is that of the configuration"},
		{[]string{"--config", "c", "--dsn-env", "A", "--print"}, "with --print there is no DSN"},
		{[]string{"--print", "host=geheimnis"}, "with --print there is no DSN"},
		{[]string{"--config", "c", "--dsn-env", "postgres://geheimnis@db/"}, "--dsn-env takes the name of an environment variable, and not a DSN"},
		{[]string{"--config", "c", "--dsn-env", "HOOKS_TEST_UNSET"}, "--dsn-env names the environment variable HOOKS_TEST_UNSET, which is not set"},
		{[]string{"--print", "--from", "9"}, "a schema has version 0 if it is not there, and otherwise 6 to 7"},
	} {
		out, err := caddyhooks.RunVerb(append([]string{"migrate-store"}, c.args...)...)
		if err == nil || !strings.Contains(out, "Error: "+c.want) || strings.Contains(out, "geheimnis") {
			t.Errorf("%q: got %v %s, want %q", c.args, err, out, c.want)
		}
	}
}
