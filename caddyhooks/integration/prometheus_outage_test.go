//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

const (
	// fasterAlerts is how many times faster the example's alerts are here.
	fasterAlerts = 100
	// scrapeInterval is short enough for several scrapes in the shortest range of an alert, which is 3 s here.
	scrapeInterval = "500ms"
	// alertPatience is how long an alert may take. On a busy machine everything is late.
	alertPatience = 2 * time.Minute
)

// Debian's Prometheus scrapes a Caddy with load. Every panel of the dashboard has data. Then parts are broken and mended one after
// the other, and every alert of the example fires and is over.
func TestPrometheusSeesALoadedCaddyAndItsOutages(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.waitUntil(t, "Prometheus has all targets and rules", func() bool {
		return len(w.query(t, `up == 1`)) == 2 && len(w.query(t, `caddy_hooks_runs_total{status="completed"} > 0`)) > 0 && w.rulesAreHealthy(t)
	})
	t.Run("every panel of the dashboard has data", func(t *testing.T) { wantDataInEveryPanel(t, w) })
	if firing := w.firing(t); len(firing) > 0 {
		t.Fatalf("nothing is broken, and these fire: %v", firing)
	}
	var fired []string
	for _, outage := range []struct {
		name   string
		alerts []string
		broken func(t *testing.T) (mend func(t *testing.T))
	}{
		{"wrong tokens, an agent that fails, receivers that fail, a full disk",
			[]string{"HooksRequestsUnauthenticated", "HooksRunsFail", "HooksDeliveriesDead", "HooksDeliveriesPending", "HooksDiskAlmostFull"}, w.breakAround},
		{"an agent that is unreachable", []string{"HooksRunnerUnreachable", "HooksQueueFilling", "HooksQueueAlmostFull", "HooksOldestRunWaits"}, w.breakRunner},
		{"a slow database", []string{"HooksStoreSlow"}, w.slowDownDatabase},
		{"a database that is unreachable", []string{"HooksStoreUnreachable", "HooksRequestsRefused"}, w.breakDatabase},
		{"Caddy is down", []string{"HooksTargetDown"}, w.killCaddy},
		{"a pause that is forgotten", []string{"HooksPauseForgotten"}, w.pause},
		{"budgets that are used", []string{"HooksBudgetNearlyUsed", "HooksBudgetUsedUp"}, w.spend},
		{"a question that nobody answers", []string{"HooksQuestionsWait"}, w.leaveQuestion},
		{"a setting that does not go with the Caddyfile", []string{"HooksSettingsNotInForce"}, w.breakSetting},
	} {
		fired = append(fired, outage.alerts...)
		if !t.Run(outage.name, func(t *testing.T) {
			began := time.Now()
			mend := outage.broken(t)
			w.waitUntil(t, "all of them fire", func() bool { return containsAll(w.firing(t), outage.alerts) })
			fires := time.Since(began)
			mend(t)
			w.waitUntil(t, "none of them fires", func() bool { return !containsAny(w.firing(t), outage.alerts) })
			t.Logf("fired after %s, over %s later", fires.Round(time.Second/10), (time.Since(began) - fires).Round(time.Second/10))
		}) {
			return
		}
	}
	var all []string
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(w.rules, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	slices.Sort(fired)
	if !slices.Equal(all, fired) {
		t.Errorf("the alerts are %v, and these were tried: %v", all, fired)
	}
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}

func containsAny(all, some []string) bool {
	return slices.ContainsFunc(some, func(one string) bool { return slices.Contains(all, one) })
}

// watched is a Caddy with a runner, a database and receivers of callbacks that can be broken, and the Prometheus that looks at it.
type watched struct {
	whole      *testing.T // and not a part of it, at the end of which its processes would be killed
	caddy      *hookstest.Deployment
	process    *hookstest.Process
	database   *pgtest.Server
	disk       string
	prometheus string
	rules      string

	agent                      atomic.Int32 // status that the runner answers with
	gone, overloaded           *httptest.Server
	goneStatus, overloadStatus atomic.Int32
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{whole: t, database: pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})}
	w.database.Exec(t, "postgres", "CREATE DATABASE hooks")
	answering := func(status *atomic.Int32) *httptest.Server {
		status.Store(http.StatusOK)
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Retry-After", "1")
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(int(status.Load()))
			fmt.Fprint(rw, `{"text":"done","usage":[{"model":"m","inputTokens":900,"outputTokens":100,"costUsd":0.9}]}`)
		}))
		t.Cleanup(server.Close)
		return server
	}
	runner := answering(&w.agent)
	w.gone, w.overloaded = answering(&w.goneStatus), answering(&w.overloadStatus)
	w.caddy = hookstest.NewBinary(t).Deploy(t, onlyWarnings, `metrics /metrics
	hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+runner.URL+`
		store postgres {env.HOOKS_DSN}
		queue_limit 100
		chat_limit 0
		callbacks {
			secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
			allow 127.0.0.1
			ports *
		}
		channel ops log
		hook approved {
			action agent
			ask ops somebody before run
		}
	}`)
	w.caddy.Env = []string{"HOOKS_DSN=" + w.database.TCP("postgres", pgtest.Password, "hooks")}
	w.process = w.caddy.Start(t)
	w.mountDisk(t)
	exporter := hookstest.FreePort(t)
	startProcess(t, exporter, "prometheus-node-exporter", "--collector.disable-defaults", "--collector.filesystem", "--web.listen-address", "127.0.0.1:"+exporter)
	w.startPrometheus(t, "127.0.0.1:"+exporter)

	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	load.Go(func() { w.load(ctx) })
	t.Cleanup(func() {
		stop()
		load.Wait()
	})
	return w
}

// mountDisk makes a small disk, as that of Caddy's data directory may be.
func (w *watched) mountDisk(t *testing.T) {
	t.Helper()
	w.disk = t.TempDir()
	if err := syscall.Mount("tmpfs", w.disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatalf("mounting: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(w.disk, syscall.MNT_DETACH) })
}

// startPrometheus starts Prometheus with the example's files, in which time goes faster.
func (w *watched) startPrometheus(t *testing.T, exporter string) {
	t.Helper()
	dir := t.TempDir()
	w.rules = faster(t, string(readFile(t, filepath.Join(root, "examples", "prometheus", "alerts.yml"))))
	w.rules = strings.ReplaceAll(w.rules, `mountpoint="/"`, `mountpoint="`+w.disk+`"`)
	config := strings.NewReplacer("_interval: 15s", "_interval: "+scrapeInterval, "127.0.0.1:8081", strings.TrimPrefix(w.caddy.URL, "http://"),
		"127.0.0.1:9100", exporter, "127.0.0.1:9093", "127.0.0.1:"+hookstest.FreePort(t)).Replace(string(readFile(t, filepath.Join(root, "examples", "prometheus", "prometheus.yml"))))
	for name, text := range map[string]string{"alerts.yml": w.rules, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := hookstest.FreePort(t)
	w.prometheus = "http://127.0.0.1:" + port
	startProcess(t, port, "prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", "127.0.0.1:"+port, "--log.level", "error", "--query.lookback-delta", "3s")
	hookstest.Eventually(t, "Prometheus is ready", func() bool {
		resp, err := hookstest.TryRequest("GET", w.prometheus+"/-/ready", "")
		return err == nil && resp.Status == http.StatusOK
	})
}

var (
	alertTime    = regexp.MustCompile(`(for: |\[|offset )([0-9]+)(m|d)\b`)
	alertSeconds = regexp.MustCompile(`(_seconds\) > )([0-9]+)\b`)
)

// faster divides the times of alerts: how long something must last, the ranges of rates, and thresholds in seconds of waiting. A day is
// as short as ten minutes besides.
func faster(t *testing.T, rules string) string {
	t.Helper()
	changed := 0
	divide := func(number string, unit time.Duration) time.Duration {
		changed++
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * unit / fasterAlerts
	}
	rules = alertTime.ReplaceAllStringFunc(rules, func(found string) string {
		parts := alertTime.FindStringSubmatch(found)
		unit := map[string]time.Duration{"m": time.Minute, "d": 10 * time.Minute}[parts[3]]
		return fmt.Sprintf("%s%dms", parts[1], divide(parts[2], unit).Milliseconds())
	})
	rules = alertSeconds.ReplaceAllStringFunc(rules, func(found string) string {
		parts := alertSeconds.FindStringSubmatch(found)
		return fmt.Sprintf("%s%d", parts[1], int(divide(parts[2], time.Second).Seconds()))
	})
	if changed < 15 {
		t.Fatalf("only %d times were changed", changed)
	}
	return rules
}

// load sends requests all the time, most of them good.
func (w *watched) load(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		body, headers := fmt.Sprintf(`{"message":"%d"}`, i), []string{"Authorization", "Bearer " + hookstest.Token}
		switch i % 10 {
		case 0:
			body = fmt.Sprintf(`{"message":"%d","callbackUrl":"%s/answers"}`, i, w.gone.URL)
		case 1:
			headers = append(headers, "Idempotency-Key", fmt.Sprint("key ", i/100))
		}
		if i%100 == 99 {
			headers[1] = "Bearer a-bad-one"
		}
		_, _ = hookstest.TryRequest("POST", w.caddy.URL+"/api/hooks/agent", body, headers...)
		time.Sleep(20 * time.Millisecond) // the rate of requests
	}
}

func (w *watched) waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	var firing []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last seen: %v", firing)
		}
	})
	hookstest.Within(t, alertPatience, what, func() bool {
		if ok() {
			return true
		}
		firing = w.firing(t)
		time.Sleep(50 * time.Millisecond) // between two questions
		return false
	})
}

// ask asks Prometheus.
func (w *watched) ask(t *testing.T, path string, data any) {
	t.Helper()
	resp, err := hookstest.TryRequest("GET", w.prometheus+"/api/v1/"+path, "")
	if err != nil || resp.Status != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, resp.Status, resp.Body, err)
	}
	if err := json.Unmarshal([]byte(resp.Body), &struct{ Data any }{data}); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// query returns the values that an expression has now.
func (w *watched) query(t *testing.T, expression string) (values []float64) {
	t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	w.ask(t, "query?query="+url.QueryEscape(expression), &data)
	for _, series := range data.Result {
		value, err := strconv.ParseFloat(series.Value[1].(string), 64)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}

// firing are the names of the alerts that fire.
func (w *watched) firing(t *testing.T) []string {
	t.Helper()
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	w.ask(t, "alerts", &data)
	names := make(map[string]bool)
	for _, alert := range data.Alerts {
		if alert.State == "firing" {
			names[alert.Labels["alertname"]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (w *watched) rulesAreHealthy(t *testing.T) bool {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	w.ask(t, "rules", &data)
	found := 0
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			if rule.Health == "err" {
				t.Fatalf("%s: %s", rule.Name, rule.LastError)
			}
			if rule.Health != "ok" {
				return false
			}
			found++
		}
	}
	return found > 0
}

// post sends a run until it is accepted.
func (w *watched) post(t *testing.T, body string) {
	t.Helper()
	hookstest.Eventually(t, "a run is accepted", func() bool {
		resp, err := hookstest.TryRequest("POST", w.caddy.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token)
		return err == nil && resp.Status == http.StatusAccepted
	})
}

func (w *watched) admin(t *testing.T, method, path, body string) {
	t.Helper()
	resp, err := hookstest.TryRequest(method, w.caddy.Admin+path, body, "Content-Type", "application/json")
	if err != nil || resp.Status >= 300 {
		t.Fatalf("%s %s: %d %s, %v", method, path, resp.Status, resp.Body, err)
	}
}

func (w *watched) breakAround(t *testing.T) func(*testing.T) {
	w.agent.Store(http.StatusInternalServerError)
	w.goneStatus.Store(http.StatusGone)
	w.overloadStatus.Store(http.StatusServiceUnavailable)
	for i := range 120 {
		w.post(t, fmt.Sprintf(`{"message":"%d","callbackUrl":"%s/answers"}`, i, w.overloaded.URL))
	}
	full := filepath.Join(w.disk, "full")
	if err := os.WriteFile(full, make([]byte, 7700<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var guessing sync.WaitGroup
	guessing.Go(func() {
		for ctx.Err() == nil {
			_, _ = hookstest.TryRequest("POST", w.caddy.URL+"/api/hooks/wake", `{"text":"hi"}`, "Authorization", "Bearer guessed")
			time.Sleep(50 * time.Millisecond) // the rate of guesses
		}
	})
	stopGuessing := func() {
		stop()
		guessing.Wait()
	}
	t.Cleanup(stopGuessing)
	return func(t *testing.T) {
		stopGuessing()
		w.agent.Store(http.StatusOK)
		w.goneStatus.Store(http.StatusOK)
		w.overloadStatus.Store(http.StatusOK)
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		// As the runbook says.
		w.admin(t, "POST", "/hooks/bulk?do=retry&status=dead", "")
		w.admin(t, "POST", "/hooks/bulk?do=retry&status=pending", "")
	}
}

// breakRunner has the runner refuse runs. The load fills the queue.
func (w *watched) breakRunner(*testing.T) func(*testing.T) {
	w.agent.Store(http.StatusServiceUnavailable)
	return func(*testing.T) { w.agent.Store(http.StatusOK) }
}

// slowDownDatabase has the database stand still again and again, for longer than a commit may take.
func (w *watched) slowDownDatabase(t *testing.T) func(*testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	var slow sync.WaitGroup
	slow.Go(func() {
		for ctx.Err() == nil {
			w.database.Freeze(t)
			time.Sleep(800 * time.Millisecond) // how slow it is
			w.database.Thaw(t)
			time.Sleep(700 * time.Millisecond) // in which commits and scrapes come to an end
		}
	})
	mend := func(*testing.T) {
		stop()
		slow.Wait()
	}
	t.Cleanup(func() { mend(t) })
	return mend
}

func (w *watched) breakDatabase(*testing.T) func(*testing.T) {
	w.database.Stop("immediate")
	return func(t *testing.T) {
		if err := w.database.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *watched) killCaddy(*testing.T) func(*testing.T) {
	w.process.Kill()
	w.process.Over = true
	return func(*testing.T) { w.process = w.caddy.Launch(w.whole) }
}

// breakSetting saves a hook that the next Caddyfile does not allow.
func (w *watched) pause(t *testing.T) func(*testing.T) {
	w.process.WaitUntilServing(t)
	w.admin(t, "POST", "/hooks/pauses", `{"what":"hook","name":"wake","reason":"forgotten"}`)
	return func(t *testing.T) { w.admin(t, "DELETE", "/hooks/pauses?what=hook&name=wake", "") }
}

// spend has a run of each of two hooks. One of them costs less than the hook's budget.
func (w *watched) spend(t *testing.T) func(*testing.T) {
	w.process.WaitUntilServing(t)
	budgets := map[string]string{"thrifty": "$1/24h", "lavish": "$0.50/24h"}
	for hook, limit := range budgets {
		w.admin(t, "PUT", "/hooks/mappings/"+hook, `{"action":"agent","authMode":"bearer","messageTemplate":"hi","budgets":[{"limit":"`+limit+`"}]}`)
		resp, err := hookstest.TryRequest("POST", w.caddy.URL+"/api/hooks/"+hook, "{}", "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Status != 202 {
			t.Fatal(resp.Status, resp.Body, err)
		}
	}
	return func(t *testing.T) {
		for hook := range budgets {
			w.admin(t, "DELETE", "/hooks/mappings/"+hook, "")
		}
	}
}

func (w *watched) leaveQuestion(t *testing.T) func(*testing.T) {
	w.process.WaitUntilServing(t)
	resp, err := hookstest.TryRequest("POST", w.caddy.URL+"/api/hooks/approved", "{}", "Authorization", "Bearer "+hookstest.Token)
	if err != nil || resp.Status != 202 {
		t.Fatal(resp.Status, resp.Body, err)
	}
	id, _ := resp.Field(t, "runId").(string)
	return func(t *testing.T) { w.admin(t, "POST", "/hooks/runs/"+id+"/cancel", "") }
}

func (w *watched) breakSetting(t *testing.T) func(*testing.T) {
	w.process.WaitUntilServing(t)
	w.admin(t, "PUT", "/hooks/mappings/slow", `{"authMode":"bearer","timeoutSeconds":600,"messageTemplate":"hi"}`)
	w.process.Terminate(t)
	w.process.WantCleanExit(t)
	w.process.Over = true
	text := strings.Replace(string(readFile(t, w.caddy.Config)), "queue_limit", "max_timeout 60s\n\t\tdefault_timeout 30s\n\t\tqueue_limit", 1)
	if err := os.WriteFile(w.caddy.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.process = w.caddy.Start(w.whole)
	return func(t *testing.T) { w.admin(t, "DELETE", "/hooks/mappings/slow", "") }
}

// wantDataInEveryPanel asks Prometheus what Grafana would ask it.
func wantDataInEveryPanel(t *testing.T, w *watched) {
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(root, "examples", "grafana", "caddyhooks.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer("$__rate_interval", "3s", "$job", "caddyhooks", "$instance", ".*", "$hooks_instance", "default")
	asked := 0
	for _, panel := range dashboard.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s asks nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			asked++
			expression := filled.Replace(target.Expr)
			hookstest.Within(t, alertPatience, panel.Title+" has data: "+expression, func() bool {
				values := w.query(t, expression)
				return slices.ContainsFunc(values, func(value float64) bool { return !math.IsNaN(value) })
			})
		}
	}
	valuesOf := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, variable := range dashboard.Templating.List {
		if variable.Type != "query" {
			continue
		}
		asked++
		parts := valuesOf.FindStringSubmatch(variable.Definition)
		if parts == nil {
			t.Fatalf("the variable %s asks %q", variable.Name, variable.Definition)
		}
		if len(w.query(t, "group by ("+parts[2]+") ("+filled.Replace(parts[1])+")")) == 0 {
			t.Errorf("the variable %s has no values", variable.Name)
		}
	}
	if asked < 40 {
		t.Errorf("only %d questions were asked", asked)
	}
}
