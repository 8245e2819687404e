package caddyhooks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// wantHealth checks an answer to whoever asks for the health of a site.
func wantHealth(t *testing.T, s *hookstest.Server, path string, status int, body string) {
	t.Helper()
	wantHealthIn(t, path, s.Request("GET", path, ""), status, body)
}

// wantHealthIn is wantHealth for an answer.
func wantHealthIn(t *testing.T, path string, resp hookstest.Response, status int, body string) {
	t.Helper()
	if resp.Status != status || resp.Body != body || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: got %d %s %v\nwant %d %s", path, resp.Status, resp.Body, resp.Header, status, body)
	}
}

// eventuallyHealth waits until a site answers with a status about its health.
func eventuallyHealth(t *testing.T, s *hookstest.Server, status int) {
	t.Helper()
	hookstest.Eventually(t, fmt.Sprintf("/healthz answers %d", status), func() bool {
		resp, err := hookstest.TryRequest("GET", s.URL+"/healthz", "", "Connection", "close")
		return err == nil && resp.Status == status
	})
}

func TestHealthIsToldOnTheSite(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	const on = `{"live":true,"ready":true,"webhooks":"on"}`
	s := hookstest.StartSite(t, `
	basic_auth /private/* {
		somebody $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
	}
	@never header X-Never 1
	hooks @never team {
		path /team
		health /healthz/team
	}
	`+hookstest.Hooks(rn, "health /healthz")+`
	respond "the rest of the site"`)
	for path, want := range map[string]string{
		"/healthz": on, "/healthz/ready": on, "/healthz/live": on, "/healthz/": on, "/healthz/live/": on,
		// Off is what an operator chose. The matcher of the hooks does not matter.
		"/healthz/team": `{"live":true,"ready":true,"webhooks":"off"}`, "/healthz/team/live": `{"live":true,"ready":true,"webhooks":"off"}`,
	} {
		wantHealth(t, s, path, 200, want)
	}
	// A check that is misspelt must not pass, whatever the rest of the site answers.
	for _, path := range []string{"/healthz/dead", "/healthz/readyz", "/healthz//ready", "/healthz/live/x", "/healthz/team/dead"} {
		s.Request("GET", path, "").WantError(t, 404, "/ready and /live")
	}
	for _, path := range []string{"/healthzz", "/health", "/HEALTHZ"} {
		if resp := s.Request("GET", path, ""); resp.Body != "the rest of the site" {
			t.Errorf("%s: got %d %s", path, resp.Status, resp.Body)
		}
	}
	if head := s.Request("HEAD", "/healthz", ""); head.Status != 200 || head.Body != "" || head.Header.Get("Content-Length") != fmt.Sprint(len(on)) {
		t.Errorf("HEAD: got %d %q %v", head.Status, head.Body, head.Header)
	}
	post := s.Post("/healthz", "{}")
	post.WantError(t, 405, "GET or HEAD")
	if post.Header.Get("Allow") != "GET, HEAD" || post.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("POST: got %v", post.Header)
	}
	s.AdminRequest("GET", "/hooks/health", "").WantJSON(t, `{"live":true,"ready":true,"instances":[
		{"instance":"default","live":true,"ready":true,"webhooks":"on"},{"instance":"team","live":true,"ready":true,"webhooks":"off"}]}`)
	if err := s.TryLoad("hooks {\n health /healthz\n}\nhooks b {\n path /b\n health /healthz\n}"); err == nil || !strings.Contains(err.Error(), "same path, /healthz,") {
		t.Errorf("two instances with one path: %v", err)
	}
}

func TestNotReadyWhileAllRunnersAreUnreachable(t *testing.T) {
	var up atomic.Bool
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(agent.Close)
	good := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+agent.URL+`
		health /healthz
	}
	hooks accepts {
		path /accepts
		enabled
		token `+hookstest.Token+`
		runner http `+agent.URL+`
		health /accepts-health {
			despite runner_unreachable
		}
	}
	hooks other {
		path /other
		enabled
		token `+hookstest.Token+`
		runner absent http `+agent.URL+`
		runner good http `+good.URL+`
		runner_for smart good
		health /other-health
	}`)
	for _, path := range []string{"/api/hooks", "/accepts", "/other"} {
		for range 5 {
			body := `{"message":"a"}`
			if path == "/other" {
				body = `{"message":"a","model":"balanced"}`
			}
			if resp := s.Post(path+"/agent", body); resp.Status != 202 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
		}
	}
	// From time to time the runner is tried again, and for a moment nobody knows.
	const unready, degraded = `{"live":true,"ready":false,"webhooks":"on","reasons":["runner_unreachable"]}`, `{"live":true,"ready":true,"webhooks":"on","degraded":["runner_unreachable"]}`
	for path, want := range map[string]string{
		"/healthz": "503 " + unready, "/healthz/ready": "503 " + unready, "/healthz/live": "200 " + unready, "/accepts-health": "200 " + degraded, "/other-health": "200 " + degraded,
	} {
		hookstest.Eventually(t, path+" answers "+want, func() bool {
			resp := s.Request("GET", path, "")
			return fmt.Sprint(resp.Status, " ", resp.Body) == want
		})
	}
	hookstest.Eventually(t, "the admin endpoint names the runners", func() bool {
		admin := s.AdminRequest("GET", "/hooks/health", "")
		return admin.Status == 503 && strings.Contains(admin.Body, `the runner \"default\"`) && strings.Contains(admin.Body, `the runner \"absent\"`) && strings.Contains(admin.Body, `"code":"runner_unreachable"`)
	})
	if live := s.AdminRequest("GET", "/hooks/health/live", ""); live.Status != 200 {
		t.Errorf("live: got %d %s", live.Status, live.Body)
	}
	up.Store(true)
	eventuallyHealth(t, s, 200)
}

func TestNotReadyWhileTheQueueIsNearlyFull(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.QueueCountAge, 0)
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n queue_limit 10\n health /healthz"))
	s.Accept(`{"message":"hold"}`)
	rn.Next()
	for range 9 {
		s.Accept(`{"message":"a"}`)
	}
	wantHealth(t, s, "/healthz", 200, `{"live":true,"ready":true,"webhooks":"on"}`)
	s.Accept(`{"message":"a"}`)
	eventuallyHealth(t, s, 503)
	wantHealth(t, s, "/healthz", 503, `{"live":true,"ready":false,"webhooks":"on","reasons":["queue_nearly_full"]}`)
	if admin := s.AdminRequest("GET", "/hooks/health", ""); !strings.Contains(admin.Body, "more than 9 of 10 runs are queued") {
		t.Errorf("got %s", admin.Body)
	}
	close(release)
	eventuallyHealth(t, s, 200)
}

func init() {
	caddy.RegisterModule(new(unwritableStore))
}

// unwritableStore is a store that accepts runs as long as unwritable is nil, and ends them as long as unendable is. Its name comes after
// those that a golden file lists.
type unwritableStore struct{}

var unwritable, unendable atomic.Pointer[error]

func (*unwritableStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "hooks.stores.unwritable", New: func() caddy.Module { return new(unwritableStore) }}
}

func (*unwritableStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return nil }
func (*unwritableStore) StoreKey(instance string) string                 { return "unwritable:" + instance }
func (*unwritableStore) OpenStore(context.Context, string) (engine.Store, error) {
	return storeOfUnwritableRuns{memory.New().Store()}, nil
}

type storeOfUnwritableRuns struct{ engine.Store }

func (s storeOfUnwritableRuns) Runs() engine.Runs { return unwritableRuns{s.Store.Runs()} }

type unwritableRuns struct{ engine.Runs }

func (r unwritableRuns) AddAll(ctx context.Context, runs []*engine.Run, terms engine.Terms) error {
	if err := unwritable.Load(); err != nil {
		return *err
	}
	return r.Runs.AddAll(ctx, runs, terms)
}

func (r unwritableRuns) End(ctx context.Context, claim *engine.Claim, end engine.End, batch engine.Batch) ([]*engine.Claim, error) {
	if err := unendable.Load(); err != nil && !end.Requeue {
		return nil, *err
	}
	return r.Runs.End(ctx, claim, end, batch)
}

// wantStoreUp checks what metrics tell about the store. What it can still read is told, too.
func wantStoreUp(t *testing.T, s *hookstest.Server, want float64) {
	t.Helper()
	m := scrape(t, s)
	if up, ok := m[key("store_up")]; !ok || up != want {
		t.Errorf("store_up is %v, want %v", up, want)
	}
	if _, ok := m[key("queue_depth")]; !ok {
		t.Error("there is no queue_depth")
	}
}

func TestNotReadyWhileTheStoreCannotBeWrittenTo(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n store unwritable\n health /healthz\n}")
	t.Cleanup(func() { unwritable.Store(nil) })
	wake := func() int { return s.Post("/api/hooks/wake", `{"text":"a"}`).Status }
	for code, err := range map[string]error{
		"store_disk_full": fmt.Errorf("writing /secret/path: %w", syscall.ENOSPC),
		"store_read_only": fmt.Errorf("writing /secret/path: %w", syscall.EROFS),
		"store_failing":   fmt.Errorf("writing /secret/path: %w", syscall.EIO),
	} {
		unwritable.Store(&err)
		if status := wake(); status != 503 {
			t.Errorf("accepting answers %d", status)
		}
		wantHealth(t, s, "/healthz", 503, `{"live":true,"ready":false,"webhooks":"on","reasons":["`+code+`"]}`)
		wantHealth(t, s, "/healthz/live", 200, `{"live":true,"ready":false,"webhooks":"on","reasons":["`+code+`"]}`)
		wantStoreUp(t, s, 0)
		unwritable.Store(nil)
		if status := wake(); status != 200 {
			t.Errorf("accepting answers %d", status)
		}
		wantHealth(t, s, "/healthz", 200, `{"live":true,"ready":true,"webhooks":"on"}`)
		wantStoreUp(t, s, 1)
	}
	// Only a restart mends a broken store.
	var broken error = &engine.StoreBrokenError{Reason: "/secret/path has a torn page"}
	unwritable.Store(&broken)
	wake()
	wantHealth(t, s, "/healthz", 503, `{"live":false,"ready":false,"webhooks":"on","reasons":["store_broken"]}`)
	wantHealth(t, s, "/healthz/live", 503, `{"live":false,"ready":false,"webhooks":"on","reasons":["store_broken"]}`)
	if live := s.AdminRequest("GET", "/hooks/health/live", ""); live.Status != 503 {
		t.Errorf("live: got %d %s", live.Status, live.Body)
	}
}

// failingStores are stores that accept runs and cannot store how they end.
var failingStores = map[string]func(t *testing.T) (directive, code, reason string, fail, mend func()){
	"one of this machine": func(t *testing.T) (directive, code, reason string, fail, mend func()) {
		t.Cleanup(func() { unendable.Store(nil) })
		err := fmt.Errorf("writing: %w", syscall.ENOSPC)
		return "store unwritable", "store_disk_full", "no space left on device", func() { unendable.Store(&err) }, func() { unendable.Store(nil) }
	},
}

// A store that cannot store how runs end fails, however many it accepts.
func TestNotReadyWhileNoRunCanEnd(t *testing.T) {
	for store, breaks := range failingStores {
		t.Run(store, func(t *testing.T) {
			directive, code, reason, fail, mend := breaks(t)
			s, log := newLoggedServer(t)
			s.Load(hookstest.Hooks(hookstest.StartRunner(t, nil), directive+"\nworkers 2\nhealth /healthz"))
			s.Ended(s.Accept(`{"message":"before"}`))
			fail()
			first := s.Accept(`{"message":"a"}`)
			eventuallyHealth(t, s, 503)
			for range 10 {
				s.Accept(`{"message":"a"}`)
				wantHealth(t, s, "/healthz", 503, `{"live":true,"ready":false,"webhooks":"on","reasons":["`+code+`"]}`)
				wantStoreUp(t, s, 0)
				for path, member := range map[string]string{"/hooks/health": `"code":"` + code + `"`, "/hooks/overview": `"kind":"` + code + `"`} {
					if body := s.AdminRequest("GET", path, "").Body; !strings.Contains(body, member) || !strings.Contains(body, "storing the end of a run: ") || !strings.Contains(body, reason) {
						t.Errorf("%s tells %s", path, body)
					}
				}
				if t.Failed() {
					break
				}
			}
			if text := log(); !strings.Contains(text, "the store failed, trying again") || !strings.Contains(text, reason) {
				t.Errorf("the log is %s", text)
			}
			mend()
			s.Ended(first)
			hookstest.Eventually(t, "all tell that runs end again", func() bool {
				return s.Request("GET", "/healthz", "").Status == 200 && scrape(t, s)[key("store_up")] == 1 &&
					!strings.Contains(s.AdminRequest("GET", "/hooks/overview", "").Body, code)
			})
		})
	}
}

// Caddy serves on for shutdown_delay, so that load balancers hear of the end.
func TestNotReadyWhileCaddyIsAboutToStop(t *testing.T) {
	s := hookstest.NewServer(t)
	whileCaddyStops(t, s, "hooks {\n health /healthz\n}", func() {}, func() error {
		for path, status := range map[string]int{"/healthz": 503, "/healthz/live": 200} {
			resp, err := hookstest.TryRequest("GET", s.URL+path, "")
			if err != nil {
				return err
			}
			wantHealthIn(t, path, resp, status, `{"live":true,"ready":false,"webhooks":"off","reasons":["stopping"]}`)
		}
		return nil
	})
}
