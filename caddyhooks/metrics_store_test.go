//go:build real

package caddyhooks_test

import (
	"slices"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// figuresOfStore are metrics that are left out while the store does not answer.
var figuresOfStore = []string{
	"caddy_hooks_budget_used_ratio", "caddy_hooks_deliveries_dead", "caddy_hooks_deliveries_pending", "caddy_hooks_open_questions", "caddy_hooks_queue_depth", "caddy_hooks_queue_oldest_seconds", "caddy_hooks_running", "caddy_hooks_store_bytes",
	"caddy_hooks_waiting_runs",
}

func TestMetricsWithPostgres(t *testing.T) {
	database := pgtest.New(t, pgtest.Config{})
	t.Setenv("HOOKS_TEST_DSN", database.DSN("postgres"))
	receiver := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, "hooks {\nenabled\nrunner echo\ntoken "+hookstest.Token+"\nstore postgres {env.HOOKS_TEST_DSN}\nchannel team log\nbudget $5/24h\n"+hookstest.WithCallbacks+"}")
	s.Post("/api/hooks/agent", `{"message":"hello","callbackUrl":"`+receiver.URL+`"}`)
	s.Post("/api/hooks/agent", `{"message":"hello","callbackUrl":"http://127.0.0.1:1"}`)
	receiver.Next()
	hookstest.Eventually(t, "all metrics are there", func() bool {
		m := scrape(t, s)
		return slices.Equal(m.families(), allMetrics) && m[key("deliveries_pending", "kind", "callback", "channel", "")] == 1 &&
			m[key("store_commit_changes_count")] > 0 && m[key("store_bytes")] > 0 && m[key("runs_total", "hook", "agent", "status", "completed")] == 2
	})
	wantAllMetrics(t, s.AdminRequest("GET", "/metrics", "").Body)

	for outage, o := range map[string]struct{ begin, end func() }{
		"it does not answer": {func() { database.Freeze(t) }, func() { database.Thaw(t) }},
		"it is stopped": {func() { database.Stop("immediate") }, func() {
			if err := database.Start(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		o.begin()
		hookstest.Eventually(t, "the store is unreachable: "+outage, func() bool { return scrape(t, s)[key("store_up")] == 0 })
		m := scrape(t, s)
		for _, name := range m.families() {
			if slices.Contains(figuresOfStore, name) {
				t.Errorf("%s is there while the store is not: %s", name, outage)
			}
		}
		if got, want := len(m.families()), len(allMetrics)-len(figuresOfStore); got != want || m[key("runs_total", "hook", "agent", "status", "completed")] != 2 {
			t.Errorf("%d metrics are left, want %d: %s", got, want, outage)
		}
		o.end()
		hookstest.Eventually(t, "all metrics are back", func() bool {
			m := scrape(t, s)
			return m[key("store_up")] == 1 && slices.Equal(m.families(), allMetrics)
		})
	}
}

// An instance that waits for its store at the start has metrics, too.
func TestMetricsBeforeTheStoreIsReached(t *testing.T) {
	database := newDatabase(t)
	database.Stop("fast")
	s, _ := newLoggedServer(t)
	s.Load("hooks {\nenabled\nrunner echo\ntoken " + hookstest.Token + "\nstore postgres {env.HOOKS_TEST_DSN}\nhook deploy\n}")
	wantUnreachable(t, s.Post("/api/hooks/deploy", `{}`))
	m := scrape(t, s)
	// Which hooks there are is not known yet.
	if up, ok := m[key("store_up")]; !ok || up != 0 || m[key("requests_total", "hook", "", "code", "503")] != 1 || m[key("runner_up", "runner", "default")] != 1 {
		t.Errorf("the metrics are %v", m)
	}
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	hookstest.Eventually(t, "the store is there", func() bool {
		m = scrape(t, s)
		return m[key("store_up")] == 1 && len(m.about("hook", "deploy")) > 0
	})
}
