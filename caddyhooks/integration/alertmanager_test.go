package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Alertmanager gives up a request that is not answered in time, and sends it again. With the example's configuration, an alert
// starts one run nevertheless, whose agent takes 15 seconds.
func TestAlertmanagerStartsOneRunForAnAlert(t *testing.T) {
	t.Parallel()
	oncall := hookstest.StartReceiver(t)
	am := startAlertmanagerExample(t, strings.NewReplacer("channel oncall log", "channel oncall webhook "+oncall.URL))
	am.post(t, "DiskFull", time.Hour)

	am.waitUntil(t, "the agent has answered", func() bool { return len(oncall.Got) > 0 })
	checks := am.metric(t, "alertmanager_nflog_queries_total")
	if checks < 2 {
		t.Error("Alertmanager had no occasion to send the alert again while the agent worked")
	}
	am.waitUntil(t, "Alertmanager looks whether to send it again", func() bool {
		return am.metric(t, "alertmanager_nflog_queries_total") > checks
	})
	checks = am.metric(t, "alertmanager_nflog_queries_total")
	am.post(t, "DiskFull", 0)
	am.waitUntil(t, "Alertmanager looks whether to tell that it is over", func() bool {
		return am.metric(t, "alertmanager_nflog_queries_total") > checks
	})

	if sent := am.metric(t, `alertmanager_notification_requests_total{integration="webhook"}`); sent != 1 {
		t.Errorf("Alertmanager sent %v requests", sent)
	}
	ids, _ := am.site.Listed("?hook=alertmanager")
	if len(ids) != 1 {
		t.Fatalf("one alert started the runs %v", ids)
	}
	run := am.site.AdminRequest("GET", "/hooks/runs/"+ids[0], "")
	started, err1 := time.Parse(time.RFC3339, run.Field(t, "startedAt").(string))
	finished, err2 := time.Parse(time.RFC3339, run.Field(t, "finishedAt").(string))
	if err1 != nil || err2 != nil || run.Field(t, "status") != "completed" || finished.Sub(started) < 15*time.Second {
		t.Errorf("the run is %s", run.Body)
	}
	answer := oncall.Next()
	for _, part := range []string{"The alert", "DiskFull", "firing", "The disk of web-3 is full", `\"instance\":\"web-3\"`} {
		if !strings.Contains(answer.Body, part) {
			t.Errorf("the answer has no %q: %s", part, answer.Body)
		}
	}
	if more := len(oncall.Got); more > 0 {
		t.Errorf("the answer was delivered %d more times", more)
	}
}

// This is why the example's hook does not wait for the agent.
func TestAlertmanagerSendsAgainWhileAHookWaitsForTheAgent(t *testing.T) {
	t.Parallel()
	am := startAlertmanagerExample(t, strings.NewReplacer("action agent", "action agent\nsync"))
	am.post(t, "DiskFull", time.Hour)
	am.waitUntil(t, "one alert starts two runs", func() bool {
		ids, _ := am.site.Listed("?hook=alertmanager")
		return len(ids) == 2
	})
}

// alertmanager is Debian's Alertmanager, which sends alerts to a site.
type alertmanager struct {
	url  string
	site *hookstest.Server
}

// startAlertmanagerExample starts the example, with an edited Caddyfile.
func startAlertmanagerExample(t *testing.T, edit *strings.Replacer) *alertmanager {
	t.Helper()
	s := hookstest.StartProcess(t, "respond 404")
	port := hookstest.FreePort(t)
	ports := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+s.Port, "localhost:8080", "localhost:"+s.Port, "127.0.0.1:9093", "127.0.0.1:"+port)
	loadExample(t, s, filepath.Join(root, "examples/alertmanager/Caddyfile"), func(text string) string {
		edited := edit.Replace(text)
		if edited == text {
			t.Fatal("the Caddyfile is not the one that this test was made for")
		}
		return ports.Replace(edited)
	})
	startAlertmanager(t, port, ports,
		"--config.file", "examples/alertmanager/alertmanager.yml", "--storage.path", "/tmp/alertmanager", "--web.listen-address", "127.0.0.1:9093", "--cluster.listen-address=")
	return &alertmanager{"http://127.0.0.1:" + port, s}
}

// startAlertmanager starts Alertmanager with arguments as in the documentation, but for the ports, and for directories that are
// thrown away.
func startAlertmanager(t *testing.T, port string, ports *strings.Replacer, args ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", "alertmanager"))); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "alertmanager.yml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(ports.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, arg := range args {
		switch arg {
		case "examples/alertmanager/alertmanager.yml":
			args[i] = config
		case "/tmp/alertmanager":
			args[i] = filepath.Join(dir, "data")
		default:
			args[i] = ports.Replace(arg)
		}
	}
	startProcess(t, port, "prometheus-alertmanager", args...)
}

// post tells Alertmanager about an alert that is over after the given time.
func (am *alertmanager) post(t *testing.T, name string, lasts time.Duration) {
	t.Helper()
	am.postAll(t, []any{map[string]any{
		"labels":      map[string]string{"alertname": name, "instance": "web-3"},
		"annotations": map[string]string{"summary": "The disk of web-3 is full"},
		"startsAt":    time.Now().Add(-time.Minute), "endsAt": time.Now().Add(lasts),
	}})
}

// postAll tells Alertmanager about several alerts at once.
func (am *alertmanager) postAll(t *testing.T, alerts []any) {
	t.Helper()
	body := hookstest.AsJSON(t, alerts)
	hookstest.Eventually(t, "Alertmanager takes the alerts", func() bool {
		resp, err := hookstest.TryRequest("POST", am.url+"/api/v2/alerts", body, "Content-Type", "application/json")
		return err == nil && resp.Status == 200
	})
}

// metric is a number that Alertmanager counts.
func (am *alertmanager) metric(t *testing.T, name string) float64 {
	t.Helper()
	resp, err := hookstest.TryRequest("GET", am.url+"/metrics", "")
	if err != nil || resp.Status != 200 {
		t.Fatalf("asking for metrics: %d %v", resp.Status, err)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(resp.Body)
	if found == nil {
		t.Fatalf("Alertmanager does not count %s", name)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// waitUntil polls rarely, since Alertmanager takes many seconds for everything.
func (am *alertmanager) waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	hookstest.Within(t, 90*time.Second, what, func() bool {
		if ok() {
			return true
		}
		time.Sleep(200 * time.Millisecond)
		return false
	})
}
