//go:build real

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/imports"
)

func TestNodesThatStartTogetherMigrateOnce(t *testing.T) {
	dsn, schema := pgtest.Shared(t).DSN("postgres"), pgtest.NewName("together_")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			d, err := connect(t.Context(), dsn, schema)
			if err != nil {
				t.Error(err)
				return
			}
			d.close()
		})
	}
	group.Wait()
}

func TestASchemaThatDoesNotFitIsRefused(t *testing.T) {
	dsn := pgtest.Shared(t).DSN("postgres")
	no := false
	p := &Postgres{DSN: dsn, Schema: pgtest.NewName("refused_"), Migrate: &no}
	if err := p.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	refuses := func(because string) {
		t.Helper()
		s, err := p.OpenStore(t.Context(), "test")
		if err == nil {
			_ = s.Close()
		}
		var refused *refusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), because) {
			t.Errorf("got %v, want %q", err, because)
		}
	}
	refuses("is not there, or the role of the DSN may not use it, this program needs version 7, and migrate is off: run `caddy hooks migrate-store --print --schema " + p.Schema + " --role postgres --from 0`")
	if from, to, err := p.MigrateStore(t.Context(), "test"); err != nil || from != 0 || to != thisRelease.version() {
		t.Fatalf("migrating from %d to %d: %v", from, to, err)
	}
	s := openModule(t, p)
	if _, err := addTo(t.Context(), s, "chat"); err != nil {
		t.Error(err)
	}
	if err := s.exec(t.Context(), "UPDATE @.meta SET version = version + 1"); err != nil {
		t.Fatal(err)
	}
	if from, to, err := p.MigrateStore(t.Context(), "test"); err != nil || from != thisRelease.version()+1 || to != from {
		t.Errorf("migrating a newer schema from %d to %d: %v", from, to, err)
	}
	newer := openModule(t, p) // a newer release may have added something
	if _, err := addTo(t.Context(), newer, "chat"); err != nil {
		t.Error(err)
	}
	if err := s.exec(t.Context(), "UPDATE @.meta SET oldest_compatible = version"); err != nil {
		t.Fatal(err)
	}
	refuses("install a newer release on this node")
	for version := 1; version < firstVersion; version++ {
		if err := s.exec(t.Context(), "UPDATE @.meta SET version = $1, oldest_compatible = 1", version); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("has version %d, which was never released, and this program begins with version 6: name another schema in the Caddyfile, or remove this one", version)
		refuses(want)
		if _, _, err := p.MigrateStore(t.Context(), "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("migrating version %d: %v", version, err)
		}
		if _, err := MigrationSQL(p.Schema, "nodes", version); err == nil || !strings.Contains(err.Error(), "otherwise 6 to 7") {
			t.Errorf("a script for version %d: %v", version, err)
		}
	}
}

func TestARoleWithTheLeastRightsIsEnough(t *testing.T) {
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	server.Exec(t, "postgres", "CREATE ROLE hooks LOGIN PASSWORD 'least'; REVOKE CREATE ON DATABASE postgres FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC")
	no := false
	p := &Postgres{DSN: server.TCP("hooks", "least", "postgres"), Migrate: &no}
	if err := p.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	script, err := MigrationSQL(p.schema("least"), "hooks", 0)
	if err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "postgres", script)
	opened, err := p.OpenStore(t.Context(), "least")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	s, ctx := opened.(*store), t.Context()
	fold := engine.Fold{Window: time.Minute, Max: 2, Alike: 1}
	for i := range 4 {
		run := &engine.Run{ChatID: "chat", Hook: "agent", Action: engine.Agent, Message: "hello", Timeout: time.Minute, CallbackURL: "https://example.com/",
			History: time.Hour, Key: &engine.Key{ID: [32]byte{byte(i)}}}
		if i > 1 {
			run.ChatID, run.Fold = "folded", fold
		}
		if i == 0 {
			run.Gates = []gate.Gate{onceAnHour("x")}
		}
		if err := s.Runs().Add(ctx, run, engine.Terms{Limits: engine.Limits{Queue: 100, Chat: 100}}); err != nil {
			t.Fatal(err)
		}
	}
	claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 4, Lease: time.Minute})
	if err != nil || len(claims) != 2 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	if _, _, err := s.Runs().Renew(ctx, claims, time.Minute); err != nil {
		t.Error(err)
	}
	if err := s.Runs().Cancel(ctx, claims[0].Run.ID, "somebody"); err != nil {
		t.Error(err)
	}
	for _, claim := range claims {
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "bye", HasText: true}, Session: engine.Session{Runner: "default", ID: "1"},
			Deliveries: []*engine.Delivery{{ID: engine.DeliveryID(claim.Run.ID, 0), RunID: claim.Run.ID, Callback: "https://example.com/", Body: "bye", Status: engine.Pending}}}
		if _, err := s.Runs().End(ctx, claim, end, engine.Batch{Max: 1, Lease: time.Minute}); err != nil {
			t.Error(err)
		}
	}
	due, _, err := s.Deliveries().Claim(ctx, engine.DeliveryBatch{Max: 2, Lease: time.Minute})
	if err != nil || len(due) != 2 {
		t.Fatalf("claimed %d deliveries, %v", len(due), err)
	}
	if _, err := s.Deliveries().Renew(ctx, due, time.Minute); err != nil {
		t.Error(err)
	}
	due[0].Status, due[1].Status = engine.Delivered, engine.Dead
	for _, d := range due {
		if err := s.Deliveries().Settle(ctx, d, 0, engine.Throttle{To: d.Destination(), Pause: time.Minute}); err != nil {
			t.Error(err)
		}
	}
	feed := s.Streams().Follow(claims[0].Run.ID)
	defer feed.Close()
	_, _, overdue := s.Runs().Overdue(ctx, 1)
	_, _, list := s.Runs().List(ctx, engine.Query{Limit: 10, Text: "hello", Deliveries: true})
	_, _, chats := s.Runs().Chats(ctx, engine.ChatQuery{Limit: 10})
	_, past := s.Runs().Past(ctx, "chat", 10, 1000)
	_, backlog := s.Runs().Backlog(ctx)
	_, get := s.Runs().Get(ctx, claims[0].Run.ID)
	_, retry := s.Deliveries().Retry(ctx, due[1].ID, nil)
	_, _, deliveries := s.Deliveries().List(ctx, engine.DeliveryQuery{Limit: 10})
	_, paused := s.Deliveries().Paused(ctx, 10)
	_, save := s.Settings().Save(ctx, []byte("{}"), []byte("{}"), 0)
	_, _, changes := s.Settings().Changes(ctx, 10, "")
	_, prune := s.Prune(ctx, engine.Limits{Retention: time.Nanosecond, Keys: 1, KeyAge: time.Nanosecond, HistoryBytes: 1})
	if script, err = MigrationSQL(p.schema("moved"), "hooks", 0); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "postgres", script)
	from := memory.New().Store()
	defer from.Close()
	if err := from.Runs().Add(ctx, newAdded("chat", ""), engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	if moved, err := p.Import(ctx, "moved", from, imports.Options{Runner: "default", Note: func(int) {}, Check: func(imports.Counts) error { return nil }}); err != nil || moved.Queued != 1 {
		t.Errorf("moved %+v from another store: %v", moved, err)
	}
	if err := errors.Join(overdue, list, chats, past, backlog, get, retry, deliveries, paused, save, changes, prune, s.Runs().Resume(ctx)); err != nil {
		t.Error(err)
	}
}

func TestAnotherRoleMigratesForTheNodes(t *testing.T) {
	t.Parallel()
	server, role := pgtest.Shared(t), pgtest.NewName("nodes_")
	server.Exec(t, "postgres", "CREATE ROLE "+role+" LOGIN")
	no := false
	p := &Postgres{DSN: strings.ReplaceAll(server.DSN("postgres"), "user=postgres", "user="+role), Schema: pgtest.NewName("for_nodes_"), Migrate: &no}
	if err := p.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.MigrateStore(t.Context(), "test"); err == nil || !strings.Contains(err.Error(), "may not use the schema "+p.Schema+", or not make it") {
		t.Errorf("the role of the nodes: %v", err)
	}
	if _, _, err := p.MigrateStoreAs(t.Context(), "test", "postgres://%%geheim%%"); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("with a DSN that is none: %v", err)
	}
	for _, before := range []int{0, thisRelease.version()} {
		if from, to, err := p.MigrateStoreAs(t.Context(), "test", server.DSN("postgres")); err != nil || from != before || to != thisRelease.version() {
			t.Fatalf("migrating from %d to %d: %v", from, to, err)
		}
	}
	s := openModule(t, p)
	if _, err := addTo(t.Context(), s, "chat"); err != nil {
		t.Error(err)
	}
}
