package caddyhooks_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// runnerView is a runner as the admin API shows it.
type runnerView struct {
	Name, Module, Address, State, LastError string
	Default, Gone                           bool
	Tiers                                   []string
	InFlight                                int
	LastErrorAt, LastOK                     *time.Time
}

// runnersOf are the runners of a site, by their names.
func runnersOf(t *testing.T, s *hookstest.Server) map[string]runnerView {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/runners", "")
	var all []runnerView
	if err := json.Unmarshal([]byte(resp.Body), &all); err != nil || resp.Status != 200 {
		t.Fatalf("got %d %s: %v", resp.Status, resp.Body, err)
	}
	byName := make(map[string]runnerView)
	for i, one := range all {
		if i > 0 && all[i-1].Name >= one.Name {
			t.Errorf("they are not sorted by name: %s", resp.Body)
		}
		byName[one.Name] = one
	}
	return byName
}

// Runners of one kind are told apart by what they are for.
func TestRunnersAreListedWithTheirPreset(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { _, _ = io.WriteString(w, "it is so") })
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "runner coder acp claude\nrunner local openai ollama\nrunner other openai http://127.0.0.1:9/v1 {\n model x\n}\nrunner quick command codex\nrunner script command /bin/true\n"))
	out, _, err := command(t, "--address", strings.TrimPrefix(s.Admin, "http://"), "runners")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"coder": "acp claude", "local": "openai ollama http://127.0.0.1:11434", "other": "openai http://127.0.0.1:9", "quick": "command codex", "script": "command /bin/true",
	} {
		line := regexp.MustCompile(`(?m)^` + name + ` .*$`).FindString(out)
		if kind := regexp.MustCompile(`  +`).Split(line, -1); len(kind) < 2 || kind[1] != want {
			t.Errorf("%s is %q, want %q", name, line, want)
		}
	}
}

// A runner that is down does not stop Caddy, and is not in the way of others.
func TestRunnersAreListedWithTheirState(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "it is so")
	})
	const dead = "runner dead http http://127.0.0.1:1/a-secret-path\n"
	s := hookstest.StartSite(t, hookstest.Hooks(rn, dead+"runner spare echo\nrunner_for coding deep dead\nhook dying {\n action agent\n runner dead\n}\nworkers 16\n"))
	s.AdminRequest("GET", "/hooks/about", "").WantMembers(t, `{"runner":"http","runners":[{"name":"dead","kind":"http"},{"name":"default","kind":"http"},{"name":"spare","kind":"echo"}]}`)
	s.AdminRequest("GET", "/hooks/runners", "").WantJSON(t, `[
		{"name":"dead","module":"http","address":"http://127.0.0.1:1","tiers":["coding","deep"],"state":"unknown","inFlight":0,"lastError":"","lastErrorAt":null,"lastOk":null},
		{"name":"default","module":"http","address":"`+rn.URL+`","default":true,"state":"unknown","inFlight":0,"lastError":"","lastErrorAt":null,"lastOk":null},
		{"name":"spare","module":"echo","state":"unknown","inFlight":0,"lastError":"","lastErrorAt":null,"lastOk":null}]`)

	for range 8 {
		s.Accept(`{"message":"to the dead","model":"deep"}`)
	}
	hookstest.Eventually(t, "runs wait for the dead runner", func() bool { return runnersOf(t, s)["dead"].State == "unreachable" })
	if dead := runnersOf(t, s)["dead"]; !strings.HasPrefix(dead.LastError, "reaching the runner: ") || dead.LastErrorAt == nil || dead.LastOK != nil {
		t.Errorf("the dead runner is %+v", dead)
	}
	if resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`); resp.Status != 200 || resp.Body != "it is so" {
		t.Errorf("the other runner: %d %s", resp.Status, resp.Body)
	}
	s.Post("/api/hooks/agent", `{"message":"fail","syncResponse":true}`).WantError(t, 502, "The agent failed to answer.")
	if works := runnersOf(t, s)["default"]; works.State != "failing" || works.LastOK == nil || works.LastError != "the runner answered 500: it is so" || works.LastErrorAt.Before(*works.LastOK) {
		t.Errorf("the runner that works is %+v", works)
	}
	if overview := s.AdminRequest("GET", "/hooks/overview", "").Body; !strings.Contains(overview, `"text":"the agent dead has been out of reach for`) {
		t.Errorf("the overview is %s", overview)
	}
	s.AdminRequest("GET", "/hooks/instances/default/runners", "").WantNew(t, 200)

	// After a reload without it, its runs fail at once, and nobody else gets them.
	s.Reload(hookstest.Hooks(rn, "runner spare echo\n"))
	hookstest.Eventually(t, "runs of the runner that is gone fail", func() bool {
		ids, _ := s.Listed("?status=failed")
		return len(ids) == 9
	})
	ids, _ := s.Listed("?status=failed") // the newest first
	run := s.AdminRequest("GET", "/hooks/runs/"+ids[len(ids)-1], "")
	if run.Field(t, "reason") != `runner "dead" is not configured any more` || run.Field(t, "errorMessage") != "The agent that the run was accepted for is not configured any more." || run.Field(t, "runner") != "dead" {
		t.Errorf("such a run is %s", run.Body)
	}
	if all := runnersOf(t, s); len(all) != 2 || all["default"].State != "failing" || all["default"].LastOK == nil {
		t.Errorf("after the reload there are %+v", all)
	}
}

func TestOperatorsTryARunner(t *testing.T) {
	const secret = "runner-secret-0123456789"
	long := strings.Repeat("ä", 4000)
	rn := hookstest.StartRunner(t, nil)
	replies := make(chan func(http.ResponseWriter, *http.Request, hookstest.Turn), 10)
	rn.Reply = func(w http.ResponseWriter, r *http.Request, turn hookstest.Turn) { (<-replies)(w, r, turn) }
	s := hookstest.StartSite(t, `hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+rn.URL+` {
			token `+secret+`
		}
		runner dead http http://127.0.0.1:1/
	}`)
	const path = "/hooks/runners/default/try"
	try := func() (answer struct {
		OK          bool
		Text, Error string
		Seconds     *float64
	}) {
		t.Helper()
		resp := s.AdminRequest("POST", path, "")
		wantNoSecrets(t, path, resp.Body, secret)
		if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || resp.Status != 200 || answer.Seconds == nil {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		return answer
	}
	replies <- hookstest.ReplyText("OK, " + secret)
	if answer := try(); !answer.OK || !strings.HasPrefix(answer.Text, "OK, ") || answer.Error != "" {
		t.Errorf("got %+v", answer)
	}
	turn := rn.Next()
	turn.WantMemory(t, "disabled")
	if id := turn.Text("runId"); turn.Text("message") != "Answer with OK." || turn.Text("action") != "agent" || id == "" || turn.Text("chatId") != "try:"+id || turn.Header.Get("Idempotency-Key") != id+":turn" {
		t.Errorf("the turn is %v", turn)
	}
	replies <- hookstest.ReplyText(long)
	if answer := try(); !answer.OK || len(answer.Text) > 4<<10+len("…") || !strings.HasSuffix(answer.Text, "ä…") {
		t.Errorf("got %d bytes that end with %q", len(answer.Text), answer.Text[len(answer.Text)-6:])
	}
	replies <- func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "not with "+r.Header.Get("Authorization"))
	}
	if answer := try(); answer.OK || answer.Text != "" || !strings.HasPrefix(answer.Error, "the runner answered 401: not with ") {
		t.Errorf("got %+v", answer)
	}
	wantNoSecrets(t, "/hooks/runners", s.AdminRequest("GET", "/hooks/runners", "").Body, secret)
	if dead := s.AdminRequest("POST", "/hooks/runners/dead/try", "{}"); dead.Field(t, "ok") != false || !strings.HasPrefix(dead.Field(t, "error").(string), "reaching the runner: ") {
		t.Errorf("a dead one: %s", dead.Body)
	}
	s.AdminRequest("POST", "/hooks/runners/other/try", "").WantAdminError(t, 404, `there is no runner "other"; there are dead and default`)
	s.AdminRequest("GET", path, "").WantAdminError(t, 405)
	if ids, _ := s.Listed(""); len(ids) != 0 {
		t.Errorf("there are runs: %v", ids)
	}

	// One that is under way: another one is refused, and whoever hangs up ends it.
	gone := make(chan struct{})
	replies <- func(_ http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		<-r.Context().Done()
		close(gone)
	}
	for range 2 {
		rn.Next()
	}
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", s.Admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		answered <- err
	}()
	rn.Next()
	if state := runnersOf(t, s)["default"]; state.InFlight != 1 {
		t.Errorf("while it is tried the runner is %+v", state)
	}
	s.AdminRequest("POST", path, "").WantAdminError(t, 409, "runner default is being tried by somebody else")
	hangUp()
	hookstest.ReceiveWithin(t, "the turn of the try ends", gone)
	if err := hookstest.ReceiveWithin(t, "the try ends", answered); err == nil {
		t.Error("a try that was given up is answered")
	}
	hookstest.Eventually(t, "nothing is in flight", func() bool { return runnersOf(t, s)["default"].InFlight == 0 })
}

func TestOperatorsWhoSeeNoTextsSeeNoneOfRunners(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "loud words")
	})
	s := hookstest.StartSite(t, basicAuth+"hooks {\n enabled\n token "+hookstest.Token+"\n runner http "+rn.URL+"\n}\nhooks_dashboard {\nhide_texts\n}")
	page := pageOf(t, s).as("alice")
	s.Post("/api/hooks/agent", `{"message":"fail","syncResponse":true}`).WantError(t, 502)
	if list := page.api("GET", "runners", ""); list.Status != 200 || strings.Contains(list.Body, "loud words") || strings.Contains(list.Body, `"lastErrorAt":null`) {
		t.Errorf("the list is %d %s", list.Status, list.Body)
	}
	if try := page.api("POST", "runners/default/try", ""); try.Field(t, "ok") != true || try.Field(t, "text") != "" {
		t.Errorf("the try is %d %s", try.Status, try.Body)
	}
}
