package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// pauseView is a pause as the admin API shows it.
type pauseView struct {
	What, Name, Reason, By, Rate string
	At                           time.Time
	Waiting                      int
	WaitingMore                  bool
}

func pausesOf(t *testing.T, s *hookstest.Server) []pauseView {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/pauses", "")
	var list struct{ Pauses []pauseView }
	if err := json.Unmarshal([]byte(resp.Body), &list); err != nil || resp.Status != 200 {
		t.Fatalf("got %d %s: %v", resp.Status, resp.Body, err)
	}
	return list.Pauses
}

// pause pauses something in the name of ann.
func pause(t *testing.T, s *hookstest.Server, body string) hookstest.Response {
	t.Helper()
	resp := s.AdminRequest("POST", "/hooks/pauses", body, "Hooks-Operator", "ann")
	if resp.Status != http.StatusOK {
		t.Fatalf("%s: got %d %s", body, resp.Status, resp.Body)
	}
	return resp
}

func resume(t *testing.T, s *hookstest.Server, what, name string) {
	t.Helper()
	query := url.Values{"what": {what}}
	if name != "" {
		query.Set("name", name)
	}
	if resp := s.AdminRequest("DELETE", "/hooks/pauses?"+query.Encode(), ""); resp.Status != http.StatusNoContent {
		t.Fatalf("resuming %s %s: got %d %s", what, name, resp.Status, resp.Body)
	}
}

// A paused hook takes requests. Its runs wait, say why, and start when it is resumed.
func TestPausedHookKeepsItsRunsUntilItIsResumed(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	s, lines := loggedHooks(t)
	s.Load(hookstest.Hooks(rn, "health /healthz\nhook github {\n action agent\n}\nhook gitlab {\n action agent\n}\nworkers 4\n"))
	pause(t, s, `{"what":"hook","name":"github","reason":" deploy "}`).WantMembers(t,
		`{"what":"hook","name":"github","reason":"deploy","by":"ann","waiting":0}`)
	for range 3 {
		if resp := s.Post("/api/hooks/github", `{}`); resp.Status/100 != 2 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
	}
	if resp := s.Post("/api/hooks/gitlab", `{}`); resp.Status/100 != 2 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	hookstest.Eventually(t, "the other hook's run ends", func() bool {
		ids, _ := s.Listed("?status=completed&hook=gitlab")
		return len(ids) == 1
	})
	ids, _ := s.Listed("?status=queued&hook=github")
	if len(ids) != 3 {
		t.Fatalf("%d runs are queued", len(ids))
	}
	s.AdminRequest("GET", "/hooks/runs/"+ids[0], "").WantMembers(t, `{"waitingFor":"paused by ann: deploy"}`)
	if list := s.AdminRequest("GET", "/hooks/runs?status=queued", "").Body; strings.Count(list, `"waitingFor":"paused by ann: deploy"`) != 3 {
		t.Errorf("the list is %s", list)
	}
	if seen := s.LookUp(ids[0], "").Body; strings.Contains(seen, "ann") || strings.Contains(seen, "deploy") || !strings.Contains(seen, "An operator") {
		t.Errorf("the caller sees %s", seen)
	}
	if got := pausesOf(t, s); len(got) != 1 || got[0].Waiting != 3 || got[0].WaitingMore || time.Since(got[0].At).Abs() > time.Minute {
		t.Errorf("what is paused is %+v", got)
	}

	// It is healthy, and says what is paused.
	wantHealth(t, s, "/healthz", 200, `{"live":true,"ready":true,"webhooks":"on","degraded":["paused"]}`)
	if health := s.AdminRequest("GET", "/hooks/health", ""); health.Status != 200 || !strings.Contains(health.Body, "hook github is paused by ann since") {
		t.Errorf("got %d %s", health.Status, health.Body)
	}
	if m := scrape(t, s); m[key("paused", "what", "hook")] != 1 || m[key("paused", "what", "all")] != 0 {
		t.Errorf("the metrics are %v", m)
	}
	if overview := s.AdminRequest("GET", "/hooks/overview", "").Body; !strings.Contains(overview, `"kind":"paused"`) {
		t.Errorf("the overview is %s", overview)
	}

	resume(t, s, "hook", "github")
	hookstest.Eventually(t, "the runs end", func() bool {
		ids, _ := s.Listed("?status=completed&hook=github")
		return len(ids) == 3
	})
	wantHealth(t, s, "/healthz", 200, `{"live":true,"ready":true,"webhooks":"on"}`)
	paused, resumed := lines("paused"), lines("resumed")
	if len(paused) != 1 || len(resumed) != 1 || paused[0]["name"] != "github" || paused[0]["reason"] != "deploy" || resumed[0]["paused_by"] != "ann" {
		t.Errorf("the log says %v and %v", paused, resumed)
	}
	changes, _ := changesOf(s, "/hooks/changes")
	if len(changes) != 2 || !strings.HasPrefix(changes[1].String(), `pauses/hook/github: null → {"`) || !strings.Contains(changes[1].String(), `"by":"ann"`) ||
		!strings.HasSuffix(changes[0].String(), ` → null`) {
		t.Errorf("the changes are %v", changes)
	}
}

func TestChatsRunnersAndEverythingArePaused(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "runner spare echo\nrunner_for deep spare\nworkers 4\n"))
	s.Ended(s.Accept(`{"message":"so that there is the chat","chatId":"deploys"}`))
	for _, thing := range []struct{ what, name, paused, other string }{
		{"chat", "deploys", `{"message":"x","chatId":"deploys"}`, `{"message":"x","chatId":"others"}`},
		{"runner", "spare", `{"message":"x","model":"deep"}`, `{"message":"x"}`},
		{"runner", "default", `{"message":"x"}`, `{"message":"x","model":"deep"}`},
		{"hook", "agent", `{"message":"x"}`, ``},
		{"all", "", `{"message":"x"}`, ``},
	} {
		body := hookstest.AsJSON(t, map[string]string{"what": thing.what, "name": thing.name})
		if thing.name == "" {
			body = `{"what":"all"}`
		}
		pause(t, s, body)
		id := s.Accept(thing.paused)
		if thing.other != "" {
			s.Ended(s.Accept(thing.other))
		}
		run := s.AdminRequest("GET", "/hooks/runs/"+id, "")
		if run.Field(t, "status") != "queued" || run.Field(t, "waitingFor") != "paused by ann" {
			t.Errorf("%s %s: the run is %s", thing.what, thing.name, run.Body)
		}
		if got := pausesOf(t, s); len(got) != 1 || got[0].Waiting != 1 {
			t.Errorf("%s %s: paused is %+v", thing.what, thing.name, got)
		}
		resume(t, s, thing.what, thing.name)
		s.Ended(id)
	}
}

// A caller waits for a paused hook as long as its time allows, as for any queue.
func TestSyncCallerOfAPausedHookWaits(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	pause(t, s, `{"what":"all","reason":"the bank is down"}`)
	resp := s.Post("/api/hooks/agent", `{"message":"x","syncResponse":true,"timeoutSeconds":1}`)
	resp.WantError(t, 504, "The run waited its whole time of 1 seconds: an operator holds such runs back.")
	if id := resp.Header.Get("X-Service-Run-Id"); strings.Contains(resp.Body, "bank") || !strings.Contains(s.ReasonOf(id), "the bank is down") {
		t.Errorf("a caller is told %s, and an operator %s", resp.Body, s.ReasonOf(id))
	}
	held := s.Hold(t.Context(), `{"message":"hello","syncResponse":true}`)
	hookstest.Eventually(t, "the run is queued", func() bool {
		ids, _ := s.Listed("?status=queued")
		return len(ids) == 1
	})
	resume(t, s, "all", "")
	if resp := <-held; resp.Status != 200 || resp.Body != "done" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestPausesAndPacesOutliveReloadsAndRestarts(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	file := t.TempDir() + "/store.db"
	config := hookstest.Hooks(rn, "store bolt "+file+"\nhook github\nhook slow\n")
	s := hookstest.StartSite(t, config)
	pause(t, s, `{"what":"hook","name":"github","reason":"deploy"}`)
	pause(t, s, `{"what":"hook","name":"slow","rate":"1/h"}`).WantMembers(t, `{"rate":"1/1h"}`)
	for range 2 {
		s.Post("/api/hooks/github", `{}`)
		s.Post("/api/hooks/slow", `{}`)
	}
	look := func(when string) {
		t.Helper()
		got := pausesOf(t, s)
		if len(got) != 2 || got[0].Reason != "deploy" || got[0].By != "ann" || got[0].Waiting != 2 || got[1].Rate != "1/1h" {
			t.Errorf("%s: paused is %+v", when, got)
		}
	}
	look("at first")
	s.Reload(config + "\n")
	look("after a reload")
	s.Reload("respond hello") // Caddy has no hooks, and closes the store
	s.Reload(config)
	look("after a restart")
	resume(t, s, "hook", "github")
	resume(t, s, "hook", "slow")
	hookstest.Eventually(t, "all runs end", func() bool {
		ids, _ := s.Listed("?status=completed")
		return len(ids) == 4
	})
	if got := pausesOf(t, s); len(got) != 0 {
		t.Errorf("paused is %+v", got)
	}
}

func TestPausesAreCheckedAndBounded(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook github\nrunner claude echo\n"))
	s.Ended(s.Accept(`{"message":"x","chatId":"team-deploys"}`))
	for body, want := range map[string]string{
		`{}`:                               "what must be hook, chat, runner or all",
		`[]`:                               "JSON",
		`{"what":"hooks","name":"github"}`: "what must be",
		`{"what":"all","name":"github"}`:   "all has no name",
		`{"what":"hook"}`:                  "name must be that of the hook",
		`{"what":"hook","name":1}`:         "name must be a string",
		`{"what":"all","why":"x"}`:         "why is unknown here",
		`{"what":"all","reason":"a\nb"}`:   "one line",
		`{"what":"all","rate":"10"}`:       "rate must have a time after its slash, as in 10/s",
		`{"what":"all","rate":"0/s"}`:      "rate must allow 1 to",
		`{"what":"all","rate":"1/1ms"}`:    "rate must be for a time from 1s",
		`{"what":"all","reason":"` + strings.Repeat("x", 201) + `"}`: "reason must not be longer than 200 bytes",
		`{"what":"chat","name":"` + strings.Repeat("x", 257) + `"}`:  "name must not be longer than 256 bytes",
	} {
		s.AdminRequest("POST", "/hooks/pauses", body).WantAdminError(t, 400, want)
	}
	for body, want := range map[string]string{
		`{"what":"hook","name":"guthub"}`:         `there is no hook "guthub"; did you mean "github"?`,
		`{"what":"runner","name":"cloude"}`:       `there is no runner "cloude"; did you mean "claude"?`,
		`{"what":"chat","name":"team-deploy"}`:    `there is no chat "team-deploy"; did you mean "team-deploys"?`,
		`{"what":"runner","name":"\u202egithub"}`: `there is no runner`,
	} {
		s.AdminRequest("POST", "/hooks/pauses", body).WantAdminError(t, 404, want)
	}
	pause(t, s, `{"what":"hook","name":"github"}`)
	s.AdminRequest("DELETE", "/hooks/pauses?what=hook&name=githob", "").WantAdminError(t, 404, `the hook "githob" is not paused; did you mean "github"?`)
	s.AdminRequest("DELETE", "/hooks/pauses?what=all", "").WantAdminError(t, 404, "all is not paused")
	s.AdminRequest("DELETE", "/hooks/pauses?what=hook", "").WantAdminError(t, 400, "name must be")
	s.AdminRequest("PUT", "/hooks/pauses", "").WantAdminError(t, 405, "use GET, POST, DELETE")

	// The same thing again replaces its pause, and others are let in up to a number.
	pause(t, s, `{"what":"hook","name":"github","reason":"again"}`)
	var mappings []string
	for i := range 100 {
		mappings = append(mappings, fmt.Sprintf(`{"name":"hook-%d"}`, i))
	}
	mappings = append(mappings, `{"name":"github"}`)
	if resp := s.AdminRequest("PATCH", "/hooks/settings", `{"mappings":[`+strings.Join(mappings, ",")+`]}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	for i := range 99 {
		pause(t, s, fmt.Sprintf(`{"what":"hook","name":"hook-%d"}`, i))
	}
	s.AdminRequest("POST", "/hooks/pauses", `{"what":"hook","name":"hook-99"}`).WantAdminError(t, 409, "100 things are paused")
	if got := pausesOf(t, s); len(got) != 100 || got[0].Reason != "again" {
		t.Errorf("%d things are paused: %+v", len(got), got[:1])
	}
	// A change of other settings keeps them, and a hook that is gone can be resumed.
	if resp := s.AdminRequest("DELETE", "/hooks/mappings/hook-1", ""); resp.Status != 204 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	resume(t, s, "hook", "hook-1")
	if got := pausesOf(t, s); len(got) != 99 || slices.ContainsFunc(got, func(p pauseView) bool { return p.Name == "hook-1" }) {
		t.Errorf("%d things are paused", len(got))
	}
}

// A pause that one node is told of holds on all.
func TestAllNodesObeyAPause(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s, b, _, _ := twoNodes(t, store, pinnedOn)
		paused := s.AdminRequest("POST", "/hooks/instances/a/pauses", `{"what":"hook","name":"agent","reason":"deploy"}`, "Hooks-Operator", "ann")
		if paused.Status != 200 {
			t.Fatalf("got %d %s", paused.Status, paused.Body)
		}
		hookstest.Eventually(t, "the other node knows", func() bool {
			return strings.Contains(s.AdminRequest("GET", "/hooks/health", "").Body, `"instance":"b","live":true,"ready":true,"webhooks":"on","degraded":[{"code":"paused"`)
		})
		wake := func() {
			t.Helper()
			if resp := s.Post("/b/wake", `{"text":"hello"}`); resp.Status/100 != 2 { // which node b starts
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
		}
		wake()
		b.Next() // what node b asked the store for before it knew is over
		id, _ := s.Post("/a/agent", `{"message":"hello"}`).Field(t, "runId").(string)
		wake()
		if turn := b.Next(); turn.Text("runId") == id {
			t.Error("the paused run has started")
		}
		run := s.AdminRequest("GET", "/hooks/instances/b/runs/"+id, "")
		if run.Field(t, "waitingFor") != "paused by ann: deploy" {
			t.Errorf("the run is %s", run.Body)
		}
		if resp := s.AdminRequest("DELETE", "/hooks/instances/b/pauses?what=hook&name=agent", ""); resp.Status != 204 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
		if turn := b.Next(); turn.Text("runId") != id {
			t.Errorf("the turn is %+v", turn)
		}
	})
}
