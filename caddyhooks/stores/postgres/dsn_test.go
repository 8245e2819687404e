package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestDSNsThatAreProbablyMistakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ dsn, warns string }{
		{"postgres://hooks@127.0.0.1/hooks", ""},
		{"postgres://hooks@localhost/hooks?sslmode=disable", ""},
		{"host=/run/postgresql dbname=hooks", ""},
		{"postgres://hooks@[::1]:5433/hooks", ""},
		{"postgres://hooks@db.example.com/hooks?sslmode=verify-full", ""},
		{"postgres://hooks@db.example.com/hooks?sslmode=verify-ca", ""},
		{"postgres://hooks@db.example.com/hooks?sslmode=require", "the connection to db.example.com does not check"},
		{"postgres://hooks@db.example.com/hooks", "the connection to db.example.com does not check"},
		{"postgres://hooks@127.0.0.1,10.0.0.2/hooks?sslmode=disable", "the connection to 10.0.0.2 does not check"},
		{"postgres://hooks:secret@127.0.0.1/hooks", "is part of what Caddy shows at /config/"},
	} {
		n, err := parseDSN(test.dsn)
		if err != nil {
			t.Errorf("%s: %v", test.dsn, err)
			continue
		}
		got := strings.Join(n.warnings(test.dsn), "; ")
		if (got == "") != (test.warns == "") || !strings.Contains(got, test.warns) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s", test.dsn, got)
		}
		if got := n.warnings("{env.HOOKS_DSN}"); strings.Contains(strings.Join(got, ""), "/config/") {
			t.Errorf("a placeholder is taken for a secret: %s", got)
		}
	}
}

func TestPlaceHasNoSecret(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://hooks:secret@db.example.com:6432/app?sslmode=verify-full":            "db.example.com:6432/app",
		"postgres://hooks:secret@a,b:5433/app?target_session_attrs=read-write":           "a,b:5433/app",
		"host=/run/postgresql port=5433 dbname=hooks password=secret pool_max_conns=100": "/run/postgresql/hooks",
	} {
		n, err := parseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if n.place() != want {
			t.Errorf("%s is at %s, want %s", dsn, n.place(), want)
		}
		if err := n.plain(errors.New("broke at secret, of " + dsn)); strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	}
}

func TestDSNComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOOKS_DSN", "postgres://hooks:secret@127.0.0.1/hooks")
	p := &Postgres{DSN: "{env.HOOKS_DSN}"}
	if err := p.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	if key := p.StoreKey("default"); strings.Contains(key, "secret") || !strings.HasSuffix(key, ":hooks_default") || key == p.StoreKey("other") {
		t.Errorf("the key of the store is %s", key)
	}
	if p.DSN != "{env.HOOKS_DSN}" {
		t.Error("the secret is part of the configuration")
	}
	err := (&Postgres{DSN: "{env.HOOKS_DSN_THAT_IS_NOT_SET}"}).Provision(caddy.Context{})
	if err == nil || err.Error() != "the DSN of the store names the environment variable HOOKS_DSN_THAT_IS_NOT_SET, which is not set" {
		t.Errorf("got %v", err)
	}
	if err := p.CheckInstance(strings.Repeat("x", 64)); err == nil || !strings.Contains(err.Error(), "set schema") {
		t.Errorf("an instance with a long name: %v", err)
	}
}

// A password that is not escaped must not be taken for the host, the database or a setting: those are shown.
func TestMistakesInDSNsAreToldWithoutTheirText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://hooks:p@geheimnis@127.0.0.1/hooks":            "write the characters @ / ? #",
		"postgres://hooks:12@ab/geheimnis@127.0.0.1/hooks":        "write the characters @ / ? #",
		"postgres://hooks:12/geheimnis@127.0.0.1/hooks":           "write the characters @ / ? #",
		"postgres://hooks:12?geheimnis@127.0.0.1/hooks":           "write the characters @ / ? #",
		"postgres://hooks:12#geheimnis@127.0.0.1/hooks":           "write the characters @ / ? #",
		"postgresql://hooks:geheimnis@127.0.0.1/hooks?sslmode=on": "is none of disable, allow",
		"$GEHEIMNIS": "write {env.HOOKS_DSN}",
		`"postgres://hooks:geheimnis@127.0.0.1/hooks"`: "begins with a quote",
		"hooks:geheimnis@127.0.0.1/hooks":              "it is a URL such as",
	} {
		if _, err := parseDSN(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheimnis") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"postgres://hooks:p%40ss%2Fword@127.0.0.1/hooks",
		"postgres://127.0.0.1/hooks?user=hooks@realm&sslmode=disable",
		"postgres:///hooks?host=/run/postgresql",
		"host=127.0.0.1 password=p@ss/word?# dbname=hooks",
		"postgres://hooks@a,b:5433/app?target_session_attrs=read-write&statement_timeout=5s",
	} {
		if _, err := parseDSN(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzErrorsOfDSNsQuoteNothing(f *testing.F) {
	f.Add("postgres://u:geheimnis@h:port/db")
	f.Add("host=h password='geheimnis")
	f.Add("postgres://u:geheimnis@h/db?sslmode=geheimnis")
	f.Add("postgres://u:geheimnis@x@h/db")
	f.Add("postgres://u:geheimnis/x@h/db")
	f.Add("password=geheimnis sslmode=verify-full sslrootcert=/geheimnis")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseDSN(text)
		if err != nil && strings.Contains(err.Error(), "geheimnis") && !strings.Contains(text, "/geheimnis") {
			t.Errorf("%q: %v", text, err)
		}
		// The password of a URL that looks like one is nowhere else.
		if secret, isURL := strings.CutPrefix(text, "postgres://u:"); err == nil && isURL && strings.HasPrefix(secret, "geheimnis") && strings.Contains(n.place(), "geheimnis") {
			t.Errorf("%q is at %s", text, n.place())
		}
	})
}
