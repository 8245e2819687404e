//go:build real

package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// A dashboard shows what other nodes do, if the store knows it.
func TestEventsTellOfRunsOfOtherNodes(t *testing.T) {
	store := onPostgres(t)
	s, _, _, _ := twoNodes(t, store, pinnedOn)
	stream := openEventsAt(t, s.Admin+"/hooks/instances/a/events?topics=runs", "")
	stream.next("hello")
	// What was before the first question of node a is not told, so there are runs until one is.
	accepted := map[string]bool{}
	another := time.NewTicker(500 * time.Millisecond)
	defer another.Stop()
	timeout := time.After(time.Minute)
	for {
		select {
		case <-another.C:
			id, _ := s.Post("/b/agent", `{"message":"x"}`).Field(t, "runId").(string)
			accepted[id] = true
		case event := <-stream.events:
			var frame struct {
				Runs []struct{ RunID, Status string }
			}
			if err := json.Unmarshal([]byte(event.data), &frame); err != nil {
				t.Fatal(err)
			}
			for _, run := range frame.Runs {
				if accepted[run.RunID] && run.Status == "completed" {
					return
				}
			}
		case <-timeout:
			t.Fatalf("no event came of %d runs", len(accepted))
		}
	}
}

// Both nodes count requests of the minute under way, and both show all of them before it is over.
func TestOverviewsOfTwoNodesAreAlike(t *testing.T) {
	b := hookstest.StartRunner(t, nil)
	s := nodeBeside(t, onPostgres(t), pinnedOn, b)
	overview := func(node string) string {
		resp := s.AdminRequest("GET", "/hooks/instances/"+node+"/overview", "")
		var shown struct {
			Figures map[string]any
			Hooks   []struct {
				Name            string
				Accepted, Ended int
			}
		}
		if err := json.Unmarshal([]byte(resp.Body), &shown); err != nil {
			t.Fatalf("got %d %s: %v", resp.Status, resp.Body, err)
		}
		delete(shown.Figures, "workers")       // of the node
		delete(shown.Figures, "oldestSeconds") // which changes
		text, _ := json.Marshal(shown)
		return string(text)
	}
	var a string
	for range 3 { // unless the minute is over too soon
		minute := time.Now().Truncate(time.Minute)
		a = overview("a")
		for i := range 4 {
			if resp := s.Post([]string{"/a/agent", "/b/agent"}[i%2], `{"message":"hello"}`); resp.Status != 202 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
		}
		for before := a; time.Since(minute) < time.Minute; {
			if a = overview("a"); a != before && a == overview("b") && time.Since(minute) < time.Minute && strings.Contains(a, `"queued":0`) {
				return
			}
		}
	}
	t.Errorf("the nodes tell\n%s\n%s", a, overview("b"))
}

func TestOverviewListsNodes(t *testing.T) {
	s := nodeBeside(t, onPostgres(t), pinnedOn, hookstest.StartRunner(t, nil))
	host, _ := os.Hostname()
	for name, wanted := range map[string]string{"a": "false 0, true 1", "b": "false 1, true 0"} {
		hookstest.Eventually(t, "node "+name+" knows both", func() bool { // and that none but a carries out a run any more
			body := s.AdminRequest("GET", "/hooks/instances/"+name+"/overview", "").Body
			var shown struct{ Nodes []api.Node }
			if json.Unmarshal([]byte(body), &shown) != nil {
				return false
			}
			var nodes []string
			for _, node := range shown.Nodes {
				if node.Host == host && !node.Silent {
					nodes = append(nodes, fmt.Sprint(node.This, " ", node.Running))
				}
			}
			slices.Sort(nodes)
			return strings.Join(nodes, ", ") == wanted
		})
	}
	out, _, err := command(t, "status", "--address", s.Admin, "--instance", "b")
	if want := host + " (this one) 0"; err != nil || !strings.Contains(out, "nodes") || !strings.Contains(out, want) || strings.Contains(out, "running 1 of") {
		t.Errorf("status lacks %q: %v\n%s", want, err, out)
	}
}

// Event streams of a node tell of requests that another one refused.
func TestEventsTellOfRefusedRequestsOfOtherNodes(t *testing.T) {
	s := nodeBeside(t, onPostgres(t), pinnedOn, hookstest.StartRunner(t, nil))
	stream := openEventsAt(t, s.Admin+"/hooks/instances/a/events?topics=refused", "")
	stream.next("hello")
	s.AdminRequest("GET", "/hooks/instances/a/refused", "") // from now on node a knows what is new
	s.Request("POST", "/b/wake", `{"text":"x"}`, "X-Service-Token", "wrong")
	for event := stream.next("refused"); !strings.Contains(event.data, `"hook":"wake","status":401`); {
		event = stream.next("refused")
	}
}

// A server that takes over may have a clock that is behind. Ids of runs are then not in the order in which the runs were accepted.
func TestNewerRunReplacesOlderOnesWhenTheClockIsSetBack(t *testing.T) {
	server, schema := pgtest.Shared(t), pgtest.NewName("back_")
	rn, gone, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
		store postgres "`+server.DSN("postgres")+`" {
			schema `+schema+`
		}
		hook replacing {
			action agent
			template "hold {n}"
			chat_id a
			overlap replace
		}`))
	post := func(n int) string {
		return acceptedRun(t, s.Post("/api/hooks/replacing", fmt.Sprintf(`{"n":%d}`, n)))
	}
	first := post(1)
	rn.Next()
	server.Exec(t, "postgres", "CREATE OR REPLACE FUNCTION "+schema+".clock_1() RETURNS timestamptz LANGUAGE sql VOLATILE"+
		" AS 'SELECT clock_timestamp() - interval ''3 s'''")
	second := post(2)
	if second > first {
		t.Fatalf("%s is accepted after %s, whose id is greater", first, second)
	}
	if id := <-gone; id != first {
		t.Errorf("the turn of %s was cancelled, want %s", id, first)
	}
	s.Ended(first)
	s.AdminRequest("GET", "/hooks/runs/"+first, "").WantMembers(t, `{"status":"cancelled","cancelledBy":"the newer run `+second+`"}`)
	close(release)
	if ended := s.Ended(second); ended.Status != "completed" {
		t.Errorf("the newer run is %s", ended.Body)
	}
}
