package caddyhooks_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// basicAuth lets ops and alice in, whose password is open-sesame.
const basicAuth = `basic_auth {
		ops $2a$04$BlqIg.jomR17UYxdFMVIueZLSh8U5nJG2cG2N98Lt3xHQdlvWSqqm
		alice $2a$04$BlqIg.jomR17UYxdFMVIueZLSh8U5nJG2cG2N98Lt3xHQdlvWSqqm
	}
	`

// dashboardPage is the page at an address, as a browser with these headers sees it.
type dashboardPage struct {
	t       *testing.T
	url     string // with a slash at its end
	headers []string
}

// as returns the page for a user of basicAuth.
func (p dashboardPage) as(user string) dashboardPage {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth(user, "open-sesame")
	return p.with("Authorization", r.Header.Get("Authorization"))
}

func (p dashboardPage) with(headers ...string) dashboardPage {
	p.headers = append(slices.Clone(p.headers), headers...)
	return p
}

// get sends a request of the browser itself.
func (p dashboardPage) get(path string) hookstest.Response {
	p.t.Helper()
	return p.send("GET", path, "")
}

// api sends a request of the page's script.
func (p dashboardPage) api(method, path, body string) hookstest.Response {
	p.t.Helper()
	return p.with("X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-origin").send(method, "api/"+path, body)
}

// send sends a request and follows no redirect. A header Host sets the host.
func (p dashboardPage) send(method, path, body string) hookstest.Response {
	p.t.Helper()
	resp := p.open(method, path, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return hookstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}
}

func (p dashboardPage) open(method, path, body string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(p.headers); i += 2 {
		if p.headers[i] == "Host" {
			req.Host = p.headers[i+1]
		} else {
			req.Header.Add(p.headers[i], p.headers[i+1])
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// asset is the path of the page's script.
func (p dashboardPage) asset() string {
	p.t.Helper()
	page := p.get("")
	found := regexp.MustCompile(`assets/[0-9a-f]+/main\.js`).FindString(page.Body)
	if page.Status != 200 || found == "" {
		p.t.Fatalf("the page is %d %s", page.Status, page.Body)
	}
	return found
}

// wantClosed checks that page, assets, API and stream are refused, whatever is sent along.
func (p dashboardPage) wantClosed(asset string, status int, words string) {
	p.t.Helper()
	for _, path := range []string{"", asset, "nothing", "api/me", "api/settings", "api/runs", "api/events?topics=runs", "api/instances"} {
		for _, headers := range [][]string{nil, {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-origin"}} {
			resp := p.with(headers...).get(path)
			if resp.Status != status || !strings.Contains(resp.Body, words) {
				p.t.Errorf("%q: got %d %s", path, resp.Status, resp.Body)
			}
		}
	}
	for _, test := range [][]string{{"PATCH", "settings", `{"enabled":true}`}, {"PUT", "mappings/a", `{}`}, {"POST", "bulk?do=retry&status=dead", ""}} {
		if resp := p.api(test[0], test[1], test[2]); resp.Status != status {
			p.t.Errorf("%s %s: got %d %s", test[0], test[1], resp.Status, resp.Body)
		}
	}
}

func (p dashboardPage) wantOpen() {
	p.t.Helper()
	if resp := p.get(p.asset()); resp.Status != 200 || resp.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		p.t.Errorf("the script: got %d %v", resp.Status, resp.Header)
	}
	if resp := p.api("GET", "settings", ""); resp.Status != 200 {
		p.t.Errorf("the settings: got %d %s", resp.Status, resp.Body)
	}
}

func pageOf(t *testing.T, s *hookstest.Server) dashboardPage {
	return dashboardPage{t: t, url: s.URL + "/"}
}

// assetPath is the path of an asset, whoever may see it.
func assetPath(t *testing.T) string {
	t.Helper()
	return pageOf(t, hookstest.StartSite(t, "hooks_dashboard {\nuser operator\n}")).asset()
}

// From a bare directive, the page is enough to switch webhooks on, set a token and add a hook.
func TestDashboardBehindBasicAuth(t *testing.T) {
	asset := assetPath(t)
	s := hookstest.StartSite(t, basicAuth+"hooks {\nrunner echo\n}\nhooks_dashboard\nrespond nothing 404")
	anonymous := pageOf(t, s)
	anonymous.wantClosed(asset, 401, "")
	ops := anonymous.as("ops")
	ops.wantOpen()
	ops.api("GET", "me", "").WantJSON(t, `{"user":"ops","readOnly":false,"hideTexts":false,"instances":["default"],"access":"hooks_dashboard"}`)
	if resp := ops.api("PATCH", "settings", `{"enabled":true,"token":"`+hookstest.Token+`"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if resp := ops.with("Hooks-Operator", "root").api("PUT", "mappings/first", `{"action":"wake"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if resp := s.Post("/api/hooks/first", `{}`); resp.Status != 200 {
		t.Errorf("the hook is answered %d %s", resp.Status, resp.Body)
	}
	var shown struct {
		Changes []struct{ By, Via, Address string }
	}
	changes := ops.api("GET", "changes", "")
	if err := json.Unmarshal([]byte(changes.Body), &shown); err != nil || len(shown.Changes) != 2 {
		t.Fatalf("got %s", changes.Body)
	}
	for _, change := range shown.Changes {
		if change.By != "ops" || change.Via != "dashboard" || change.Address != "127.0.0.1" {
			t.Errorf("the change says %+v", change)
		}
	}
	ops.api("GET", "nothing", "").WantAdminError(t, 404, "no such endpoint; try api/about, ", "api/changes, ")
	ops.api("GET", "runs/none", "").WantAdminError(t, 404, `no run "none"`)
	ops.api("POST", "settings", "").WantAdminError(t, 405, "use GET, PATCH")
	ops.api("PATCH", "settings", `{"enabled":1}`).WantAdminError(t, 400, "enabled")
	ops.api("PATCH", "settings", strings.Repeat("a", 4<<20+1)).WantAdminError(t, 413, "4194304")
	ops.api("GET", "runs?nothing=1", "").WantAdminError(t, 400, "nothing")
}

func TestDashboardBehindForwardAuth(t *testing.T) {
	asset := assetPath(t)
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch cookie, _ := r.Cookie("login"); {
		case cookie == nil:
			w.WriteHeader(http.StatusUnauthorized)
		case cookie.Value != "nobody":
			w.Header().Set("Remote-User", cookie.Value)
		}
	}))
	defer login.Close()
	s := hookstest.StartSite(t, `
	forward_auth `+strings.TrimPrefix(login.URL, "http://")+` {
		uri /
		copy_headers Remote-User
	}
	hooks
	hooks_dashboard {
		user {http.request.header.Remote-User}
		read_only Alice
	}`)
	page := pageOf(t, s)
	page.wantClosed(asset, 401, "")
	page.with("Remote-User", "ops").wantClosed(asset, 401, "")
	// Somebody whom the login lets through without a name, and who brings one along.
	page.with("Cookie", "login=nobody", "Remote-User", "ops").wantClosed(asset, 403, "has no value for this request. With forward_auth, add the line: copy_headers Remote-User")
	ops := page.with("Cookie", "login=ops@example.com", "Remote-User", "root")
	ops.wantOpen()
	ops.api("GET", "me", "").WantMembers(t, `{"user":"ops@example.com","readOnly":false}`)
	page.with("Cookie", "login=alice").api("GET", "me", "").WantMembers(t, `{"user":"alice","readOnly":true}`)
}

func TestDashboardWithoutALoginIsClosed(t *testing.T) {
	asset := assetPath(t)
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}\nhooks_dashboard")
	pageOf(t, s).wantClosed(asset, 403, "user operator")
	s.Reload("hooks {\nrunner echo\n}\nhooks_dashboard {\nuser \"{http.auth.user.id}@example.com\"\n}")
	pageOf(t, s).wantClosed(asset, 403, "Nobody is logged in")
	s.Reload("hooks {\nrunner echo\n}\nhooks_dashboard {\nuser {env.HOOKS_TEST_NOWHERE}\n}")
	pageOf(t, s).wantClosed(asset, 403, "Nobody is logged in")
	s.AdminRequest("GET", "/hooks/settings", "").WantMembers(t, `{"enabled":false,"mappings":[]}`)
}

// anyHost is a Caddy with a site for all host names.
func anyHost(t *testing.T) *hookstest.Server {
	t.Helper()
	s := hookstest.NewServer(t)
	s.Site = "http://:" + s.Port
	s.Globals = "default_bind 127.0.0.1"
	return s
}

// A page of another site whose name was changed in the DNS to the address of this one is the same site to a browser.
func TestDashboardWithoutALoginChecksTheHost(t *testing.T) {
	asset := assetPath(t)
	t.Setenv("HOOKS_TEST_OPERATOR", "operator")
	s := anyHost(t)
	for _, user := range []string{"operator", "{env.HOOKS_TEST_OPERATOR}"} {
		s.Load("hooks {\nrunner echo\n}\nhooks_dashboard {\nuser " + user + "\nhosts dashboard.lan\n}")
		s.Settle()
		page := pageOf(t, s)
		for _, host := range []string{"localhost", "127.0.0.1:1234", "[::1]:80", "dashboard.lan", "Dashboard.LAN:8080"} {
			page.with("Host", host, "Origin", "http://"+host).wantOpen()
		}
		for host, words := range map[string]string{"evil.example": "hosts dashboard.lan evil.example", "evil.example:" + s.Port: "hosts dashboard.lan evil.example", "10.0.0.1": "hosts dashboard.lan 10.0.0.1",
			"localhost.evil.example": "needs the line", "[::2]": "hosts dashboard.lan [::2]", "127.0.0.2": "needs the line", "a*b": "names no host", "localhost:80:80": "names no host"} {
			page.with("Host", host, "Origin", "http://"+host).wantClosed(asset, 403, words)
		}
	}
	s.Load(basicAuth + "hooks {\nrunner echo\n}\nhooks_dashboard {\nhosts dashboard.lan\n}")
	s.Settle()
	ops := pageOf(t, s).as("ops")
	ops.with("Host", "dashboard.lan").wantOpen()
	ops.with("Host", "localhost").wantClosed(asset, 403, "hosts dashboard.lan localhost")
	s.Load(basicAuth + "hooks {\nrunner echo\n}\nhooks_dashboard")
	s.Settle()
	ops.with("Host", "any.example").wantOpen()
}

// endpointsOf calls every endpoint of the API.
func endpointsOf(t *testing.T, each func(method, path, pattern string)) {
	t.Helper()
	endpoints := caddyhooks.AdminEndpoints()
	if len(endpoints) < 20 {
		t.Fatalf("found only %d endpoints", len(endpoints))
	}
	names := strings.NewReplacer("{id}", "some", "{name}", "some")
	for _, e := range endpoints {
		method, path, _ := strings.Cut(e.Pattern, " ")
		path = strings.TrimPrefix(names.Replace(path), "/")
		each(method, path, e.Pattern)
		if path != "instances" {
			each(method, "instances/default/"+path, e.Pattern)
		}
	}
}

func TestReadOnlyOperatorsChangeNothing(t *testing.T) {
	s := hookstest.StartSite(t, basicAuth+"hooks {\nrunner echo\n}\nhooks_dashboard {\nread_only alice\n}")
	s.PutMapping("some", `{}`)
	before := s.AdminRequest("GET", "/hooks/settings", "").Body
	alice := pageOf(t, s).as("alice")
	refused := 0
	endpointsOf(t, func(method, path, pattern string) {
		if method == "GET" {
			if path == "events" || strings.HasSuffix(path, "/events") {
				return // has no end
			}
			if resp := alice.api(method, path, ""); resp.Status == 403 {
				t.Errorf("%s %s: got %s", method, path, resp.Body)
			}
			return
		}
		resp := alice.api(method, path, `{}`)
		if looksOnly := pattern == "POST /preview"; looksOnly != (resp.Status != 403) {
			t.Errorf("%s %s: got %d %s", method, path, resp.Status, resp.Body)
		} else if !looksOnly {
			refused++
			resp.WantAdminError(t, 403, "read-only access")
		}
	})
	if refused < 10 {
		t.Errorf("only %d endpoints were refused", refused)
	}
	if after := s.AdminRequest("GET", "/hooks/settings", "").Body; after != before {
		t.Errorf("the settings were %s\nand are %s", before, after)
	}
	if resp := pageOf(t, s).as("ops").api("PUT", "mappings/other", `{}`); resp.Status != 200 {
		t.Errorf("another operator: got %d %s", resp.Status, resp.Body)
	}
	s.Reload(basicAuth + "hooks {\nrunner echo\n}\nhooks_dashboard {\nread_only *\n}")
	pageOf(t, s).as("ops").api("PUT", "mappings/more", `{}`).WantAdminError(t, 403, "read-only access")
}

// No other site can make a browser of somebody who is logged in read or change anything, by any endpoint.
func TestDashboardRefusesOtherSites(t *testing.T) {
	s := anyHost(t)
	s.Load(basicAuth + "hooks {\nrunner echo\n}\nhooks_dashboard {\nhosts 127.0.0.1\n}")
	s.PutMapping("some", `{"messageTemplate":"a text that must not be read"}`)
	before := s.AdminRequest("GET", "/hooks/settings", "").Body
	ops := pageOf(t, s).as("ops")
	attacks := map[string][]string{
		"no header":          nil,
		"another site":       {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "cross-site"},
		"a sibling site":     {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-site"},
		"a foreign origin":   {"X-Hooks-Dashboard", "1", "Origin", "https://evil.example"},
		"the origin null":    {"X-Hooks-Dashboard", "1", "Origin", "null"},
		"a rebound name":     {"X-Hooks-Dashboard", "1", "Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"},
		"a form":             {"Content-Type", "application/x-www-form-urlencoded", "Origin", "https://evil.example"},
		"a form with files":  {"Content-Type", "multipart/form-data; boundary=x", "Origin", "https://evil.example"},
		"a form of text":     {"Content-Type", "text/plain", "Origin", "https://evil.example"},
		"a form, no origin":  {"Content-Type", "text/plain"},
		"a fetch without it": {"Content-Type", "application/json", "Sec-Fetch-Site", "same-origin"},
	}
	for name, headers := range attacks {
		endpointsOf(t, func(method, path, _ string) {
			for _, method := range []string{method, "OPTIONS"} {
				resp := ops.with(headers...).send(method, "api/"+path, `{}`)
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
	wantNoCORS(t, ops.with("Origin", s.URL).api("GET", "settings", ""))
	wantNoCORS(t, ops.with("Origin", "https://evil.example").get(""))
}

func wantNoCORS(t *testing.T, resp hookstest.Response) {
	t.Helper()
	for name := range resp.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("the answer has the header %s", name)
		}
	}
}

func TestDashboardShowsItsInstancesOnly(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}\nhooks ops {\npath /ops\n}\nhooks other {\npath /other\n}\nhooks_dashboard {\nuser operator\ninstance ops missing\nhide_texts\n}")
	page := pageOf(t, s)
	page.api("GET", "me", "").WantJSON(t, `{"user":"operator","readOnly":false,"hideTexts":true,"instances":["ops"],"access":"hooks_dashboard"}`)
	page.api("GET", "instances", "").WantJSON(t, `["ops"]`)
	if resp := page.api("GET", "instances/ops/settings", ""); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	for _, path := range []string{"settings", "instances/default/settings", "instances/other/settings", "instances/o%74her/settings"} {
		page.api("GET", path, "").WantAdminError(t, 404, "not shown here; hooks_dashboard shows ops and missing")
	}
	page.api("PATCH", "settings", `{"enabled":true}`).WantAdminError(t, 404, "not shown here")
	page.api("GET", "instances/missing/settings", "").WantAdminError(t, 404, `no hooks instance "missing"`)
	s.AdminRequest("GET", "/hooks/instances", "").WantJSON(t, `["default","ops","other"]`)
}

func TestDashboardOnAnotherSite(t *testing.T) {
	s := hookstest.NewServer(t)
	other := "http://127.0.0.1:" + hookstest.FreePort(t)
	load := func(directives string) {
		t.Helper()
		if err := hookstest.LoadCaddyfile(s.Caddyfile(s.Site + " {\n" + directives + "\n}\n" + other + " {\nhooks_dashboard {\nuser operator\n}\n}")); err != nil {
			t.Fatal(err)
		}
	}
	page := dashboardPage{t: t, url: other + "/"}
	load("hooks")
	page.wantOpen()
	load("respond ok")
	s.Settle()
	page.with("Connection", "close").api("GET", "me", "").WantMembers(t, `{"instances":[]}`)
	page.api("GET", "settings", "").WantAdminError(t, 404, "add a line with the word hooks to a site in the Caddyfile")
	s.AdminRequest("GET", "/hooks/settings", "").WantAdminError(t, 404, "add a line with the word hooks to a site in the Caddyfile")
}

func TestDashboardBelowAPathAndBehindAProxy(t *testing.T) {
	// Each has a stream of its own: one that was closed a moment ago may still be there, and take what is meant for the next.
	places := []string{"/dashboard/", "/short/", "/proxied/", "/proxied/inner/"}
	streams := make([]chan string, len(places))
	for i := range places {
		streams[i] = make(chan string)
		defer caddyhooks.AddStream(fmt.Sprint("/stream-of-a-test-", i), streams[i])()
	}
	s := hookstest.NewServer(t)
	inner := "http://127.0.0.1:" + hookstest.FreePort(t)
	err := hookstest.LoadCaddyfile(s.Caddyfile(s.Site + ` {
		encode
		hooks
		handle_path /dashboard/* {
			hooks_dashboard {
				user operator
			}
		}
		handle_path /short* {
			hooks_dashboard {
				user operator
			}
		}
		handle_path /proxied/* {
			reverse_proxy ` + inner + `
		}
	}
	` + inner + ` {
		handle_path /inner/* {
			hooks_dashboard {
				user operator
			}
		}
		hooks_dashboard {
			user operator
		}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, below := range places {
		page := dashboardPage{t: t, url: s.URL + below}
		page.wantOpen()
		stream := page.with("X-Hooks-Dashboard", "1", "Accept-Encoding", "identity").open("GET", fmt.Sprint("api/stream-of-a-test-", i), "")
		defer stream.Body.Close()
		lines := bufio.NewScanner(stream.Body)
		next := func() string {
			for lines.Scan() {
				if lines.Text() != "" {
					return lines.Text()
				}
			}
			return "the end: " + lines.Text()
		}
		if got := next(); got != "data: first" {
			t.Errorf("%s: the stream begins with %q", below, got)
		}
		streams[i] <- "data: second\n\n"
		if got := next(); got != "data: second" {
			t.Errorf("%s: the stream goes on with %q", below, got)
		}
		stream.Body.Close()
	}
	short := dashboardPage{t: t, url: s.URL + "/short"}.get("")
	if short.Status != http.StatusSeeOther || short.Header.Get("Location") != "./short/" {
		t.Errorf("without a slash: got %d %v", short.Status, short.Header)
	}
}

// Secrets come out nowhere: not by any endpoint that reads, not by the answer to a change, and not in the log.
func TestDashboardShowsNoSecret(t *testing.T) {
	logFile := filepath.Join(t.TempDir(), "caddy.log")
	receiver := hookstest.StartReceiver(t)
	s := hookstest.NewServer(t)
	s.Globals = "log {\n\toutput file " + logFile + "\n}\n" // at the level DEBUG, Caddy logs the configuration
	s.Load(basicAuth + `
	log
	hooks {
		history 1h
		channel team slack xoxb-s3cret-of-a-channel
		runner echo
		callbacks {
			secret whsec_czNjcmV0LW9mLWNhbGxiYWNrcy1vZi1hLXRlc3Q=
			allow 127.0.0.1
			ports *
		}
	}
	hooks_dashboard`)
	ops := pageOf(t, s).as("ops")
	secrets := []string{"s3cret", "czNjcmV0LW9mLWNhbGxiYWNrcy1vZi1hLXRlc3Q", "open-sesame", "b3BzOm9wZW4tc2VzYW1l"}
	wantNone := func(where, text string) {
		t.Helper()
		for _, secret := range append(secrets, "key-in-a-query") {
			if secret == "key-in-a-query" && (strings.Contains(where, "mappings") || where == "settings") {
				continue // a hook is shown as it was saved, so that it can be edited
			}
			if strings.Contains(text, secret) {
				t.Errorf("%s has the secret %s: %.500s", where, secret, text)
			}
		}
	}
	change := func(method, path, body string) {
		t.Helper()
		resp := ops.api(method, path, body)
		if resp.Status != 200 {
			t.Fatalf("%s %s: got %d %s", method, path, resp.Status, resp.Body)
		}
		wantNone(method+" "+path, resp.Body)
	}
	change("PATCH", "settings", `{"enabled":true,"token":["s3cret-of-a-token"]}`)
	change("PUT", "mappings/some", `{"action":"agent","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"s3cret-of-a-hook","messageTemplate":"{a}","callbackUrl":"`+receiver.URL+`/?key-in-a-query"}`)
	wantNone("a bad change", ops.api("PATCH", "settings", `{"token":{"s3cret":1}}`).Body)
	const body = `{"a":1}`
	accepted := s.Request("POST", "/api/hooks/some", body, "X-Sig", hexHMAC("s3cret-of-a-hook", body))
	if accepted.Status != 202 {
		t.Fatalf("got %d %s", accepted.Status, accepted.Body)
	}
	s.Request("POST", "/api/hooks/some?token=s3cret", body, "X-Sig", "s3cret").WantError(t, 401)
	run := accepted.Field(t, "runId").(string)
	receiver.Next()
	var delivery string
	hookstest.Eventually(t, "the delivery is listed", func() bool {
		found := s.Deliveries("")
		if len(found) == 1 {
			delivery = found[0].ID
		}
		return delivery != ""
	})
	queries := map[string][]string{"GET /export": {"?of=runs", "?of=deliveries", "?of=chat&chatId=x"}, "GET /chat": {"?chatId=x"}, "GET /samples": {"?hook=some"}}
	read := 0
	for _, e := range caddyhooks.AdminEndpoints() {
		method, path, _ := strings.Cut(e.Pattern, " ")
		if method != "GET" || path == "/events" { // which has no end
			continue
		}
		id := run
		if strings.HasPrefix(path, "/deliveries") {
			id = delivery
		}
		path = strings.NewReplacer("{id}", id, "{name}", "some").Replace(strings.TrimPrefix(path, "/"))
		for _, query := range append(queries[e.Pattern], "") {
			resp := ops.api("GET", path+query, "")
			wantNone(path+query, resp.Body)
			if resp.Status == 200 {
				read++
			}
		}
	}
	if read < 9 {
		t.Errorf("read only %d endpoints", read)
	}
	s.Stop()
	log, err := os.ReadFile(logFile)
	if err != nil || !strings.Contains(string(log), "/api/mappings/some") || !strings.Contains(string(log), "live settings changed") {
		t.Fatalf("the log is %s, %v", log, err)
	}
	for line := range strings.Lines(string(log)) {
		wantNone("the log", line)
	}
}
