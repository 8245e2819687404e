package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Two Caddys on one PostgreSQL obey a pause that one of them was told of, also after both were killed and started again.
func TestPauseHoldsOnAllNodesAndOutlivesTheirDeath(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	config := hookstest.Hooks(rn, "store postgres \""+database.TCP("postgres", pgtest.Password, "postgres")+"\"\nhook github {\n action agent\n}\nhook gitlab {\n action agent\n}\n")
	b := hookstest.NewBinary(t)
	deployed := []*hookstest.Deployment{b.Deploy(t, "", config), b.Deploy(t, "", config)}
	ask := func(method, url, body string) hookstest.Response {
		t.Helper()
		resp, err := hookstest.TryRequest(method, url, body, "Authorization", "Bearer "+hookstest.Token, "Hooks-Operator", "ann")
		if err != nil || resp.Status/100 != 2 {
			t.Fatalf("%s %s: got %d %s, %v", method, url, resp.Status, resp.Body, err)
		}
		return resp
	}
	start := func() (nodes []*hookstest.Process) {
		for _, d := range deployed {
			nodes = append(nodes, d.Start(t))
		}
		return nodes
	}
	wantPaused := func(when string) {
		t.Helper()
		for _, d := range deployed {
			hookstest.Eventually(t, when+" a node says what is paused", func() bool {
				return strings.Contains(ask("GET", d.Admin+"/hooks/health", "").Body, "hook github is paused by ann since")
			})
		}
	}
	// Runs of the other hook are carried out by both nodes, after a run of the paused hook was accepted.
	var paused []string
	goOn := func() {
		t.Helper()
		for _, d := range deployed {
			paused = append(paused, ask("POST", d.URL+"/api/hooks/github", `{}`).Field(t, "runId").(string))
		}
		for i := range 20 {
			id := ask("POST", deployed[i%2].URL+"/api/hooks/gitlab", `{}`).Field(t, "runId").(string)
			for rn.Next().Text("runId") != id {
				t.Error("a run was started that is paused")
			}
		}
	}
	nodes := start()
	ask("POST", deployed[0].Admin+"/hooks/pauses", `{"what":"hook","name":"github","reason":"deploy"}`)
	wantPaused("at first")
	goOn()
	for _, node := range nodes {
		node.Over = true
		node.Kill()
		<-node.Exited
	}
	nodes = start()
	wantPaused("after the nodes were killed")
	goOn()
	for _, id := range paused {
		if run := ask("GET", deployed[1].Admin+"/hooks/runs/"+id, ""); run.Field(t, "waitingFor") != "paused by ann: deploy" {
			t.Errorf("a run is %s", run.Body)
		}
	}

	// The other node resumes it at a pace, which survives a death too. Both nodes together start two runs a second at most.
	ask("POST", deployed[1].Admin+"/hooks/pauses", `{"what":"hook","name":"github","rate":"1/s"}`)
	for range paused {
		rn.Next()
	}
	nodes[0].Over = true
	nodes[0].Kill()
	<-nodes[0].Exited
	nodes[0] = deployed[0].Start(t)
	var list struct{ Pauses []struct{ Rate string } }
	if err := json.Unmarshal([]byte(ask("GET", deployed[0].Admin+"/hooks/pauses", "").Body), &list); err != nil || len(list.Pauses) != 1 || list.Pauses[0].Rate != "1/1s" {
		t.Errorf("paused is %+v: %v", list, err)
	}
	began := time.Now()
	for range 10 {
		ask("POST", deployed[0].URL+"/api/hooks/github", `{}`)
	}
	for range 10 {
		rn.Next()
	}
	if took := time.Since(began); took < 3*time.Second { // one at once and one a second, on each of two nodes
		t.Errorf("10 runs were started within %v", took)
	}
	if resp := ask("DELETE", deployed[0].Admin+"/hooks/pauses?what=hook&name=github", ""); resp.Status != http.StatusNoContent {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	for _, node := range nodes {
		node.Terminate(t)
		node.WantCleanExit(t)
	}
}
