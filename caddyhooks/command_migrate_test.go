//go:build real

package caddyhooks_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres"
)

func TestMigrateMovesAnInstanceToPostgreSQL(t *testing.T) {
	dsn, schema := pgtest.Shared(t).DSN("postgres"), pgtest.NewName("moved_")
	t.Setenv("HOOKS_DSN", dsn)
	file := filepath.Join(t.TempDir(), "hooks.db")
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\ndrain_timeout 1ms\nstore bolt "+file))
	fine := s.Accept(`{"message":"fine"}`)
	s.Ended(fine)
	rn.Next()
	s.PutMapping("saved", `{"action":"agent","messageTemplate":"got {a}"}`)
	first := s.Accept(`{"message":"hold","chatId":"c"}`)
	rn.Next()
	second := s.Accept(`{"message":"second","chatId":"c"}`, hookstest.Key("k")...)
	if out, err := caddyhooks.RunVerb("migrate", "--from", file, "--to", "{env.HOOKS_DSN}", "--schema", schema); err == nil || !strings.Contains(err.Error(), "in use: stop Caddy first") {
		t.Errorf("while Caddy runs: %v\n%s", err, out)
	}
	s.Stop()
	arguments := []string{"migrate", "--from", file, "--to", "{env.HOOKS_DSN}", "--schema", schema}
	shown := func(name string, more ...string) {
		t.Helper()
		out, errs, err := command(t, append(arguments, more...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		for _, v := range variableOfFiles {
			out = v.pattern.ReplaceAllString(out, v.golden)
		}
		wantGolden(t, name, "$ caddy hooks "+strings.Join(append(arguments, more...), " ")+"\n"+out+"-- beside the answer --\n"+errs,
			file, "/var/lib/caddy/hooks.db", schema, "hooks_default", place(t, dsn), "db.example.com:5432/hooks")
	}
	shown("migrate-dry-run", "--dry-run")
	out, _, err := command(t, append(arguments, "--dry-run", "--json")...)
	var told struct {
		Moved             bool
		Unfinished, Ended int
	}
	if err != nil || json.Unmarshal([]byte(out), &told) != nil || told.Moved || told.Unfinished != 2 || told.Ended != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	shown("migrate")
	if _, err := caddyhooks.RunVerb("migrate", "--from", file, "--to", "{env.HOOKS_DSN}", "--schema", schema); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second time: %v", err)
	}
	close(release)
	s.Load(hookstest.Hooks(rn, "store postgres {env.HOOKS_DSN} {\nschema "+schema+"\n}"))
	s.Settle()
	for _, id := range []string{fine, first, second} {
		if run := s.Ended(id); run.Status != "completed" {
			t.Errorf("run %s is %s", id, run.Status)
		}
	}
	if got := []string{rn.Next().Text("message"), rn.Next().Text("message")}; got[0] != "hold" || got[1] != "second" {
		t.Errorf("carried out %q", got)
	}
	if got := s.Accept(`{"message":"second","chatId":"c"}`, hookstest.Key("k")...); got != second {
		t.Errorf("a repeated request became run %s, want %s", got, second)
	}
	s.Ended(s.Post("/api/hooks/saved", `{"a":1}`).Field(t, "runId").(string))
}

// place is where a database is, as operators are told.
func place(t *testing.T, dsn string) string {
	t.Helper()
	store := &postgres.Postgres{DSN: dsn, Schema: "s"}
	if err := store.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(store.Place("default"), " schema s")
}
