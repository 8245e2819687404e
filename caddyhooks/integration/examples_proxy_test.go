package integration

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const proxyPage = root + "/examples/behind-a-proxy/README.md"

// Two Caddys, one behind the other.
func TestBehindAProxyExample(t *testing.T) {
	t.Parallel()
	behind, front, admin := "127.0.0.1:"+hookstest.FreePort(t), "127.0.0.1:"+hookstest.FreePort(t), "127.0.0.1:"+hookstest.FreePort(t)
	ports := strings.NewReplacer("127.0.0.1:8080", behind, "localhost:8080", strings.Replace(behind, "127.0.0.1", "localhost", 1), "127.0.0.1:8081", front, "127.0.0.1:2019", admin)
	start := func(file, address, globals string) {
		text := ports.Replace(string(readFile(t, filepath.Join(filepath.Dir(proxyPage), file))))
		d := &hookstest.Deployment{Binary: hookstest.NewBinary(t), URL: "http://" + address, Config: filepath.Join(t.TempDir(), "Caddyfile")}
		if err := os.WriteFile(d.Config, []byte(strings.Replace(text, "\n{\n", "\n{\n\tpersist_config off\n"+globals, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		d.Start(t)
	}
	start("Caddyfile", behind, "\tadmin "+admin+"\n")
	start("Caddyfile.front", front, "")

	blocks := fences(t, proxyPage)
	commands := 0
	for i, block := range blocks {
		if block.language != "sh" || strings.Contains(block.text, "go run ./xcaddy") {
			continue
		}
		commands++
		wantOutput(t, blocks, i, ports.Replace(block.text))
	}
	if commands != 4 {
		t.Errorf("the page has %d commands", commands)
	}
	wantEventsBeforeTheEnd(t, "http://"+front)

	resp, err := hookstest.TryRequest("POST", "http://"+front+"/api/hooks/agent", `{"message":"`+strings.Repeat("x", 1<<20)+`"}`, "Authorization", "Bearer only-for-trying-it-out")
	if err != nil || resp.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body got %d, %v", resp.Status, err)
	}
}

// wantEventsBeforeTheEnd follows a run through the proxy. Its first event must come while the run goes on.
func wantEventsBeforeTheEnd(t *testing.T, url string) {
	t.Helper()
	resp, err := hookstest.TryRequest("POST", url+"/api/hooks/agent", `{"message":"watched"}`, "Authorization", "Bearer only-for-trying-it-out")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/hooks/runs/"+resp.Field(t, "runId").(string)+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer only-for-trying-it-out")
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	var events []string
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if events = append(events, event); len(events) == 1 {
				now, err := hookstest.TryRequest("GET", req.URL.String()[:len(req.URL.String())-len("/events")], "", "Authorization", "Bearer only-for-trying-it-out")
				if err != nil || now.Field(t, "status") == "completed" {
					t.Errorf("the first event came when the run had ended: %s, %v", now.Body, err)
				}
			}
		}
	}
	if len(events) < 2 || events[0] != "status" || events[len(events)-1] != "result" {
		t.Errorf("the events are %q", events)
	}
}
