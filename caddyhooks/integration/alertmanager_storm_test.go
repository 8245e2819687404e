package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Alertmanager has 200 alerts in ten groups, and sends them as they come. With the recipe's hook, each group but the one that is
// skipped is one turn, with every alert of it that is worth one; and the end of all alerts is none.
func TestStormOfAlertsIsOneTurnForEachGroup(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartProcess(t, "respond 404")
	recipe := filepath.Join(root, "examples/senders/alertmanager")
	loadExample(t, s, filepath.Join(recipe, "Caddyfile"), func(text string) string {
		edited := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+s.Port, "localhost:8080", "localhost:"+s.Port, "runner echo", "runner http "+rn.URL, "fold 30s", "fold 20s").Replace(text)
		if !strings.Contains(edited, "fold 20s") || !strings.Contains(edited, rn.URL) {
			t.Fatal("the Caddyfile is not the one that this test was made for")
		}
		return edited
	})
	am := startAlertmanagerOfRecipe(t, s, recipe)

	names := []string{"Watchdog"}
	for i := range 9 {
		names = append(names, fmt.Sprintf("Alert%d", i))
	}
	over := time.Now().Add(45 * time.Second) // all alerts at the same instant, long after the turns: a group is then over as a whole
	wave := func(from int) {
		t.Helper()
		var alerts []any
		for _, name := range names {
			for i := from; i < from+10; i++ {
				severity := "critical"
				if i%5 == 0 {
					severity = "info"
				}
				alerts = append(alerts, map[string]any{
					"labels":      map[string]string{"alertname": name, "instance": fmt.Sprintf("web-%d", i), "severity": severity},
					"annotations": map[string]string{"summary": fmt.Sprintf("%s of number %d.", name, i)},
					"startsAt":    time.Now().Add(-time.Minute), "endsAt": over,
				})
			}
		}
		am.postAll(t, alerts)
	}
	requests := func() float64 { return am.metric(t, `alertmanager_notification_requests_total{integration="webhook"}`) }

	wave(0)
	am.waitUntil(t, "Alertmanager sends all groups", func() bool { return requests() >= 10 })
	wave(10)
	am.waitUntil(t, "Alertmanager sends all groups again, with more alerts", func() bool { return requests() >= 20 })
	am.waitUntil(t, "all groups become turns", func() bool { return len(rn.Turns) >= 9 })
	am.waitUntil(t, "Alertmanager tells that the alerts are over", func() bool { return ignored(t, s, "each ") >= 9 })

	total := 0
	for range 9 {
		turn := rn.Next()
		name, found := strings.CutPrefix(turn.Text("chatId"), "alert:")
		if !found || name == "Watchdog" {
			t.Errorf("there is a turn in the chat %s", turn.Text("chatId"))
		}
		ids, _ := s.Listed("?limit=200&chatId=" + turn.Text("chatId"))
		folded, _ := turn.Body["folded"].([]any)
		if len(ids) == 0 || len(folded) != len(ids) {
			t.Errorf("the turn of %s is for %d runs, and there are %d", name, len(folded), len(ids))
		}
		total += len(ids)
		message := turn.Text("message")
		for i := range 20 {
			if told := strings.Contains(message, fmt.Sprintf("%s of number %d.", name, i)); told != (i%5 != 0) {
				t.Errorf("%s: whether number %d was told is %t", name, i, told)
			}
		}
		if strings.Contains(message, "<missing>") {
			t.Errorf("something is missing: %s", message)
		}
	}
	if more := len(rn.Turns); more > 0 {
		t.Errorf("there are %d turns more than groups", more)
	}
	if ids, _ := s.Listed("?status=queued"); len(ids) > 0 {
		t.Errorf("there are runs that wait: %v", ids)
	}
	if skipped := ignored(t, s, "skip "); skipped < 2 {
		t.Errorf("%d requests about the group that is skipped were ignored", skipped)
	}
	t.Logf("200 alerts in %v requests became %d runs in 9 turns", requests(), total)
}

// ignored is how many requests were ignored by conditions that begin like this.
func ignored(t *testing.T, s *hookstest.Server, condition string) (n int) {
	t.Helper()
	var listed struct {
		Refused []struct {
			Ignored   bool
			Condition string
			Count     int
		}
	}
	if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/refused", "").Body), &listed); err != nil {
		t.Fatal(err)
	}
	for _, kind := range listed.Refused {
		if kind.Ignored && strings.HasPrefix(kind.Condition, condition) {
			n += kind.Count
		}
	}
	return n
}

// startAlertmanagerOfRecipe starts Alertmanager with the configuration on the recipe's page, but for its times.
func startAlertmanagerOfRecipe(t *testing.T, s *hookstest.Server, recipe string) *alertmanager {
	t.Helper()
	dir, port := t.TempDir(), hookstest.FreePort(t)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("a-token-for-trying-it-out\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "alertmanager.yml")
	for _, block := range fences(t, filepath.Join(recipe, "README.md")) {
		if block.language != "yaml" {
			continue
		}
		text := strings.NewReplacer("https://example.com", s.URL, "/etc/prometheus/hooks-token", token).Replace(block.text)
		text = regexp.MustCompile(`(?m)^  group_by.*$`).ReplaceAllString(text, "$0\n  group_wait: 2s\n  group_interval: 2s\n  repeat_interval: 4h")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startProcess(t, port, "prometheus-alertmanager", "--config.file", config, "--storage.path", filepath.Join(dir, "data"),
		"--web.listen-address", "127.0.0.1:"+port, "--cluster.listen-address=")
	return &alertmanager{"http://127.0.0.1:" + port, s}
}
