package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// 64 runs come at once, and there is money for ten. However often Caddy is killed meanwhile, no more start than the budget and the workers
// allow, and the sums are those of the runs, to the token.
func TestManyRunsKeepToABudgetUnderKills(t *testing.T) {
	t.Parallel()
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		spendAndKill(t, 1, "bolt")
	})
	t.Run("three nodes", func(t *testing.T) {
		t.Parallel()
		database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
		spendAndKill(t, 3, "postgres \""+database.TCP("postgres", pgtest.Password, "postgres")+"\" {\nlease 3s\n}")
	})
}

func spendAndKill(t *testing.T, nodes int, store string) {
	const runs, affordable, workers, kills = 64, 10, 4, 4
	var turns atomic.Int64
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := turns.Add(1)
		time.Sleep(100 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"text":"done","usage":{"model":"m","inputTokens":%d,"outputTokens":%d,"costUsd":1}}`, 1000+7*n, n)
	}))
	t.Cleanup(agent.Close)
	hooks := fmt.Sprintf("hooks {\nenabled\ntoken %s\nstore %s\nworkers %d\nrunner http %s\nbudget $%d/24h\n}", hookstest.Token, store, workers,
		agent.URL, affordable)
	processes := make([]*hookstest.Process, nodes)
	for i := range processes {
		processes[i] = hookstest.NewBinary(t).Serve(t, "", hooks)
	}
	var senders sync.WaitGroup
	ids := make([]string, runs)
	for i := range ids {
		senders.Go(func() {
			resp, err := hookstest.TryRequest("POST", processes[i%nodes].URL+"/api/hooks/agent", fmt.Sprintf(`{"message":"work %d"}`, i),
				"Authorization", "Bearer "+hookstest.Token)
			if err != nil || resp.Status != 202 {
				t.Errorf("got %d %s: %v", resp.Status, resp.Body, err)
				return
			}
			ids[i], _ = resp.Field(t, "runId").(string)
		})
	}
	senders.Wait()
	for i := range kills {
		before := turns.Load()
		hookstest.Eventually(t, "turns are taken", func() bool { return turns.Load() > before || i > 0 && turns.Load() >= affordable })
		n := i % nodes
		processes[n].Kill()
		processes[n].Over = true
		processes[n] = processes[n].Deployment.Start(t)
	}

	type sums struct{ Runs, InputTokens, OutputTokens int64 }
	var ended, held int
	var spent sums
	look := func() bool {
		ended, held, spent = 0, 0, sums{}
		for _, id := range ids {
			resp, err := hookstest.TryRequest("GET", processes[0].Admin+"/hooks/runs/"+id, "")
			var run struct {
				Status, WaitingFor string
				Usage              []sums
			}
			if err != nil || json.Unmarshal([]byte(resp.Body), &run) != nil {
				return false
			}
			switch {
			case run.Status == "completed":
				ended++
				spent.Runs++
				spent.InputTokens += run.Usage[0].InputTokens
				spent.OutputTokens += run.Usage[0].OutputTokens
			case run.Status == "queued" && strings.HasPrefix(run.WaitingFor, "The budget is used up."):
				held++
			}
		}
		return ended+held == runs
	}
	hookstest.Within(t, 60*time.Second, "all runs have ended or are held back", look)
	t.Logf("%d runs have ended, %d are held back, and the agent got %d turns", ended, held, turns.Load())
	if most := affordable + nodes*workers - 1; ended < affordable || ended > most {
		t.Errorf("%d runs have ended, want %d to %d", ended, affordable, most)
	}
	ofLedger := func() (got sums) {
		t.Helper()
		resp, err := hookstest.TryRequest("GET", processes[nodes-1].Admin+"/hooks/cost", "")
		var costs struct{ Total sums }
		if err != nil || json.Unmarshal([]byte(resp.Body), &costs) != nil {
			t.Fatal(resp.Body, err)
		}
		return costs.Total
	}
	if got := ofLedger(); got != spent {
		t.Errorf("the sums are %+v, and the runs used %+v", got, spent)
	}
	taken := turns.Load()
	for n := range processes {
		processes[n].Kill()
		processes[n].Over = true
	}
	for n := range processes {
		processes[n] = processes[n].Deployment.Start(t)
	}
	hookstest.Within(t, 60*time.Second, "the runs are as before", look)
	if got := ofLedger(); got != spent || turns.Load() != taken {
		t.Errorf("after all were killed the sums are %+v, want %+v; the agent got %d more turns", got, spent, turns.Load()-taken)
	}

	for _, p := range processes {
		config, err := os.ReadFile(p.Config)
		if err == nil {
			err = os.WriteFile(p.Config, bytes.ReplaceAll(config, []byte("budget $10/"), []byte("budget $1000/")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		reload := p.Command(nil, "reload", "--adapter", "caddyfile", "--config", p.Config, "--address", strings.TrimPrefix(p.Admin, "http://"))
		if out, err := reload.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	hookstest.Within(t, 60*time.Second, "a larger budget lets the others start", func() bool { return look() && ended == runs })
	if got := ofLedger(); got != spent {
		t.Errorf("in the end the sums are %+v, and the runs used %+v", got, spent)
	}
	for _, p := range processes {
		p.WantNoCrash(t)
	}
}
