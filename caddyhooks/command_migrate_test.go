package caddyhooks_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
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
	if out, err := caddyhooks.RunVerb("migrate", "--from", file, "--to", "{env.HOOKS_DSN}", "--schema", schema); err == nil || !strings.Contains(err.Error(), "locked by another process") {
		t.Errorf("while Caddy runs: %v\n%s", err, out)
	}
	s.Stop()
	out, err := caddyhooks.RunVerb("migrate", "--from", file, "--to", "{env.HOOKS_DSN}", "--schema", schema)
	if err != nil || !strings.Contains(out, "Moved 2 queued and 1 ended runs, 0 deliveries, 1 keys, 0 sessions and the live settings.") {
		t.Fatalf("%v\n%s", err, out)
	}
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
