package caddyhooks_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// metrics are the values of series, each by its name and labels as they are written.
type metrics map[string]float64

// scrape asks the admin endpoint, which every Caddy has.
func scrape(t testing.TB, s *hookstest.Server) metrics {
	t.Helper()
	resp := s.AdminRequest("GET", "/metrics", "")
	if resp.Status != 200 {
		t.Fatalf("the scrape is answered %d %s", resp.Status, resp.Body)
	}
	return parseMetrics(t, resp.Body)
}

// parseMetrics reads what an endpoint answered.
func parseMetrics(t testing.TB, text string) metrics {
	t.Helper()
	m := make(metrics)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "caddy_hooks_") {
			continue
		}
		line, _, _ = strings.Cut(line, " # ") // exemplars
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Fatalf("the line %q: %v", line, err)
		}
		m[line[:at]] = value
	}
	return m
}

// key is a series of the instance "default". Labels are pairs of name and value.
func key(name string, labels ...string) string { return keyOf("default", name, labels...) }

func keyOf(instance, name string, labels ...string) string {
	all := []string{fmt.Sprintf("hooks_instance=%q", instance)}
	for i := 0; i < len(labels); i += 2 {
		all = append(all, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	slices.Sort(all)
	return "caddy_hooks_" + name + "{" + strings.Join(all, ",") + "}"
}

// families are the names without those of the parts of a histogram.
func (m metrics) families() []string {
	names := make(map[string]struct{})
	for series := range m {
		name, _, _ := strings.Cut(series, "{")
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, part)
		}
		names[name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names))
}

// about are the series that have a label.
func (m metrics) about(name, value string) (series []string) {
	for s := range m {
		if strings.Contains(s, fmt.Sprintf("%s=%q", name, value)) {
			series = append(series, s)
		}
	}
	slices.Sort(series)
	return series
}

// allMetrics are the names of all metrics there are.
var allMetrics = []string{
	"caddy_hooks_accept_duration_seconds", "caddy_hooks_auth_failures_total", "caddy_hooks_budget_used_ratio",
	"caddy_hooks_build_info", "caddy_hooks_cost_usd_total", "caddy_hooks_deliveries_dead",
	"caddy_hooks_deliveries_pending", "caddy_hooks_delivery_attempts_total", "caddy_hooks_delivery_duration_seconds", "caddy_hooks_event_streams",
	"caddy_hooks_ignored_total", "caddy_hooks_open_questions", "caddy_hooks_paused", "caddy_hooks_queue_depth", "caddy_hooks_queue_limit", "caddy_hooks_queue_oldest_seconds", "caddy_hooks_repairs_total",
	"caddy_hooks_replays_total", "caddy_hooks_requests_total", "caddy_hooks_run_duration_seconds", "caddy_hooks_run_failures_total",
	"caddy_hooks_run_wait_seconds", "caddy_hooks_runner_up", "caddy_hooks_running", "caddy_hooks_runs_total", "caddy_hooks_settings_changes_total",
	"caddy_hooks_settings_problems", "caddy_hooks_store_bytes", "caddy_hooks_store_commit_changes", "caddy_hooks_store_commit_duration_seconds",
	"caddy_hooks_store_up", "caddy_hooks_tokens_total", "caddy_hooks_waiting_runs", "caddy_hooks_workers",
}

// wantAllMetrics has the linter of promtool look at an answer, and checks that all metrics are in it with a text of help.
func wantAllMetrics(t *testing.T, text string) {
	t.Helper()
	var own []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "caddy_hooks_") { // promtool finds fault with some of Caddy's own
			own = append(own, line)
		}
	}
	if problems, err := promlint.New(strings.NewReader(strings.Join(own, ""))).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v\n%+v", err, problems)
	}
	if got := parseMetrics(t, text).families(); !slices.Equal(got, allMetrics) {
		t.Errorf("the metrics are\n%q, want\n%q", got, allMetrics)
	}
	for _, name := range allMetrics {
		if !strings.Contains(text, "# HELP "+name+" ") {
			t.Errorf("%s has no help", name)
		}
	}
}

// situation is what makes a metric move.
type situation struct {
	name string
	do   func()
	want []string // series that are greater afterwards
	down []string // series that are 0 afterwards, and were not before
	zero []string // series that are 0 afterwards
}

func TestEveryMetricMoves(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.FreshFor, 0)
	rn, _, release := hookstest.HeldRunner(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	}))
	t.Cleanup(receiver.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	t.Setenv("HOOKS_TEST_SECRET", "s3cret")
	site := "hooks {\nenabled\ntoken " + hookstest.Token + "\nworkers 2\nqueue_limit 50\nmax_request 8MB\nmax_payload 8MB\nbudget $5/24h\nrunner default http " + rn.URL + "\nrunner far http " + gone.URL + "\n" +
		hookstest.WithCallbacks + "channel team log\n" + `
	hook signed {
		auth hmac X-Sig s3cret
	}
	hook picky {
		only header X-Event yes
	}
	hook asked {
		action agent
		sync
		runner far
	}
	hook far {
		action agent
		runner far
	}
}
metrics /metrics`
	s := hookstest.StartSite(t, site)
	s.PutMapping("broken", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"{env.HOOKS_TEST_SECRET}"}`)
	if got := scrape(t, s)[key("settings_changes_total")]; got != 1 {
		t.Errorf("%v changes of the settings", got)
	}
	if err := os.Unsetenv("HOOKS_TEST_SECRET"); err != nil { // Setenv puts it back
		t.Fatal(err)
	}
	s.Restart(site)

	agent := func(fields string, headers ...string) hookstest.Response {
		t.Helper()
		return s.Post("/api/hooks/agent", "{"+fields+"}", headers...)
	}
	var stop context.CancelFunc
	situations := []situation{
		{name: "a hook is left out", do: func() {}, want: []string{key("settings_problems")}},
		{name: "a request becomes a run", do: func() { s.Post("/api/hooks/wake", `{"text":"hello"}`) }, want: []string{
			key("requests_total", "hook", "wake", "code", "200"), key("accept_duration_seconds_count"), key("run_wait_seconds_count"),
			key("runs_total", "hook", "wake", "status", "completed"), key("run_duration_seconds_count", "hook", "wake"),
			key("store_commit_duration_seconds_count"), key("store_commit_changes_sum"),
		}},
		// The file grows by 4 MB at a time, and some of that may be free.
		{name: "the file grows", do: func() { s.Post("/api/hooks/wake", `{"text":"`+strings.Repeat("long ", 1<<20)+`"}`) }, want: []string{key("store_bytes")}},
		{name: "a caller waits", do: func() { agent(`"message":"hi","syncResponse":true`) }, want: []string{
			key("requests_total", "hook", "agent", "code", "200"), key("runs_total", "hook", "agent", "status", "completed")}},
		{name: "a name that no hook has", do: func() { s.Post("/api/hooks/nothing", `{}`) }, want: []string{key("requests_total", "hook", "", "code", "404")}},
		{name: "the run API", do: func() { s.Post("/api/hooks/runs/nothing", "") }, want: []string{key("requests_total", "hook", "runs", "code", "405")}},
		{name: "another method", do: func() { s.Request("PURGE", "/api/hooks/signed", "") }, want: []string{key("requests_total", "hook", "signed", "code", "405")}},
		{name: "a wrong token", do: func() { s.Request("POST", "/api/hooks/wake", `{}`) }, want: []string{
			key("auth_failures_total", "hook", "wake", "reason", "token"), key("requests_total", "hook", "wake", "code", "401")}},
		{name: "a wrong signature", do: func() { s.Request("POST", "/api/hooks/signed", `{}`, "X-Sig", "00") }, want: []string{
			key("auth_failures_total", "hook", "signed", "reason", "signature")}},
		{name: "a repeated request", do: func() {
			for range 2 {
				agent(`"message":"once"`, hookstest.Key("a key")...)
			}
		}, want: []string{key("replays_total", "hook", "agent"), key("requests_total", "hook", "agent", "code", "202")}},
		{name: "a condition", do: func() { s.Post("/api/hooks/picky", `{}`) }, want: []string{
			key("ignored_total", "hook", "picky"), key("requests_total", "hook", "picky", "code", "200")}},
		{name: "the runner fails", do: func() { agent(`"message":"fail"`) }, want: []string{
			key("runs_total", "hook", "agent", "status", "failed"), key("run_failures_total", "hook", "agent", "reason", "runner_failed")}},
		{name: "an answer does not match its schema", do: func() {
			agent(`"message":"words","syncResponse":true,"responseJsonSchema":{"type":"object","required":["n"]}`)
		}, want: []string{
			key("repairs_total", "hook", "agent"), key("run_failures_total", "hook", "agent", "reason", "schema_unmet")}},
		{name: "a callback arrives", do: func() { agent(`"message":"a","callbackUrl":"` + receiver.URL + `/?status=204"`) }, want: []string{
			key("delivery_attempts_total", "kind", "callback", "channel", "", "outcome", "delivered"), key("delivery_duration_seconds_count", "kind", "callback", "channel", "")}},
		{name: "a callback is given up", do: func() { agent(`"message":"a","callbackUrl":"` + receiver.URL + `/?status=410"`) }, want: []string{
			key("delivery_attempts_total", "kind", "callback", "channel", "", "outcome", "dead"), key("deliveries_dead", "kind", "callback", "channel", "")},
			zero: []string{key("deliveries_pending", "kind", "callback", "channel", "")}}, // the store counts it a moment later than the dead
		{name: "a callback is tried again", do: func() { agent(`"message":"a","callbackUrl":"` + receiver.URL + `/?status=500"`) }, want: []string{
			key("delivery_attempts_total", "kind", "callback", "channel", "", "outcome", "retried"), key("deliveries_pending", "kind", "callback", "channel", "")}},
		{name: "an answer goes to a channel", do: func() { agent(`"message":"a","deliver":true,"channel":"team","to":"somebody"`) }, want: []string{
			key("delivery_attempts_total", "kind", "channel", "channel", "team", "outcome", "delivered"), key("delivery_duration_seconds_count", "kind", "channel", "channel", "team")}},
		{name: "all workers are busy, the time of a run is up, and nobody takes another one on", do: func() {
			agent(`"message":"hold","timeoutSeconds":1`)
			for i := range 3 {
				agent(fmt.Sprintf(`"message":"hold","chatId":"chat %d"`, i))
			}
			agent(`"message":"late","queueTimeSeconds":1`)
		}, want: []string{key("running"), key("queue_depth"), key("queue_oldest_seconds"), key("runs_total", "hook", "agent", "status", "timed_out"),
			key("runs_total", "hook", "agent", "status", "expired")}},
		{name: "a run is cancelled", do: func() {
			s.Post("/api/hooks/runs/"+agent(`"message":"late"`).Field(t, "runId").(string)+"/cancel", "")
		}, want: []string{key("runs_total", "hook", "agent", "status", "cancelled"), key("requests_total", "hook", "runs", "code", "200")}},
		{name: "somebody follows a run", do: func() {
			var ctx context.Context
			ctx, stop = context.WithCancel(t.Context())
			openStream(t, ctx, s, "/api/hooks/runs/"+agent(`"message":"late"`).Field(t, "runId").(string)+"/events")
		}, want: []string{key("event_streams")}},
		{name: "it is over", do: func() {
			stop()
			close(release)
		}, want: []string{key("run_wait_seconds_count")}, down: []string{key("event_streams"), key("queue_depth"), key("queue_oldest_seconds"), key("running")}},
		{name: "a caller waits for a runner that is not there", do: func() { s.Post("/api/hooks/asked", `{}`) }, want: []string{
			key("run_failures_total", "hook", "asked", "reason", "runner_unavailable"), key("requests_total", "hook", "asked", "code", "503")}, down: []string{key("runner_up", "runner", "far")}},
		{name: "a run waits for it", do: func() { s.Post("/api/hooks/far", `{}`) }, want: []string{key("requests_total", "hook", "far", "code", "202")}},
		{name: "a client is throttled", do: func() {
			for range 25 {
				s.Request("POST", "/api/hooks/wake", `{}`)
			}
		}, want: []string{key("auth_failures_total", "hook", "wake", "reason", "throttled"), key("requests_total", "hook", "wake", "code", "429")}},
		{name: "a change of the settings", do: func() { s.PatchSettings(`{"historySeconds":60}`) }, want: []string{key("settings_changes_total")}},
	}
	for _, c := range situations {
		before := scrape(t, s)
		if c.name == "a hook is left out" {
			before = metrics{}
		}
		c.do()
		var after metrics
		moved := func() bool {
			after = scrape(t, s)
			return !slices.ContainsFunc(c.want, func(series string) bool { return after[series] <= before[series] }) &&
				!slices.ContainsFunc(c.down, func(series string) bool { return after[series] != 0 || before[series] == 0 }) &&
				!slices.ContainsFunc(c.zero, func(series string) bool { return after[series] != 0 })
		}
		hookstest.Eventually(t, c.name+" moves "+strings.Join(append(c.want, c.down...), ", "), moved)
	}
	last := scrape(t, s)
	for series, want := range map[string]float64{
		key("workers"): 2, key("queue_limit"): 50, key("store_up"): 1, key("runner_up", "runner", "default"): 1,
		key("run_failures_total", "hook", "agent", "reason", "interrupted"): 0, // it is there before it counts
	} {
		if got, ok := last[series]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", series, got, ok, want)
		}
	}
	wantAllMetrics(t, s.AdminRequest("GET", "/metrics", "").Body)
	wantAllMetrics(t, s.Request("GET", "/metrics", "").Body)
}

// openStream opens a stream of events until ctx is done.
func openStream(t *testing.T, ctx context.Context, s *hookstest.Server, path string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+hookstest.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
}
