//go:build real

package caddyhooks_test

import (
	"os"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

const secretOfDatabase = "geheimnis-der-datenbank"

// newDatabase starts a server with a role that has a password, and names the DSN in the environment.
func newDatabase(t *testing.T) *pgtest.Server {
	t.Helper()
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	server.Exec(t, "postgres", "CREATE ROLE hooks LOGIN PASSWORD '"+secretOfDatabase+"'; GRANT CREATE ON DATABASE postgres TO hooks")
	t.Setenv("HOOKS_TEST_DSN", server.TCP("hooks", secretOfDatabase, "postgres"))
	return server
}

func wantUnreachable(t *testing.T, resp hookstest.Response) {
	t.Helper()
	resp.WantError(t, 503, "The store cannot be reached")
	if after := resp.Header.Get("Retry-After"); after != "5" {
		t.Errorf("Retry-After is %q", after)
	}
}

func TestHooksStartWithoutTheirDatabase(t *testing.T) {
	database := newDatabase(t)
	database.Stop("fast")
	s, log := newLoggedServer(t)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello"))
	const store = "store postgres {env.HOOKS_TEST_DSN} {\nlease 5s\n}"
	s.Load(hookstest.Hooks(rn, store+"\nhealth /healthz"))
	wantUnreachable(t, s.Post("/api/hooks/agent", `{"message":"early"}`))
	wantHealth(t, s, "/healthz", 503, `{"live":true,"ready":false,"reasons":["store_unreachable"]}`)
	wantHealth(t, s, "/healthz/live", 200, `{"live":true,"ready":false,"reasons":["store_unreachable"]}`)
	wantUnreachable(t, s.Request("GET", "/api/hooks/runs/00000000-0000-7000-8000-000000000000", ""))
	health := s.AdminRequest("GET", "/hooks/health", "")
	if health.Status != 503 || health.Field(t, "ready") != false || !strings.Contains(health.Body, "the store cannot be reached: ") {
		t.Errorf("health: %d %s", health.Status, health.Body)
	}
	s.AdminRequest("GET", "/hooks/settings", "").WantAdminError(t, 503, "waits for its store")
	s.Reload(hookstest.Hooks(rn, store+"\nworkers 3"))
	wantUnreachable(t, s.Post("/api/hooks/agent", `{"message":"early"}`))
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	hookstest.Eventually(t, "the hooks are ready", func() bool { return s.AdminRequest("GET", "/hooks/health", "").Status == 200 })
	s.Ended(s.Accept(`{"message":"hello"}`))
	for _, path := range []string{"/hooks/health", "/hooks/settings", "/hooks/about", "/hooks/overview", "/config/"} {
		if body := s.AdminRequest("GET", path, "").Body; strings.Contains(body, secretOfDatabase) {
			t.Errorf("GET %s shows the password: %s", path, body)
		}
	}
	text := log()
	if strings.Contains(text, secretOfDatabase) {
		t.Error("the log has the password")
	}
	if n := strings.Count(text, "hooks start as soon as it can"); n != 2 {
		t.Errorf("it is logged %d times that two configurations wait", n)
	}
	if !strings.Contains(text, `"store":"postgres `+database.Host) {
		t.Error("the start line does not tell where the store is")
	}
}

func TestWhileTheDatabaseIsUnreachable(t *testing.T) {
	database := newDatabase(t)
	s, log := newLoggedServer(t)
	rn, _, release := hookstest.HeldRunner(t)
	s.Load(hookstest.Hooks(rn, "store postgres {env.HOOKS_TEST_DSN}"))
	kept := s.Accept(`{"message":"kept"}`)
	s.Ended(kept)
	rn.Next()
	caller := s.Hold(t.Context(), `{"message":"hold","syncResponse":true}`)
	turn := rn.Next()

	database.Stop("immediate")
	hookstest.Eventually(t, "the store is known to be unreachable", func() bool { return s.Post("/api/hooks/agent", `{"message":"lost"}`).Status == 503 })
	wantUnreachable(t, s.Post("/api/hooks/agent", `{"message":"lost"}`))
	wantUnreachable(t, s.Post("/api/hooks/agent", `{"message":"lost","syncResponse":true}`))
	// Another node may know better.
	wantUnreachable(t, s.Request("POST", "/api/hooks/agent", `{"message":"lost"}`, "Authorization", "Bearer a-token-that-is-not-known-here"))
	wantUnreachable(t, s.Post("/api/hooks/no-such-hook", `{}`))
	wantUnreachable(t, s.LookUp(kept, ""))
	wantUnreachable(t, s.LookUp(kept, "?wait=20"))
	s.AdminRequest("GET", "/hooks/runs", "").WantAdminError(t, 503, "the store cannot be reached")
	if health := s.AdminRequest("GET", "/hooks/health", ""); health.Status != 503 {
		t.Errorf("health: %d %s", health.Status, health.Body)
	}
	close(release) // and the end of the turn cannot be stored
	wantUnreachable(t, hookstest.ReceiveWithin(t, "the answer to the caller", caller))

	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	hookstest.Eventually(t, "the hooks are ready", func() bool { return s.AdminRequest("GET", "/hooks/health", "").Status == 200 })
	if run := s.Ended(turn.Text("runId")); run.Status != "completed" {
		t.Errorf("the turn that ended meanwhile is %s", run.Status)
	}
	s.Ended(s.Accept(`{"message":"hello"}`))
	text := log()
	if strings.Contains(text, secretOfDatabase) {
		t.Error("the log has the password")
	}
	if away, back := strings.Count(text, "the store cannot be reached: nothing is accepted"), strings.Count(text, `"the store is back"`); away != 1 || back != 1 {
		t.Errorf("it is logged %d times that the store is unreachable, and %d times that it is back", away, back)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"level":"error"`) && !strings.Contains(line, "nothing is accepted") && !strings.Contains(line, `"logger":"admin.api"`) {
			t.Errorf("logged besides: %s", line)
		}
	}
}

// An agent whose answer cannot be stored is told to send it again.
func TestAnAgentAnswersWhileTheDatabaseIsUnreachable(t *testing.T) {
	database := newDatabase(t)
	rn, next := laterRunner(t)
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, "store postgres {env.HOOKS_TEST_DSN}"))
	id := s.Accept(`{"message":"hello"}`)
	reply := next()
	s.Waiting(id)
	database.Stop("immediate")
	hookstest.Eventually(t, "the store is known to be unreachable", func() bool { return s.Post("/api/hooks/agent", `{"message":"lost"}`).Status == 503 })
	wantUnreachable(t, reply.post(t, `{"text":"the answer"}`))
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	hookstest.Eventually(t, "the answer is stored", func() bool { return reply.post(t, `{"text":"the answer"}`).Status == 200 })
	if run := s.Ended(id); run.Status != "completed" {
		t.Errorf("the run is %s", run.Body)
	}
}

func TestTheLogTellsThatTheDatabaseRefusesUs(t *testing.T) {
	database := newDatabase(t)
	s, log := newLoggedServer(t)
	s.Load(hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("hello")), "store postgres {env.HOOKS_TEST_DSN}"))
	database.Exec(t, "postgres", "ALTER ROLE hooks PASSWORD 'another'")
	database.Stop("immediate")
	hookstest.Eventually(t, "the store is known to be unreachable", func() bool { return s.Post("/api/hooks/agent", `{"message":"lost"}`).Status == 503 })
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	const line = "the store refuses this node"
	hookstest.Eventually(t, "the log tells that it refuses us", func() bool { return strings.Contains(log(), line) })
	if text := log(); strings.Contains(text, secretOfDatabase) || !strings.Contains(text, "28P01") {
		t.Errorf("logged: %s", text)
	}
	database.Exec(t, "postgres", "ALTER ROLE hooks PASSWORD '"+secretOfDatabase+"'")
	hookstest.Eventually(t, "the hooks are ready", func() bool { return s.AdminRequest("GET", "/hooks/health", "").Status == 200 })
	if n := strings.Count(log(), line); n != 1 {
		t.Errorf("that was logged %d times", n)
	}
	for line := range strings.Lines(log()) {
		if strings.Contains(line, "leases could not be renewed") {
			t.Errorf("nothing was under way, and yet: %s", line)
		}
	}
}

func TestMigrateStoreMakesTheTables(t *testing.T) {
	newDatabase(t)
	out, err := caddyhooks.RunVerb("migrate-store", "--print", "--schema", "printed", "--role", "nodes")
	if err != nil || !strings.Contains(out, `CREATE SCHEMA IF NOT EXISTS "printed";`) || !strings.Contains(out, `GRANT USAGE ON SCHEMA "printed" TO "nodes";`) {
		t.Errorf("%v\n%.500s", err, out)
	}
	for _, want := range []string{" went from version 0 to 7.\n", " has version 7 already.\n"} {
		out, err := caddyhooks.RunVerb("migrate-store", "{env.HOOKS_TEST_DSN}", "--schema", "made")
		if err != nil || !strings.HasSuffix(out, want) || strings.Contains(out, secretOfDatabase) {
			t.Errorf("%v, %q, want %q", err, out, want)
		}
	}
	t.Setenv("HOOKS_TEST_DSN", strings.ReplaceAll(os.Getenv("HOOKS_TEST_DSN"), secretOfDatabase, "falsches-geheimnis"))
	if out, err := caddyhooks.RunVerb("migrate-store", "{env.HOOKS_TEST_DSN}"); err == nil || strings.Contains(out+err.Error(), "geheimnis") {
		t.Errorf("with a wrong password: %v %s", err, out)
	}
}

func TestADSNInTheCaddyfileIsAWarning(t *testing.T) {
	newDatabase(t)
	s, log := newLoggedServer(t)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello"))
	s.Globals = strings.ReplaceAll(s.Globals, "DEBUG", "INFO") // otherwise Caddy logs the configuration
	s.Load(hookstest.Hooks(rn, `store postgres "`+os.Getenv("HOOKS_TEST_DSN")+`"`))
	settings := s.AdminRequest("GET", "/hooks/settings", "").Body
	if !strings.Contains(settings, "store: the DSN is part of what Caddy shows at /config/") {
		t.Errorf("there is no warning: %s", settings)
	}
	if strings.Contains(settings, secretOfDatabase) || strings.Contains(log(), secretOfDatabase) {
		t.Error("the password is shown")
	}
}
