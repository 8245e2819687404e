package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Senders send every event several times, to all nodes at once, while Caddy is killed time and again. Each value of once has one run, each
// value of rate by has as many as it may, a chat with overlap skip has one run that has not ended, and with overlap replace the last event is
// the one that is carried out. With fold latest no turn is told less than one before it, and the last one is told the last event.
func TestGatesHoldUnderKills(t *testing.T) {
	t.Parallel()
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		sendAndKill(t, 1, "bolt")
	})
	t.Run("three nodes", func(t *testing.T) {
		t.Parallel()
		database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
		sendAndKill(t, 3, "postgres \""+database.TCP("postgres", pgtest.Password, "postgres")+"\" {\nlease 3s\n}")
	})
}

const gateHooks = `
	hook once {
		action agent
		template "{n}"
		once "{id}"
	}
	hook rated {
		action agent
		template "{n}"
		rate 3/1h by "{id}"
	}
	hook skipping {
		action agent
		template "hold {n}"
		chat_id "{id}"
		overlap skip
	}
	hook replacing {
		action agent
		template "hold {n}"
		chat_id "{id}"
		overlap replace
	}
	hook folding {
		action agent
		template "{n}"
		chat_id "{id}"
		fold 1s 4 latest
	}`

func sendAndKill(t *testing.T, nodes int, store string) {
	const values, times, kills = 40, 6, 6
	var released atomic.Bool
	var mu sync.Mutex
	answered := make(map[string][]string) // the messages that were, by chat
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var turn struct{ ChatID, Message string }
		_ = json.NewDecoder(r.Body).Decode(&turn)
		for strings.HasPrefix(turn.Message, "hold") && !released.Load() {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		mu.Lock()
		defer mu.Unlock()
		answered[turn.ChatID] = append(answered[turn.ChatID], turn.Message)
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(agent.Close)
	hooks := fmt.Sprintf("hooks {\nenabled\ntoken %s\nstore %s\nworkers 200\nmax_attempts 100\nrunner http %s\n%s\n}", hookstest.Token, store, agent.URL,
		gateHooks)
	processes := make([]*hookstest.Process, nodes)
	for i := range processes {
		processes[i] = hookstest.NewBinary(t).Serve(t, "", hooks)
	}
	// post sends an event to a node, and to others until one answers.
	post := func(hook, body string) (status int) {
		for range 600 {
			resp, err := hookstest.TryRequest("POST", processes[rand.IntN(nodes)].URL+"/api/hooks/"+hook, body, "Authorization", "Bearer "+hookstest.Token)
			if err == nil && resp.Status < 500 {
				return resp.Status
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("nobody answers a request of %s", hook)
		return 0
	}
	var senders sync.WaitGroup
	var last, lastState [values]int // the number of the last event that was accepted of each chat of replacing, and of folding
	for v := range values {
		for _, hook := range []string{"once", "rated", "skipping"} {
			senders.Go(func() {
				var attempts sync.WaitGroup
				for n := range times {
					attempts.Go(func() { post(hook, fmt.Sprintf(`{"id":"value %d","n":%d}`, v, n)) })
				}
				attempts.Wait()
			})
		}
		senders.Go(func() {
			for n := range times {
				if post("replacing", fmt.Sprintf(`{"id":"chat %d","n":%d}`, v, n)) == 202 {
					last[v] = n
				}
			}
		})
		senders.Go(func() {
			for n := range times {
				if post("folding", fmt.Sprintf(`{"id":"state %d","n":%d}`, v, n)) == 202 {
					lastState[v] = n
				}
			}
		})
	}
	sent := make(chan struct{})
	go func() {
		senders.Wait()
		close(sent)
	}()
	for i := range kills {
		select {
		case <-sent:
		case <-time.After(300 * time.Millisecond):
		}
		n := i % nodes
		processes[n].Kill()
		processes[n].Over = true
		processes[n] = processes[n].Deployment.Start(t)
	}
	<-sent

	type run struct{ Status string }
	runsOf := func(hook string) (runs []run) {
		t.Helper()
		resp, err := hookstest.TryRequest("GET", processes[nodes-1].Admin+"/hooks/runs?limit=1000&hook="+hook, "")
		var list struct{ Runs []run }
		if err == nil {
			err = json.Unmarshal([]byte(resp.Body), &list)
		}
		if err != nil {
			t.Fatal(err, resp.Body)
		}
		return list.Runs
	}
	check := func(when string) {
		t.Helper()
		for hook, want := range map[string]int{"once": values, "rated": 3 * values, "skipping": values} {
			if got := len(runsOf(hook)); got != want {
				t.Errorf("%s, the hook %s has %d runs, want %d", when, hook, got, want)
			}
		}
	}
	check("after the kills")
	for v := range values { // what is known survives a restart of all
		if v == 0 {
			for n := range processes {
				processes[n].Kill()
				processes[n].Over = true
			}
			for n := range processes {
				processes[n] = processes[n].Deployment.Start(t)
			}
		}
		for _, hook := range []string{"once", "rated", "skipping"} {
			post(hook, fmt.Sprintf(`{"id":"value %d","n":99}`, v))
		}
	}
	check("after a restart")
	released.Store(true)
	hookstest.Within(t, 90*time.Second, "all runs have ended", func() bool {
		for _, hook := range []string{"once", "rated", "skipping", "replacing", "folding"} {
			for _, run := range runsOf(hook) {
				if run.Status == "queued" || run.Status == "running" {
					return false
				}
			}
		}
		return true
	})
	for _, run := range runsOf("folding") {
		if run.Status != "completed" {
			t.Errorf("a run of fold latest is %s", run.Status)
		}
	}
	count := make(map[string]int)
	for _, run := range runsOf("replacing") {
		count[run.Status]++
	}
	if count["completed"] != values || count["cancelled"] < values*(times-1) || len(count) != 2 {
		t.Errorf("runs that replace each other ended as %v", count)
	}
	mu.Lock()
	defer mu.Unlock()
	for v := range values {
		chat := fmt.Sprintf("chat %d", v)
		if want := fmt.Sprintf("hold %d", last[v]); len(answered[chat]) != 1 || answered[chat][0] != want {
			t.Errorf("of chat %d these were carried out: %q, want %q", v, answered[chat], want)
		}
	}
	turns := 0
	for v := range values {
		told := answered[fmt.Sprintf("state %d", v)]
		turns += len(told)
		if !slices.IsSorted(told) || len(told) == 0 || told[len(told)-1] != fmt.Sprint(lastState[v]) {
			t.Errorf("turns of chat %d were told %q, and the last event is %d", v, told, lastState[v])
		}
	}
	t.Logf("runs that replace each other ended as %v; %d runs of fold latest were told in %d turns", count, len(runsOf("folding")), turns)
	for _, p := range processes {
		p.WantNoCrash(t)
	}
}
