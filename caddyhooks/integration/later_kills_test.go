package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// An agent in a process of its own has taken turns on, and Caddy is killed ten times while it works: each turn is started once, answered
// once, and its callback is sent once. With one node on bolt, and with two nodes on PostgreSQL that are killed in turn.
func TestTurnsThatWereTakenOnSurviveKills(t *testing.T) {
	t.Parallel()
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		takenOnAndKilled(t, 1, "bolt")
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
		takenOnAndKilled(t, 2, "postgres \""+database.TCP("postgres", pgtest.Password, "postgres")+"\"")
	})
}

func takenOnAndKilled(t *testing.T, nodes int, store string) {
	const runs, kills = 20, 10
	port := hookstest.FreePort(t)
	agent := "http://127.0.0.1:" + port
	cmd := realtest.Command(t, "python3", "testdata/later_agent.py", port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var asked struct {
		Turns []string
		Sent  [][]any
	}
	ask := func() bool {
		resp, err := hookstest.TryRequest("GET", agent, "")
		return err == nil && json.Unmarshal([]byte(resp.Body), &asked) == nil
	}
	hookstest.Eventually(t, "the agent is there", ask)
	var mu sync.Mutex
	called := make(map[string]int)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		called[string(body)]++
	}))
	t.Cleanup(receiver.Close)
	directives := fmt.Sprintf(`hooks {
		enabled
		token %s
		store %s
		runner http %s {
			async 1h
		}
		callbacks {
			allow 127.0.0.0/8
			ports *
		}
	}`, hookstest.Token, store, agent)
	processes := make([]*hookstest.Process, nodes)
	for i := range processes {
		processes[i] = hookstest.NewBinary(t).Serve(t, "", directives)
	}
	lookUp := func(id string) string {
		t.Helper()
		var run struct{ Status string }
		for _, p := range processes {
			resp, err := hookstest.TryRequest("GET", p.URL+hookstest.RunPath(id), "", "Authorization", "Bearer "+hookstest.Token)
			if err == nil && resp.Status == 200 && json.Unmarshal([]byte(resp.Body), &run) == nil {
				return run.Status
			}
		}
		return ""
	}
	var ids []string
	for i := range runs {
		resp, err := hookstest.TryRequest("POST", processes[i%nodes].URL+"/api/hooks/agent",
			fmt.Sprintf(`{"message":"work %d","callbackUrl":"%s"}`, i, receiver.URL), "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Status != 202 {
			t.Fatalf("got %d %s: %v", resp.Status, resp.Body, err)
		}
		id, _ := resp.Field(t, "runId").(string)
		ids = append(ids, id)
	}
	allAre := func(status string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(ids, func(id string) bool { return lookUp(id) != status })
		}
	}
	hookstest.Eventually(t, "the agent has taken on all turns", allAre("waiting"))
	for i := range kills {
		n := i % nodes
		processes[n].Kill()
		processes[n].Over = true
		if i == kills-1 { // later ones could cut off a callback, which would come twice, with the same id
			if resp, err := hookstest.TryRequest("POST", agent+"/go", "{}"); err != nil || resp.Status != 200 {
				t.Fatal(resp.Body, err)
			}
		}
		processes[n] = processes[n].Deployment.Start(t)
		if i < kills-1 && !allAre("waiting")() {
			t.Fatalf("after kill %d, a run does not wait any more", i+1)
		}
	}
	hookstest.Eventually(t, "all runs are completed", allAre("completed"))
	hookstest.Eventually(t, "all callbacks have come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(called) == runs
	})
	ask()
	slices.Sort(asked.Turns)
	if !slices.Equal(asked.Turns, slices.Sorted(slices.Values(ids))) {
		t.Errorf("%d runs, and the agent got the turns of %v", runs, asked.Turns)
	}
	for _, sent := range asked.Sent {
		if sent[1] != 200.0 {
			t.Errorf("an answer was answered %v", sent)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if called["done "+id] != 1 {
			t.Errorf("the callback of run %s came %d times", id, called["done "+id])
		}
	}
	for _, p := range processes {
		p.WantNoCrash(t)
		if strings.Contains(p.Log.All(), `"panic"`) {
			t.Error("something panicked")
		}
	}
}
