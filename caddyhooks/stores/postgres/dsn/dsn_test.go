package dsn

import (
	"errors"
	"strings"
	"testing"
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
		n, err := Parse(test.dsn, nil)
		if err != nil {
			t.Errorf("%s: %v", test.dsn, err)
			continue
		}
		got := strings.Join(n.Warnings(test.dsn), "; ")
		if (got == "") != (test.warns == "") || !strings.Contains(got, test.warns) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s", test.dsn, got)
		}
		if got := n.Warnings("{env.HOOKS_DSN}"); strings.Contains(strings.Join(got, ""), "/config/") {
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
		n, err := Parse(dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n.Place() != want {
			t.Errorf("%s is at %s, want %s", dsn, n.Place(), want)
		}
		if err := n.Plain(errors.New("broke at secret, of " + dsn)); strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
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
		"postgresql://hooks:geheimnis@127.0.0.1/hooks?sslmode=on": "is not one of disable, allow",
		"$GEHEIMNIS": "write {env.HOOKS_DSN}",
		`"postgres://hooks:geheimnis@127.0.0.1/hooks"`: "begins with a quote",
		"hooks:geheimnis@127.0.0.1/hooks":              "it is a URL such as",
	} {
		if _, err := Parse(text, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheimnis") {
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
		if _, err := Parse(text, nil); err != nil {
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
		n, err := Parse(text, nil)
		if err != nil && strings.Contains(err.Error(), "geheimnis") && !strings.Contains(text, "/geheimnis") {
			t.Errorf("%q: %v", text, err)
		}
		// The password of a URL that looks like one is nowhere else.
		if secret, isURL := strings.CutPrefix(text, "postgres://u:"); err == nil && isURL && strings.HasPrefix(secret, "geheimnis") && strings.Contains(n.Place(), "geheimnis") {
			t.Errorf("%q is at %s", text, n.Place())
		}
	})
}
