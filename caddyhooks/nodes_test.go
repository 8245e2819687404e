package caddyhooks_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func init() {
	caddy.RegisterModule(sharedStore{})
}

// sharedStore is a store whose data several instances open, each as a node of its own.
type sharedStore struct {
	Data string `json:"data"`
}

var sharedData sync.Map // *memory.Data by name

func (sharedStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "hooks.stores.shared", New: func() caddy.Module { return new(sharedStore) }}
}

func (s *sharedStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&s.Data) {
		return d.ArgErr()
	}
	return nil
}

func (s *sharedStore) StoreKey(instance string) string { return "shared:" + s.Data + ":" + instance }

func (s *sharedStore) OpenStore(context.Context, string) (engine.Store, error) {
	data, _ := sharedData.LoadOrStore(s.Data, memory.New())
	return data.(*memory.Data).Store(), nil
}

// nodeStore is the directive of a store that several nodes share, for each of them.
type nodeStore func(node string) string

// onNodeStores runs a test with each store that nodes can share.
func onNodeStores(t *testing.T, test func(t *testing.T, store nodeStore)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		data := uuid.NewString()
		test(t, func(string) string { return "store shared " + data })
	})
	if onPostgres != nil {
		t.Run("postgres", func(t *testing.T) { test(t, onPostgres(t)) })
	}
}

// onPostgres is a store in PostgreSQL, in tests with real programs.
var onPostgres func(t *testing.T) nodeStore

// twoNodes starts a Caddy with two instances on the same data, below /a and /b. Node a has one worker, and its runner is
// busy until the end of the test: so everything else is carried out by node b.
func twoNodes(t *testing.T, store nodeStore, settings string) (s *hookstest.Server, b *hookstest.Runner, gone chan string, release chan struct{}) {
	t.Helper()
	b, gone, release = hookstest.HeldRunner(t)
	return nodeBeside(t, store, settings, b), b, gone, release
}

// nodeBeside is twoNodes with a runner for node b.
func nodeBeside(t *testing.T, store nodeStore, settings string, b *hookstest.Runner) (s *hookstest.Server) {
	t.Helper()
	busy := make(chan struct{})
	t.Cleanup(func() { close(busy) })
	a := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-busy:
		case <-r.Context().Done():
		}
	})
	node := func(name string, rn *hookstest.Runner, more string) string {
		return "hooks " + name + " {\n" + settings + "\n" + store(name) + "\npath /" + name +
			"\nrunner http " + rn.URL + "\ndrain_timeout 100ms\n" + more + "\n}\n"
	}
	s = hookstest.StartSite(t, node("a", a, "workers 1")+node("b", b, ""))
	if settings == "" {
		patch := s.AdminRequest("PATCH", "/hooks/instances/a/settings", `{"enabled":true,"token":"`+hookstest.Token+`"}`)
		if patch.Status != 200 {
			t.Fatalf("got %d %s", patch.Status, patch.Body)
		}
	}
	for {
		if resp := s.Post("/a/agent", `{"message":"`+busyMessage+`"}`); resp.Status != 202 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
		select {
		case <-a.Turns:
			return s
		case <-b.Turns:
		}
	}
}

// busyMessage is sent until it has come to node a. Node b has to answer it at once.
const busyMessage = "keep one of you busy"

const pinnedOn = "enabled\ntoken " + hookstest.Token

func TestSyncCallerIsAnsweredWhateverNodeCarriesOutItsRun(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s, _, _, _ := twoNodes(t, store, pinnedOn)
		if resp := s.Post("/a/agent", `{"message":"hello","syncResponse":true}`); resp.Status != 200 || resp.Body != "hello" {
			t.Errorf("got %d %q", resp.Status, resp.Body)
		}
		resp := s.Post("/a/agent", `{"message":"{\"ok\":true}","syncResponse":true,"responseJsonSchema":{"type":"object","required":["ok"]}}`)
		if resp.Status != 200 || resp.Body != `{"ok":true}` || resp.Header.Get("X-Service-Schema-Repair-Attempts") != "0" {
			t.Errorf("got %d %q, %v", resp.Status, resp.Body, resp.Header)
		}
		s.Post("/a/agent", `{"message":"fail","syncResponse":true}`).WantError(t, 502)
		s.Post("/a/agent", `{"message":"hold","syncResponse":true,"timeoutSeconds":1}`).WantError(t, 504, "within 1 seconds")
	})
}

func TestRunOfAnotherNodeIsWaitedForAndCancelled(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s, b, gone, release := twoNodes(t, store, pinnedOn)
		accept := func(message string) string {
			t.Helper()
			id, _ := s.Post("/a/agent", `{"message":"`+message+`"}`).Field(t, "runId").(string)
			for b.Next().Text("runId") != id {
			}
			return id
		}
		get := func(path string) hookstest.Response {
			return s.Request("GET", path, "", "Authorization", "Bearer "+hookstest.Token)
		}
		cancelled := accept("hold this")
		if resp := s.Post("/a/runs/"+cancelled+"/cancel", ""); resp.Status != 200 || resp.Field(t, "status") != "cancelled" {
			t.Errorf("cancelling gave %d %s", resp.Status, resp.Body)
		}
		if id := hookstest.ReceiveWithin(t, "the turn is cancelled", gone); id != cancelled {
			t.Errorf("the turn of run %s was cancelled", id)
		}

		waited := accept("hold that")
		answer := make(chan hookstest.Response, 1)
		go func() { answer <- get("/a/runs/" + waited + "?wait=1m") }()
		close(release)
		if resp := hookstest.ReceiveWithin(t, "the caller is answered", answer); resp.Field(t, "status") != "completed" || resp.Field(t, "reply") != "hold that" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}

func TestLiveSettingsReachEveryNodeOnTheNextRequest(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s, _, _, _ := twoNodes(t, store, "")
		admin := func(method, path, body string) {
			t.Helper()
			if resp := s.AdminRequest(method, "/hooks/instances/"+path, body); resp.Status >= 300 {
				t.Fatalf("%s %s: got %d %s", method, path, resp.Status, resp.Body)
			}
		}
		post := func(path, token string) int {
			return s.Request("POST", path, `{"text":"x"}`, "Authorization", "Bearer "+token).Status
		}
		want := func(what string, status, got int) {
			t.Helper()
			if got != status {
				t.Errorf("%s: got %d, want %d", what, got, status)
			}
		}
		for range 20 {
			want("a hook that is not there", 404, post("/b/disk", hookstest.Token))
			admin("PUT", "a/mappings/disk", `{"messageTemplate":"{text}"}`)
			want("a hook that node a has saved", 200, post("/b/disk", hookstest.Token))
			admin("PATCH", "b/settings", `{"token":"another"}`)
			want("the old token", 401, post("/a/wake", hookstest.Token))
			want("the new token", 200, post("/a/wake", "another"))
			admin("PATCH", "a/settings", `{"enabled":false}`)
			want("webhooks that are off", 404, post("/b/wake", "another"))
			admin("PATCH", "b/settings", `{"enabled":true,"token":"`+hookstest.Token+`"}`)
			want("webhooks that are on", 200, post("/a/wake", hookstest.Token))
			admin("DELETE", "b/mappings/disk", "")
		}
	})
}

// Both nodes change hooks of their own at the same time: none of the changes is lost.
func TestChangesOnTwoNodesDoNotOverwriteEachOther(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s, _, _, _ := twoNodes(t, store, "")
		var group sync.WaitGroup
		for _, node := range []string{"a", "b"} {
			group.Go(func() {
				for i := range 25 {
					name := node + strings.Repeat("x", i)
					save := func() hookstest.Response {
						return s.AdminRequest("PUT", "/hooks/instances/"+node+"/mappings/"+name, `{}`)
					}
					resp := save()
					for tries := 0; resp.Status == http.StatusConflict && tries < 20; tries++ { // the other node was quicker time and again
						resp = save()
					}
					if resp.Status != http.StatusOK {
						t.Errorf("%s: got %d %s", name, resp.Status, resp.Body)
					}
				}
			})
		}
		group.Wait()
		for _, node := range []string{"a", "b"} {
			resp := s.AdminRequest("GET", "/hooks/instances/"+node+"/mappings", "")
			if n := strings.Count(resp.Body, `"name":`); n != 50 {
				t.Errorf("node %s shows %d hooks", node, n)
			}
		}
	})
}

// A run that a node accepted is acknowledged only if the settings it was checked against are still in force everywhere.
func TestRevokedTokenIsRefusedAtOnceOnEveryNode(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s, _, _, _ := twoNodes(t, store, "")
		stop := make(chan struct{})
		var group sync.WaitGroup
		var mu sync.RWMutex // held while the token changes
		token := hookstest.Token
		for range 4 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					mu.RLock()
					sent := token
					mu.RUnlock()
					req, _ := http.NewRequest("POST", s.URL+"/b/wake", strings.NewReader(`{"text":"x"}`))
					req.Header.Set("X-Service-Token", sent)
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		for i := range 50 {
			old, newer := token, "token-"+strings.Repeat("x", i)
			if resp := s.AdminRequest("PATCH", "/hooks/instances/a/settings", `{"token":"`+newer+`"}`); resp.Status != 200 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
			if resp := s.Request("POST", "/b/wake", `{"text":"x"}`, "X-Service-Token", old); resp.Status != 401 && resp.Status != 429 {
				t.Errorf("the revoked token is answered %d", resp.Status)
			}
			mu.Lock()
			token = newer
			mu.Unlock()
		}
		close(stop)
		group.Wait()
	})
}

// Refused and ignored requests are counted and kept over all nodes: each shows what came to the other.
func TestRefusedRequestsAreThoseOfAllNodes(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		s := nodeBeside(t, store, pinnedOn+"\nkeep_refused 1h", hookstest.StartRunner(t, nil))
		const each = 5
		for range each {
			for _, node := range []string{"a", "b"} {
				s.Request("POST", "/"+node+"/wake", `{"text":"x"}`, "X-Service-Token", "wrong")
			}
		}
		count := func(node string) (total int64) {
			resp := s.AdminRequest("GET", "/hooks/instances/"+node+"/refused?hook=wake", "")
			var page api.RefusedList
			if err := json.Unmarshal([]byte(resp.Body), &page); err != nil {
				t.Fatalf("got %d %s: %v", resp.Status, resp.Body, err)
			}
			for _, kind := range page.Refused {
				total += kind.Count
			}
			return total
		}
		kept := func(node string) int {
			return strings.Count(s.AdminRequest("GET", "/hooks/instances/"+node+"/refused/requests?hook=wake", "").Body, `"id"`)
		}
		for _, node := range []string{"a", "b"} {
			hookstest.Eventually(t, "node "+node+" counts those of both", func() bool { return count(node) == 2*each })
			hookstest.Eventually(t, "node "+node+" has requests of both", func() bool { return kept(node) > each })
		}
	})
}
