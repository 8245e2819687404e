package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// tally counts what happened, by what it was about.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = make(map[string]int)
	}
	c.count[what]++
}

func (c *tally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}

// countingRunner answers with the message, and counts the turns of each. Messages that begin with "held" are held until
// release is closed.
func countingRunner(t testing.TB) (rn *httptest.Server, turns *tally, release chan struct{}) {
	turns, release = new(tally), make(chan struct{})
	inner := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		message := tn.Text("message")
		if parts := hookstest.Markers.FindStringSubmatch(message); parts != nil {
			message = parts[2]
		}
		turns.add(message)
		if strings.HasPrefix(message, "held") {
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, message)
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range inner.Turns {
		}
	}()
	t.Cleanup(func() {
		inner.Server.CloseClientConnections()
		inner.Server.Close()
		close(inner.Turns)
		<-done
	})
	return inner.Server, turns, release
}

// persistentClient is a client that keeps one connection, and sends a request again until it is answered. Every request
// has a key, so that one which is sent again is not another request; those of a client that gives up have none.
type persistentClient struct {
	http.Client
	givesUp bool
	broken  tally // messages whose request got no answer at first
}

func newPersistentClient() *persistentClient {
	return &persistentClient{Client: http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
}

func (c *persistentClient) post(t testing.TB, url, body, text string) hookstest.Response {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		req, err := http.NewRequest("POST", url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return hookstest.Response{}
		}
		req.GetBody = nil // sending again is for us to decide
		req.Header.Set("Authorization", "Bearer "+hookstest.Token)
		if !c.givesUp {
			req.Header.Set("Idempotency-Key", text)
		}
		resp, err := c.Do(req)
		if err != nil {
			// At a reload Caddy closes connections that are idle, and resets those it has not taken yet.
			c.broken.add(text)
			if c.givesUp {
				return hookstest.Response{}
			}
			continue
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Errorf("an answer broke off: %v", err)
		}
		if resp.StatusCode == http.StatusConflict && c.broken.all()[text] > 0 {
			continue // its first try is being carried out
		}
		return hookstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(data)}
	}
	t.Errorf("a request was never answered: %s", body)
	return hookstest.Response{}
}

func TestHundredReloadsUnderLoadLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	rn, turns, release := countingRunner(t)
	var callbacks tally
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		callbacks.add(string(body))
	}))
	t.Cleanup(receiver.Close)
	config := func(version int) string {
		return fmt.Sprintf(`
		header X-Version %d
		hooks {
			enabled
			token %s
			runner http %s
			workers %d
			queue_limit %d
			hook custom {
				action agent
				sync
				template "{a}"
			}
			hook version-%[1]d
			%[6]s
		}`, version, hookstest.Token, rn.URL, 12+version%5, 10_000+version, hookstest.WithCallbacks)
	}
	s := hookstest.StartProcess(t, config(0))
	var loading, loaded atomic.Int64

	// Some wait for their answers all the while.
	held := make(chan hookstest.Response, 9)
	for i := range 3 {
		text := fmt.Sprintf("held %d", i)
		go func() {
			resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", `{"message":"`+text+`","syncResponse":true}`, "Authorization", "Bearer "+hookstest.Token)
			if err != nil {
				resp.Body = err.Error()
			}
			held <- resp
		}()
		id := s.Accept(`{"message":"` + text + ` behind","chatId":"` + text + `"}`)
		queued := s.Accept(`{"message":"behind ` + text + `","chatId":"` + text + `"}`)
		for _, id := range []string{id, queued} {
			go func() {
				resp, err := hookstest.TryRequest("GET", s.URL+hookstest.RunPath(id)+"?wait=5m", "", "Authorization", "Bearer "+hookstest.Token)
				if err != nil {
					resp.Body = err.Error()
				}
				held <- resp
			}()
		}
	}
	hookstest.Eventually(t, "all are held", func() bool {
		return hookstest.GoroutinesIn(s, "engine.(*Engine).Do(") == 3 && hookstest.GoroutinesIn(s, "engine.(*records).Find(") == 6
	})

	stop := make(chan struct{})
	var clients sync.WaitGroup
	stopClients := sync.OnceFunc(func() {
		close(stop)
		clients.Wait()
	})
	defer stopClients()
	var answered atomic.Int64
	var mu sync.Mutex
	runs := make(map[string]string)       // by message, of those that are told their run
	sent := make(map[string]bool)         // messages
	wantCallback := make(map[string]bool) // messages
	broken := make(map[string]bool)
	for n := range 9 {
		clients.Go(func() {
			client := newPersistentClient()
			client.givesUp = n >= 6
			defer client.CloseIdleConnections()
			for i := 0; ; i++ {
				select {
				case <-stop:
					mu.Lock()
					for text := range client.broken.all() {
						broken[text] = true
					}
					mu.Unlock()
					return
				default:
				}
				text := fmt.Sprintf("%d-%d", n, i)
				path, body, status, want := "wake", `{"text":"`+text+`","chatId":"`+text+`"}`, 200, `{"status":"accepted","chatId":"`+text+`"}`
				callback := false
				switch i % 4 {
				case 1:
					callback = true
					path, body, status, want = "agent", `{"message":"`+text+`","callbackUrl":"`+receiver.URL+`"}`, 202, ""
				case 2:
					path, body, want = "agent", `{"message":"`+text+`","syncResponse":true}`, text
				case 3:
					path, body, want = "custom", `{"a":"`+text+`"}`, text
				}
				before := loaded.Load()
				resp := client.post(t, s.URL+"/api/hooks/"+path, body, text)
				if resp.Status == 0 && client.givesUp {
					continue
				}
				after := loading.Load()
				var version int64
				if _, err := fmt.Sscan(resp.Header.Get("X-Version"), &version); err != nil || version < before || version > after {
					t.Errorf("version %q answered between %d and %d", resp.Header.Get("X-Version"), before, after)
				}
				if resp.Status != status || want != "" && resp.Body != want {
					t.Errorf("%s: got %d %s", body, resp.Status, resp.Body)
					return
				}
				mu.Lock()
				sent[text] = true
				if callback {
					wantCallback[text] = true
				}
				if id := resp.Header.Get("X-Service-Run-Id"); id != "" {
					runs[text] = id
				} else if status == 202 {
					runs[text], _ = resp.Field(t, "runId").(string)
				}
				mu.Unlock()
				answered.Add(1)
			}
		})
	}
	const reloads = 100
	for version := 1; version <= reloads; version++ {
		seen := answered.Load()
		loading.Store(int64(version))
		s.Load(config(version))
		loaded.Store(int64(version))
		hookstest.Eventually(t, "the hook of this reload is there", func() bool {
			text := fmt.Sprintf(`{"version":%d}`, version)
			resp, err := hookstest.TryRequest("POST", fmt.Sprintf("%s/api/hooks/version-%d", s.URL, version), text, "Authorization", "Bearer "+hookstest.Token)
			if err != nil {
				mu.Lock()
				broken[text] = true
				mu.Unlock()
			}
			return err == nil && resp.Status == 200
		})
		hookstest.Eventually(t, "requests are answered", func() bool { return answered.Load() >= seen+20 || t.Failed() })
	}
	s.Settle()
	if resp := s.Post(fmt.Sprintf("/api/hooks/version-%d", reloads), "{}"); resp.Status != 200 {
		t.Errorf("the last configuration is not served: %d %s", resp.Status, resp.Body)
	}
	stopClients()

	if len(held) != 0 {
		t.Errorf("somebody was woken early: %+v", <-held)
	}
	close(release)
	for range 9 {
		if resp := hookstest.ReceiveWithin(t, "who waits is answered", held); resp.Status != 200 || !strings.Contains(resp.Body, "held") {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	}
	hookstest.Eventually(t, "all that was accepted is carried out", func() bool {
		count := turns.all()
		for text := range sent {
			if count[text] == 0 {
				return false
			}
		}
		return true
	})
	for text, n := range turns.all() {
		// A caller whose connection breaks in the wrong moment cancels its run, and then has it carried out anew.
		if n != 1 && !broken[text] {
			t.Errorf("%d turns of %q", n, text)
		}
	}
	for text, id := range runs {
		if r := s.Ended(id); r.Status != "completed" || r.Reply != text || r.Attempts != 1 {
			t.Errorf("%q: %s", text, r.Body)
		}
	}
	hookstest.Eventually(t, "all callbacks come", func() bool {
		came := callbacks.all()
		for text := range wantCallback {
			if came[text] == 0 {
				return false
			}
		}
		return true
	})
	for text, n := range callbacks.all() {
		if n != 1 || !wantCallback[text] && !broken[text] {
			t.Errorf("%d callbacks of %q", n, text)
		}
	}
	t.Logf("%d requests in %d reloads, %d of them sent again", len(sent), reloads, len(broken))
}

// Requests race with changes of the very mapping they use, and with reloads. Each answer must be one that some setting
// between the start and the end of the request gives.
func TestRequestsRacingWithChangesAreAnsweredRightly(t *testing.T) {
	t.Parallel()
	config := func(workers int) string {
		return fmt.Sprintf("hooks {\n\tenabled\n\trunner echo\n\ttoken %s\n\tworkers %d\n}", hookstest.Token, workers)
	}
	s := hookstest.StartProcess(t, config(4))
	var sent, saved atomic.Int64
	put := func(n int64) {
		sent.Store(n)
		for {
			// Caddy restarts its admin endpoint at every reload.
			got, err := hookstest.TryRequest("PUT", s.Admin+"/hooks/mappings/racing",
				fmt.Sprintf(`{"action":"agent","syncResponse":true,"messageTemplate":"%d {n}"}`, n))
			if err != nil {
				continue
			}
			if got.Status != 200 {
				t.Errorf("PUT: %+v", got)
			}
			saved.Store(n)
			return
		}
	}
	put(0)

	const requests, clients = 2000, 8
	done := make(chan struct{})
	var changes, load sync.WaitGroup
	changes.Go(func() {
		for n := int64(1); ; n++ {
			select {
			case <-done:
				return
			default:
				put(n)
			}
		}
	})
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				s.Load(config(4 + n%4))
			}
		}
	})
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	var answered atomic.Int64
	for c := range clients {
		load.Go(func() {
			for i := range requests / clients {
				n := fmt.Sprint(c*requests + i)
				before := saved.Load()
				answer, status := askRetrying(t, client, s.URL+"/api/hooks/racing", `{"n":`+n+`}`)
				after := sent.Load()
				var v int64
				var echoed string
				if _, err := fmt.Sscanf(answer, "%d %s", &v, &echoed); err != nil || status != 200 || echoed != n || v < before || v > after {
					t.Errorf("got %d %q for %s between versions %d and %d", status, answer, n, before, after)
				}
				answered.Add(1)
			}
		})
	}
	load.Wait()
	close(done)
	changes.Wait()
	if answered.Load() != requests {
		t.Errorf("%d of %d requests were answered", answered.Load(), requests)
	}
	t.Logf("%d requests beside %d changes", answered.Load(), saved.Load())
}

// askRetrying sends a request. At a reload Caddy closes idle connections and resets fresh ones it has not taken yet;
// only such a request, which has not been answered at all, is sent again.
func askRetrying(t *testing.T, client *http.Client, url, body string) (string, int) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		req, err := http.NewRequest("POST", url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return "", 0
		}
		req.Header.Set("Authorization", "Bearer "+hookstest.Token)
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Errorf("an answer broke off: %v", err)
		}
		return string(data), resp.StatusCode
	}
	t.Error("a request was never answered")
	return "", 0
}

func TestReloadWithAnotherRunner(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	named := func(name string) *hookstest.Runner {
		return hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
			select {
			case <-release:
				_, _ = io.WriteString(w, name)
			case <-r.Context().Done():
			}
		})
	}
	old, next := named("old"), named("new")
	s := hookstest.StartProcess(t, hookstest.Hooks(old, ""))
	running := s.Accept(`{"message":"a","chatId":"c"}`)
	old.Next()
	queued := s.Accept(`{"message":"b","chatId":"c"}`)
	s.Reload(hookstest.Hooks(next, ""))
	other := s.Accept(`{"message":"c"}`)
	if got := next.Next().Text("runId"); got != other {
		t.Errorf("the new runner got the turn of %s, want %s", got, other)
	}
	close(release)
	for id, reply := range map[string]string{running: "old", queued: "new", other: "new"} {
		if r := s.Ended(id); r.Reply != reply || r.Attempts != 1 {
			t.Errorf("got %s, want the answer of the %s runner", r.Body, reply)
		}
	}
}

func TestReloadWithMoreOrFewerWorkers(t *testing.T) {
	t.Parallel()
	rn, _, release := hookstest.HeldRunner(t)
	config := func(workers int) string { return hookstest.Hooks(rn, fmt.Sprintf("workers %d", workers)) }
	s := hookstest.StartProcess(t, config(1))
	var ids []string
	for i := range 6 {
		ids = append(ids, s.Accept(fmt.Sprintf(`{"message":"hold %d"}`, i)))
	}
	rn.Next()
	if len(rn.Turns) != 0 {
		t.Error("there is more than one turn at once")
	}
	s.Reload(config(4))
	for range 3 {
		rn.Next()
	}
	if r := s.Run(ids[3]); r.Status != "running" {
		t.Errorf("with four workers the fourth run is %s", r.Status)
	}
	if r := s.Run(ids[4]); r.Status != "queued" {
		t.Errorf("with four workers the fifth run is %s", r.Status)
	}
	s.Reload(config(1))
	for _, id := range ids[:3] {
		s.CancelRun(id).Shown(t)
	}
	// One turn is still under way, and that is all there may be now.
	if r := s.Run(ids[4]); r.Status != "queued" {
		t.Errorf("with one worker the fifth run is %s", r.Status)
	}
	close(release)
	for _, id := range ids[3:] {
		if r := s.Ended(id); r.Status != "completed" {
			t.Errorf("got %s", r.Body)
		}
	}
}

func TestReloadWithAnotherStore(t *testing.T) {
	t.Parallel()
	rn, _, release := hookstest.HeldRunner(t)
	dir := t.TempDir()
	config := func(name string) string {
		return hookstest.Hooks(rn, "drain_timeout 100ms\n store bolt "+filepath.Join(dir, name))
	}
	s := hookstest.StartProcess(t, config("a.db"))
	s.PutMapping("live", `{}`)
	running := s.Accept(`{"message":"hold","chatId":"c"}`, hookstest.Key("k")...)
	rn.Next()
	queued := s.Accept(`{"message":"queued","chatId":"c"}`)
	held := s.Hold(t.Context(), `{"message":"hold","chatId":"d","syncResponse":true}`)
	rn.Next()

	s.Reload(config("b.db"))
	resp := hookstest.ReceiveWithin(t, "who waits is answered", held)
	resp.WantError(t, 503)
	if resp.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	for _, id := range []string{running, queued} {
		s.LookUp(id, "").WantError(t, 404)
	}
	s.Post("/api/hooks/live", `{}`).WantError(t, 404)
	other := s.Post("/api/hooks/agent", `{"message":"hold","chatId":"c"}`, hookstest.Key("k")...)
	other.WantNew(t, 202)
	rn.Next()

	close(release)
	s.Ended(other.Field(t, "runId").(string))
	s.Reload(config("a.db"))
	for id, reply := range map[string]string{running: "hold", queued: "queued"} {
		if r := s.Ended(id); r.Status != "completed" || r.Reply != reply || r.Attempts != 1 {
			t.Errorf("got %s", r.Body)
		}
	}
	s.LookUp(other.Field(t, "runId").(string), "").WantError(t, 404)
	if resp := s.Post("/api/hooks/live", `{}`); resp.Status != 200 {
		t.Errorf("the live mapping is gone: %d", resp.Status)
	}
	entries, err := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if err != nil || !slices.Equal(names, []string{"a.db", "b.db"}) {
		t.Errorf("the files are %v, %v", names, err)
	}
}

func TestTwoInstancesOnOneStoreAreRefused(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, nil)
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.db")
	s := hookstest.StartProcess(t, hookstest.Hooks(rn, ""), "CADDYHOOKS_TEST_STORE="+path)
	s.Accept(`{"message":"a"}`)
	for name, stores := range map[string][2]string{
		"the same path":                 {path, path},
		"a path in other words":         {path, dir + "/./x/../runs.db"},
		"a path from the environment":   {path, "{env.CADDYHOOKS_TEST_STORE}"},
		"the path that another one has": {"", filepath.Join(s.Data, "caddy", "hooks", "default.db")},
	} {
		t.Run(name, func(t *testing.T) {
			store := func(path string) string {
				if path == "" {
					return ""
				}
				return "store bolt " + path
			}
			err := s.TryLoad("hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n " + store(stores[0]) + "\n}\nhooks other {\n path /other\n " + store(stores[1]) + "\n}")
			if err == nil {
				t.Fatal("it was loaded")
			}
			for _, word := range []string{`"default"`, `"other"`, "same store"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error %q does not speak of %s", err, word)
				}
			}
		})
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a configuration that was refused left a file")
	}
	// What was there before goes on.
	if resp := s.Post("/api/hooks/wake", `{"text":"a"}`); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestReloadWithAStoreThatCannotBeOpenedChangesNothing(t *testing.T) {
	t.Parallel()
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartProcess(t, hookstest.Hooks(rn, ""))
	s.PutMapping("live", `{}`)
	held := s.Hold(t.Context(), `{"message":"hold","syncResponse":true}`)
	rn.Next()
	notAStore := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(notAStore, []byte(strings.Repeat("not a store\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{t.TempDir(), notAStore} {
		if err := s.TryLoad(hookstest.Hooks(rn, "store bolt "+path)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("got the error %v", err)
		}
	}
	// The same with a second instance whose store is good, and which must be let go again.
	if err := s.TryLoad(hookstest.Hooks(rn, "") + "\nhooks another {\n path /x\n}\n hooks last {\n path /y\n store bolt " + notAStore + "\n}"); err == nil {
		t.Error("it was loaded")
	}
	s.Settle()
	if len(held) != 0 {
		t.Errorf("who waits was answered: %+v", <-held)
	}
	close(release)
	if resp := hookstest.ReceiveWithin(t, "who waits is answered", held); resp.Status != 200 || resp.Body != "hold" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if resp := s.Post("/api/hooks/live", `{}`); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if resp := s.AdminRequest("GET", "/hooks/instances", ""); strings.TrimSpace(resp.Body) != `["default"]` {
		t.Errorf("the instances are %s", resp.Body)
	}
	// And the file of the second one is free.
	s.Reload(hookstest.Hooks(rn, "") + "\nhooks another {\n path /x\n}")
}
