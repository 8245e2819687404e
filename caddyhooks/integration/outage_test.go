package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var outage = flag.Duration("outage", 20*time.Second, "how long the runner is down in the test of an outage")

const outageRuns = 5000

// outageCaller sends runs of its own chats, one after the other, each until it is accepted.
type outageCaller struct {
	url      string
	number   int
	accepted map[string]string // text of a message by run id; "" for wakes, which get no id
	sent     []string          // texts in order
	refused  int               // sync calls that got 503
}

// send posts a request until it is accepted. The key sees to it that it is accepted once.
func (c *outageCaller) send(t *testing.T, path, body, text string) (runID string) {
	for deadline := time.Now().Add(time.Minute); ; {
		resp, err := hookstest.TryRequest("POST", c.url+path, body, "Authorization", "Bearer "+hookstest.Token, "Idempotency-Key", text)
		if err == nil && (resp.Status == http.StatusOK || resp.Status == http.StatusAccepted) {
			var answer struct{ RunID string }
			_ = json.Unmarshal([]byte(resp.Body), &answer)
			return answer.RunID
		}
		if time.Now().After(deadline) {
			t.Errorf("%s is not accepted: %d %s, %v", text, resp.Status, resp.Body, err)
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *outageCaller) run(t *testing.T, runs int, pause time.Duration) {
	for i := range runs {
		text := fmt.Sprintf("%d-%05d", c.number, i)
		chat := fmt.Sprintf("chat %d-%d", c.number, i%25)
		switch i % 4 {
		case 0:
			c.send(t, "/api/hooks/wake", fmt.Sprintf(`{"text":"%s","chatId":"%s"}`, text, chat), text)
		case 1:
			id := c.send(t, "/api/hooks/agent", fmt.Sprintf(`{"message":"%s","timeoutSeconds":2}`, text), text) // a chat of its own
			c.accepted[id] = text
		default:
			id := c.send(t, "/api/hooks/agent", fmt.Sprintf(`{"message":"%s","chatId":"%s","timeoutSeconds":2}`, text, chat), text)
			c.accepted[id] = text
		}
		c.sent = append(c.sent, text)
		if i%50 == 0 {
			c.ask(t)
		}
		time.Sleep(pause)
	}
}

// ask sends a request whose caller waits, and who must be told that the agent is unreachable.
func (c *outageCaller) ask(t *testing.T) {
	resp, err := hookstest.TryRequest("POST", c.url+"/api/hooks/agent", `{"message":"sync","syncResponse":true,"timeoutSeconds":600}`,
		"Authorization", "Bearer "+hookstest.Token)
	switch {
	case err != nil: // Caddy was killed
	case resp.Status == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		c.refused++
	default:
		t.Errorf("a caller who waits got %d %s", resp.Status, resp.Body)
	}
}

// The runner is down, for longer than runs may take, while runs come in and Caddy is killed twice. With -outage 3m it takes
// as long as an outage in real life.
func TestAnOutageOfTheRunnerLosesNothing(t *testing.T) {
	t.Parallel()
	port := hookstest.FreePort(t)
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, `hooks {
		enabled
		token `+hookstest.Token+`
		runner http http://127.0.0.1:`+port+`
		store bolt `+filepath.Join(t.TempDir(), "hooks.db")+`
	}`)
	began := time.Now()
	p := d.Start(t)
	var callers []*outageCaller
	var sending sync.WaitGroup
	for n := range 5 {
		c := &outageCaller{url: d.URL, number: n, accepted: make(map[string]string)}
		callers = append(callers, c)
		sending.Go(func() { c.run(t, outageRuns/5, *outage*8/10/(outageRuns/5)) })
	}
	hasty := (&outageCaller{url: d.URL}).send(t, "/api/hooks/agent", `{"message":"hasty","queueTimeSeconds":1}`, "hasty")
	for range 2 {
		time.Sleep(*outage / 4)
		wantIdleWorkers(t, d)
		p.Kill()
		p = d.Start(t)
	}
	sending.Wait()
	time.Sleep(time.Until(began.Add(*outage)))
	wantIdleWorkers(t, d)
	wantStatus(t, d, hasty, "expired")

	runner := startOutageRunner(t, port)
	hookstest.Within(t, 3*time.Minute, "all runs end when the runner is back", func() bool {
		return runner.count() >= outageRuns && len(listed(t, d, "queued"))+len(listed(t, d, "running")) == 0
	})
	p.Terminate(t)
	p.WantCleanExit(t)
	p.WantNoCrash(t)
	p = d.Start(t)
	for _, status := range []string{"timed_out", "failed", "cancelled"} {
		for _, run := range listed(t, d, status) {
			if run.Hook != "agent" || !run.sync() {
				t.Errorf("a run is %s: %+v", status, run)
			}
		}
	}
	refused := 0
	for _, c := range callers {
		refused += c.refused
		for id, text := range c.accepted {
			if turns := runner.turns[text]; len(turns) != 1 || turns[0] != id {
				t.Errorf("%s was accepted as %s and carried out as %v", text, id, turns)
			}
		}
		runner.wantOrder(t, c)
	}
	if refused == 0 {
		t.Error("no caller who waits was told")
	}
	t.Logf("%d runs waited for %s with two kills; %d callers who wait were told at once", outageRuns, *outage, refused)
	p.Terminate(t)
	p.WantCleanExit(t)
}

// outageRun is a run as the admin API lists it.
type outageRun struct {
	RunID, Status, Hook, ChatID, WaitingFor, ErrorMessage string
}

// sync reports whether the run was one whose caller waited. Those are told that the agent is unreachable, and end.
func (r outageRun) sync() bool {
	return strings.Contains(r.ErrorMessage, "not available right now") || strings.Contains(r.ErrorMessage, "service was restarted") ||
		strings.Contains(r.ErrorMessage, "caller went away") || strings.Contains(r.ErrorMessage, "was cancelled")
}

// listed returns the first page of runs with a status.
func listed(t *testing.T, d *hookstest.Deployment, status string) []outageRun {
	t.Helper()
	resp, err := hookstest.TryRequest("GET", d.Admin+"/hooks/runs?limit=100&status="+url.QueryEscape(status), "")
	if err != nil || resp.Status != http.StatusOK {
		t.Fatalf("listing runs: %d %s, %v", resp.Status, resp.Body, err)
	}
	var page struct{ Runs []outageRun }
	if err := json.Unmarshal([]byte(resp.Body), &page); err != nil {
		t.Fatal(err)
	}
	return page.Runs
}

// wantIdleWorkers checks that runs wait in the queue, with a reason, and that no more than one is tried at a time.
func wantIdleWorkers(t *testing.T, d *hookstest.Deployment) {
	t.Helper()
	hookstest.Eventually(t, "the runner is left alone", func() bool {
		running, queued := listed(t, d, "running"), listed(t, d, "queued")
		return len(running) <= 1 && len(queued) > 0 && !slices.ContainsFunc(queued, func(r outageRun) bool { return r.WaitingFor == "" })
	})
}

func wantStatus(t *testing.T, d *hookstest.Deployment, id, status string) {
	t.Helper()
	resp, err := hookstest.TryRequest("GET", d.URL+"/api/hooks/runs/"+id, "", "Authorization", "Bearer "+hookstest.Token)
	if err != nil || resp.Field(t, "status") != status {
		t.Errorf("run %s is %s, %v, want it %s", id, resp.Body, err, status)
	}
}

// outageRunner is the runner when it is back.
type outageRunner struct {
	mu    sync.Mutex
	turns map[string][]string            // run ids by text
	chats map[string]map[string][]string // texts in order, by caller and chat
}

func startOutageRunner(t *testing.T, port string) *outageRunner {
	t.Helper()
	rn := &outageRunner{turns: make(map[string][]string), chats: make(map[string]map[string][]string)}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var turn struct{ RunID, ChatID, Message string }
		if err := json.NewDecoder(r.Body).Decode(&turn); err != nil {
			t.Error(err)
		}
		text := turn.Message
		if parts := hookstest.Markers.FindStringSubmatch(text); parts != nil {
			text = parts[2]
		}
		rn.mu.Lock()
		defer rn.mu.Unlock()
		rn.turns[text] = append(rn.turns[text], turn.RunID)
		caller, _, _ := strings.Cut(text, "-")
		if rn.chats[caller] == nil {
			rn.chats[caller] = make(map[string][]string)
		}
		rn.chats[caller][turn.ChatID] = append(rn.chats[caller][turn.ChatID], text)
		_, _ = io.WriteString(w, "done")
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return rn
}

func (rn *outageRunner) count() int {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return len(rn.turns)
}

// wantOrder checks that all runs of a caller were carried out once, and in order by chat.
func (rn *outageRunner) wantOrder(t *testing.T, c *outageCaller) {
	t.Helper()
	rn.mu.Lock()
	defer rn.mu.Unlock()
	var all []string
	for chat, texts := range rn.chats[fmt.Sprint(c.number)] {
		if !slices.IsSorted(texts) {
			t.Errorf("the order in %s is %v", chat, texts)
		}
		all = append(all, texts...)
	}
	slices.Sort(all)
	if !slices.Equal(all, c.sent) {
		t.Errorf("caller %d had %d runs accepted, and %d carried out", c.number, len(c.sent), len(all))
	}
}
