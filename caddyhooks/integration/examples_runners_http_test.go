package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// The page of the example asks its agents. Here they are stopped, one after the other, and come back.
func TestLoadBalancedExampleSurvivesItsAgents(t *testing.T) {
	t.Parallel()
	s := hookstest.StartProcess(t, "respond 404") // and later with the example's configuration
	ports := []string{hookstest.FreePort(t), hookstest.FreePort(t)}
	loadExample(t, s, filepath.Join(root, "examples/load-balanced/Caddyfile"),
		strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+s.Port, "localhost:8080", "localhost:"+s.Port, "127.0.0.1:9001", "127.0.0.1:"+ports[0], "127.0.0.1:9002", "127.0.0.1:"+ports[1]).Replace)
	const token = "Bearer only-for-trying-it-out"
	ask := func() hookstest.Response {
		return s.Request("POST", "/api/hooks/agent", `{"message":"hello","chatId":"me","syncResponse":true}`, "Authorization", token)
	}
	wantAnswers := func(when string) {
		t.Helper()
		for range 4 {
			if resp := ask(); resp.Status != 200 || resp.Body != "I was told in me: hello" {
				t.Errorf("%s: got %d %s", when, resp.Status, resp.Body)
			}
		}
	}
	one, two := startAgent(t, ports[0]), startAgent(t, ports[1])
	wantAnswers("with both agents")
	one()
	wantAnswers("with one agent")
	two()
	if resp := ask(); resp.Status != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("without agents: got %d %v", resp.Status, resp.Header)
	}
	resp := s.Request("POST", "/api/hooks/agent", `{"message":"hello","chatId":"me"}`, "Authorization", token)
	id, _ := resp.Field(t, "runId").(string)
	startAgent(t, ports[0])
	hookstest.Eventually(t, "the run that waited is completed", func() bool {
		return s.Request("GET", hookstest.RunPath(id), "", "Authorization", token).Field(t, "status") == "completed"
	})
}

// startAgent starts the agent of the example for Python, and returns a function that kills it.
func startAgent(t *testing.T, port string) (kill func()) {
	t.Helper()
	cmd := realtest.Command(t, "python3", "examples/python-runner/runner.py")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	hookstest.Eventually(t, "the agent listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return kill
}
