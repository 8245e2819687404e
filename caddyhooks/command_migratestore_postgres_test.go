//go:build real

package caddyhooks_test

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

func TestMigrateStoreBringsAllStoresOfAConfigurationUpToDate(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	const adminPassword = "geheimnis-des-admins"
	server.Exec(t, "postgres", "CREATE ROLE hooks LOGIN PASSWORD '"+secretOfDatabase+"'; CREATE ROLE admin LOGIN PASSWORD '"+adminPassword+"'; "+
		"GRANT CREATE ON DATABASE postgres TO admin")
	server.Exec(t, "postgres", "CREATE DATABASE printed")
	t.Setenv("HOOKS_TEST_DSN", server.TCP("hooks", secretOfDatabase, "postgres"))
	t.Setenv("HOOKS_TEST_ADMIN", server.TCP("admin", adminPassword, "postgres"))
	file := writeConfig(t, "Caddyfile", twoStores)
	run := func(args ...string) (string, error) {
		t.Helper()
		out, err := caddyhooks.RunVerb(append([]string{"migrate-store", "--config", file}, args...)...)
		told := out
		if err != nil {
			told += err.Error()
		}
		if strings.Contains(told, "geheimnis") {
			t.Errorf("%q shows a password: %s", args, told)
		}
		return out, err
	}

	// Each store is told of, also if another one fails.
	if out, err := run(); err == nil || !strings.Contains(err.Error(), "may not use the schema hooks_default, or not make it") || !strings.Contains(err.Error(), "schema other") {
		t.Errorf("as the role of the nodes: %v\n%s", err, out)
	}
	place := server.Host + ":" + server.Port + "/postgres schema "
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"--instance", "second"}, place + "other went from version 0 to 7.\n"},
		{nil, place + "hooks_default went from version 0 to 7.\n" + place + "other has version 7 already.\n"},
	} {
		if out, err := run(append(step.args, "--dsn-env", "HOOKS_TEST_ADMIN")...); err != nil || out != step.want {
			t.Errorf("%v, got %q, want %q", err, out, step.want)
		}
	}
	if out, err := run(); err != nil || strings.Count(out, " has version 7 already.\n") != 2 {
		t.Errorf("as the role of the nodes, when all is done: %v\n%s", err, out)
	}
	t.Setenv("HOOKS_TEST_ADMIN", server.TCP("admin", "falsches-geheimnis", "postgres"))
	if out, err := run("--dsn-env", "HOOKS_TEST_ADMIN"); err == nil {
		t.Errorf("with a wrong password: %s", out)
	}

	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "store postgres {env.HOOKS_TEST_DSN} {\nmigrate off\n}"))
	s.Ended(s.Accept(`{"message":"hello"}`))

	out, err := run("--print")
	if err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "printed", out)
	for _, schema := range []string{"hooks_default", "other"} {
		if !pgtest.Ask[bool](t, server, "printed", "SELECT has_function_privilege('hooks', oid, 'EXECUTE') FROM pg_proc WHERE proname = 'durable_1' AND pronamespace = '"+schema+"'::regnamespace") {
			t.Errorf("the role of the nodes may not use the schema %s", schema)
		}
	}
	if out, err := run("--print", "--instance", "second", "--role", "somebody"); err != nil || !strings.Contains(out, `GRANT USAGE ON SCHEMA "other" TO "somebody"`) || strings.Contains(out, "hooks_default") {
		t.Errorf("%v\n%.300s", err, out)
	}
}
