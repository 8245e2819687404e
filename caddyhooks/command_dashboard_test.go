package caddyhooks_test

import (
	"bufio"
	"net/http/httptest"
	"os/user"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// localPage is the page of `caddy hooks dashboard`, for a browser that a link let in.
func localPage(t *testing.T, s *hookstest.Server, flags ...string) (inside, outside dashboardPage) {
	t.Helper()
	page, newLink, err := caddyhooks.LocalPage(append(flags, "--address", s.Admin)...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	outside = dashboardPage{t: t, url: server.URL + "/"}
	admitted := outside.get("?" + newLink())
	cookie, _, _ := strings.Cut(admitted.Header.Get("Set-Cookie"), ";")
	if cookie == "" {
		t.Fatal("the link does not work")
	}
	inside = outside.with("Cookie", cookie)
	inside.url += strings.TrimPrefix(admitted.Header.Get("Location"), "./")
	return inside, outside
}

func TestAddressesOfTheAdminEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"http://localhost:2019":  "",
		"http://localhost:2019/": "",
		"localhost:2019":         "",
		"localhost":              "",
		"unix//run/caddy.sock":   "",
		"https://localhost:2019": "begins with https://, and the admin endpoint speaks plain HTTP: use host:port or unix//path",
		"localhost:2019/hooks":   "is not an admin endpoint: use host:port or unix//path",
		"http://localhost/hooks": "is not an admin endpoint: use host:port or unix//path",
		"off":                    "is not an admin endpoint: use host:port or unix//path",
	} {
		_, _, err := caddyhooks.LocalPage("--address", address)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}

func TestLocalDashboardSetsAnInstanceUp(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	page, outside := localPage(t, s)
	page.wantOpen()
	outside.wantClosed(page.asset(), 401, "not let in yet")
	page.with("Host", "evil.example").wantClosed(page.asset(), 403, "ssh -L")
	page.api("GET", "me", "").WantJSON(t, hookstest.AsJSON(t, map[string]any{"user": me.Username, "readOnly": false, "hideTexts": false,
		"instances": []string{"default"}, "access": "caddy hooks dashboard"}))
	if resp := page.api("PATCH", "settings", `{"enabled":true,"token":"`+hookstest.Token+`"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if resp := page.api("PUT", "mappings/first", `{"action":"wake"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if resp := s.Post("/api/hooks/first", `{}`); resp.Status != 200 {
		t.Errorf("the hook is answered %d %s", resp.Status, resp.Body)
	}
	changes := page.api("GET", "changes?limit=1", "")
	if want := `"by":` + hookstest.AsJSON(t, me.Username) + `,"via":"caddy hooks dashboard","address":"127.0.0.1"`; !strings.Contains(changes.Body, want) {
		t.Errorf("the changes are %s", changes.Body)
	}
	page.api("GET", "runs/none", "").WantAdminError(t, 404, `no run "none"`)
	page.api("GET", "mappings/a%20b", "").WantAdminError(t, 404, `no hook "a b"`)
	page.api("POST", "settings", "").WantAdminError(t, 405, "use GET, PATCH")
	page.api("PATCH", "settings", strings.Repeat("a", 4<<20+1)).WantAdminError(t, 413, "4194304")
	for _, path := range []string{"../config/", "..%2fconfig", "runs/../../config", "%2e%2e/config"} {
		if resp := page.api("GET", path, ""); resp.Status != 404 {
			t.Errorf("%s: got %d %s", path, resp.Status, resp.Body)
		}
	}
}

// Caddy's admin endpoint answers with headers for other origins, and the page has headers that must be there once.
func TestLocalDashboardPassesOnNoOtherHeaders(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	page, _ := localPage(t, s)
	// The admin endpoint would refuse what browsers say about a request.
	resp := page.with("Origin", strings.Join(strings.SplitN(page.url, "/", 4)[:3], "/"), "Sec-Fetch-Mode", "no-cors", "Referer", page.url).api("GET", "settings", "")
	if resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	wantNoCORS(t, resp)
	for _, name := range []string{"Content-Security-Policy", "Cache-Control", "Cross-Origin-Resource-Policy", "Content-Type"} {
		if len(resp.Header.Values(name)) != 1 {
			t.Errorf("%s is %q", name, resp.Header.Values(name))
		}
	}
}

func TestLocalDashboardRefusesOtherSites(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	s.PutMapping("some", `{"messageTemplate":"a text that must not be read"}`)
	before := s.AdminRequest("GET", "/hooks/settings", "").Body
	page, _ := localPage(t, s)
	for name, headers := range map[string][]string{
		"no header":             nil,
		"another site":          {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "cross-site"},
		"another port":          {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-site"},
		"a foreign origin":      {"X-Hooks-Dashboard", "1", "Origin", "https://evil.example"},
		"origin of the admin":   {"X-Hooks-Dashboard", "1", "Origin", s.Admin},
		"a rebound name":        {"X-Hooks-Dashboard", "1", "Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"},
		"a form":                {"Content-Type", "application/x-www-form-urlencoded", "Origin", "https://evil.example"},
		"a form without origin": {"Content-Type", "text/plain"},
	} {
		endpointsOf(t, func(method, path, _ string) {
			for _, method := range []string{method, "OPTIONS"} {
				resp := page.with(headers...).send(method, "api/"+path, `{}`)
				if resp.Status != 403 || strings.Contains(resp.Body, "must not be read") {
					t.Errorf("%s: %s %s: got %d %s", name, method, path, resp.Status, resp.Body)
				}
				wantNoCORS(t, resp)
			}
		})
	}
	if after := s.AdminRequest("GET", "/hooks/settings", "").Body; after != before {
		t.Errorf("the settings were %s\nand are %s", before, after)
	}
}

func TestLocalDashboardShowsOneInstance(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}\nhooks ops {\npath /ops\n}")
	page, _ := localPage(t, s, "--instance", "ops")
	page.api("GET", "me", "").WantMembers(t, `{"instances":["ops"]}`)
	page.api("GET", "instances", "").WantJSON(t, `["ops"]`)
	for _, path := range []string{"health", "health/ready", "health/live"} {
		page.api("GET", path, "").WantJSON(t, `{"live":true,"ready":true,"instances":[{"instance":"ops","live":true,"ready":true,"webhooks":"off"}]}`)
	}
	if resp := page.api("GET", "instances/ops/settings", ""); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	for _, path := range []string{"settings", "instances/default/settings", "instances/d%65fault/settings"} {
		page.api("GET", path, "").WantAdminError(t, 404, "--instance ops")
	}
	page.api("PATCH", "settings", `{"enabled":true}`).WantAdminError(t, 404, "--instance ops")

	standard, _ := localPage(t, s, "--instance", "default")
	standard.wantOpen()
	standard.api("GET", "instances", "").WantJSON(t, `["default"]`)
	standard.api("GET", "health", "").WantJSON(t, `{"live":true,"ready":true,"instances":[{"instance":"default","live":true,"ready":true,"webhooks":"off"}]}`)
	standard.api("GET", "instances/ops/settings", "").WantAdminError(t, 404, "--instance default")
}

func TestLocalDashboardPassesStreamsOn(t *testing.T) {
	more := make(chan string)
	defer caddyhooks.AddStream("/stream-of-a-test", more)()
	page, _ := localPage(t, hookstest.StartSite(t, "hooks {\nrunner echo\n}"))
	stream := page.with("X-Hooks-Dashboard", "1").open("GET", "api/stream-of-a-test", "")
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	for _, want := range []string{"data: first", "", "data: second", ""} {
		if want == "data: second" {
			more <- "data: second\n\n"
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
}

// The name of an operator is kept, logged and shown.
func TestOperatorOfTheAdminEndpointIsOneShortLine(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	for name, want := range map[string]string{"": "admin", "root": "root", "a\tb": `a\tb`, "\xff": "�", strings.Repeat("x", 500): strings.Repeat("x", 125) + "…"} {
		if resp, err := hookstest.TryRequest("PUT", s.Admin+"/hooks/mappings/a", `{"messageTemplate":`+hookstest.AsJSON(t, want+name)+`}`, "Hooks-Operator", name); err != nil || resp.Status != 200 {
			t.Fatalf("%q: got %+v, %v", name, resp, err)
		}
		if changes := s.AdminRequest("GET", "/hooks/changes?limit=1", ""); !strings.Contains(changes.Body, `"by":`+hookstest.AsJSON(t, want)) {
			t.Errorf("%q: the changes are %.300s", name, changes.Body)
		}
	}
}

func TestHelpOfTheDashboardNamesTheEndpointAndTheBrowser(t *testing.T) {
	help := caddyhooks.HelpOf("dashboard")
	for _, want := range []string{"environment variable CADDY_ADMIN", "$CADDY_ADMIN, or else localhost:2019", "If it is a Unix socket, no browser is\nopened"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help lacks %q:\n%s", want, help)
		}
	}
}
