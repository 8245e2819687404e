package caddyhooks_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// checkMetrics has promtool look at metrics.
func checkMetrics(t *testing.T, text string) {
	t.Helper()
	promtool := exec.Command("promtool", "check", "metrics")
	promtool.Stdin = strings.NewReader(text)
	if out, err := promtool.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

func TestMetricsOfALoadedCaddyPassPromtool(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n token "+hookstest.Token+"\n channel log log\n hook deploy {\n}\n}\nmetrics /metrics")
	s.Post("/api/hooks/wake", `{"message":"hello"}`)
	got := s.Request("GET", "/metrics", "").Body
	var own []string
	for line := range strings.Lines(got) {
		if strings.Contains(line, "caddy_hooks_") {
			own = append(own, line)
		}
	}
	t.Log(strings.Join(own, ""))
	checkMetrics(t, strings.Join(own, ""))
}
