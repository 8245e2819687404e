package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// startPrometheusExample starts Prometheus with arguments as in the documentation, but for the ports, and for directories that are
// thrown away. It looks more often.
func startPrometheusExample(t *testing.T, port string, ports *strings.Replacer, args ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", "prometheus"))); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := strings.ReplaceAll(ports.Replace(string(readFile(t, config))), "_interval: 15s", "_interval: 1s")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, arg := range args {
		switch arg {
		case "examples/prometheus/prometheus.yml":
			args[i] = config
		case "/tmp/prometheus":
			args[i] = filepath.Join(dir, "data")
		default:
			args[i] = ports.Replace(arg)
		}
	}
	startProcess(t, port, "prometheus", args...)
}

// Each alert has a section in the README, and a case in which it fires.
func TestAlertsHaveARunbookAndACase(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(root, "examples", "prometheus")
	page, cases := anchors(t, filepath.Join(dir, "README.md")), string(readFile(t, filepath.Join(dir, "alerts_test.yml")))
	rules := string(readFile(t, filepath.Join(dir, "alerts.yml")))
	found := 0
	for _, rule := range strings.Split(rules, "- alert: ")[1:] {
		found++
		name, text, _ := strings.Cut(rule, "\n")
		anchor := strings.ToLower(name)
		if !strings.Contains(strings.Join(page, "\n")+"\n", anchor+"\n") || !strings.Contains(text, "/examples/prometheus/README.md#"+anchor+"\n") {
			t.Errorf("%s leads to no section of the README", name)
		}
		if !strings.Contains(cases, `ALERTS{alertname="`+name+`", alertstate="firing", `) {
			t.Errorf("%s fires in no case", name)
		}
		for _, annotation := range []string{"summary: ", "description: ", "severity: "} {
			if !strings.Contains(text, annotation) {
				t.Errorf("%s has no %s", name, annotation)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d alerts", found)
	}
}
