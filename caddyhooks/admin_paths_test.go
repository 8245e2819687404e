package caddyhooks_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Paths that are no endpoint, ids that are written in odd ways and methods that an endpoint lacks are answered in the
// shape of Caddy's admin errors.
func TestAdminPathsAndMethodsThatAreNotThere(t *testing.T) {
	s := hookstest.StartSite(t, `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		hook a {
			template x
		}
	}
	hooks ops {
		path /ops
	}`)
	id := s.Accept(`{"message":"a"}`)
	s.Ended(id)
	for _, c := range []struct {
		method, path string
		status       int
		words        string // of the error
		allow        string
	}{
		{"GET", "/", 404, "no such endpoint; try /hooks/", ""},
		{"POST", "/", 404, "no such endpoint", ""},
		{"GET", "/nothing", 404, "no such endpoint", ""},
		{"GET", "/nothing/", 404, "no such endpoint", ""},
		{"GET", "/settings/", 404, "no such endpoint", ""},
		{"GET", "/settings/x", 404, "no such endpoint", ""},
		{"PATCH", "/settings/", 404, "no such endpoint", ""},
		{"GET", "/Settings", 404, "no such endpoint", ""},
		{"GET", "/mappings/", 404, "", ""},
		{"GET", "/mappings/a/", 404, "no such endpoint", ""},
		{"DELETE", "/mappings/", 404, "", ""},
		{"GET", "/mappings/a%2Fb", 404, "no such endpoint", ""},
		{"PUT", "/mappings/a%2fb", 404, "no such endpoint", ""},
		{"DELETE", "/mappings/a%2Fb", 404, "no such endpoint", ""},
		{"GET", "/mappings/a%20b", 404, `no hook "a b"`, ""},
		{"GET", "/mappings/%C3%A4", 404, `no hook "ä"`, ""},
		{"GET", "/mappings/%2e%2e", 404, `no hook ".."`, ""},
		{"PUT", "/mappings/%2e%2e", 400, "name", ""},
		{"GET", "/mappings/%252F", 404, `no hook "%2F"`, ""},
		{"GET", "/mappings/%7Bname%7D", 404, `no hook "{name}"`, ""},
		{"POST", "/mappings/a", 405, "use GET, PUT, DELETE", "GET, PUT, DELETE"},
		{"HEAD", "/settings", 405, "", "GET, PATCH"},
		{"OPTIONS", "/settings", 405, "use GET, PATCH", "GET, PATCH"},
		{"BREW", "/runs", 405, "use GET", "GET"},
		{"get", "/runs", 405, "use GET", "GET"},
		{"GET", "/runs/", 404, "", ""},
		{"GET", "/runs/%2e%2e", 404, `no run ".."`, ""},
		{"GET", "/runs/%00", 404, `no run "\x00"`, ""},
		{"GET", "/runs/" + id + "/", 404, "no such endpoint", ""},
		{"GET", "/runs/" + id + "%2F", 404, "no such endpoint", ""},
		{"GET", "/runs/" + id + "/other", 404, "no such endpoint", ""},
		{"GET", "/runs/" + id + "/cancel", 405, "use POST", "POST"},
		{"POST", "/runs/" + id, 405, "use GET", "GET"},
		{"POST", "/runs/" + id + "/cancel/", 404, "no such endpoint", ""},
		{"POST", "/runs/" + id + "/cancel/again", 404, "no such endpoint", ""},
		{"GET", "/deliveries/", 404, "", ""},
		{"GET", "/deliveries/x%20y", 404, `no delivery "x y"`, ""},
		{"DELETE", "/bulk", 405, "use GET, POST", "GET, POST"},
		{"GET", "/bulk/stop/stop", 405, "use POST", "POST"},
		{"POST", "/bulk/stop/", 404, "no such endpoint", ""},
		{"POST", "/deliveries/retry/retry", 404, `no delivery "retry"`, ""},
		{"GET", "/deliveries/x/retry", 405, "use POST", "POST"},
		{"POST", "/instances", 405, "use GET", "GET"},
		{"GET", "/instances/", 404, "", ""},
		{"GET", "/instances/ops", 404, "no such endpoint", ""},
		{"GET", "/instances/ops/", 404, "no such endpoint", ""},
		{"GET", "/instances/ops/nothing", 404, "no such endpoint", ""},
		{"GET", "/instances/ops/instances", 404, "no such endpoint", ""},
		{"GET", "/instances/nope", 404, `no hooks instance "nope"`, ""},
		{"GET", "/instances/nope/", 404, `no hooks instance "nope"`, ""},
		{"GET", "/instances/nope/nothing", 404, `no hooks instance "nope"`, ""},
		{"POST", "/instances/nope/settings", 404, `no hooks instance "nope"`, ""},
		{"POST", "/instances/ops/settings", 405, "use GET, PATCH", "GET, PATCH"},
		{"GET", "/instances/%2e%2e/settings", 404, `no hooks instance ".."`, ""},
		{"GET", "/instances/o%70s/mappings/x", 404, `no hook "x"`, ""},
		{"GET", "/%2e%2e/settings", 404, "no such endpoint", ""},
	} {
		resp := adminAsIs(s, c.method, "/hooks"+c.path)
		if resp.Status != c.status || resp.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: got %d, Allow %q; want %d, %q; %s", c.method, c.path, resp.Status, resp.Header.Get("Allow"), c.status, c.allow, resp.Body)
			continue
		}
		if resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: the content type is %q", c.method, c.path, resp.Header.Get("Content-Type"))
		}
		if c.method != "HEAD" {
			resp.WantAdminError(t, c.status, c.words)
		}
	}
	// Caddy itself sends these on to the clean path.
	for _, path := range []string{"/hooks", "/hooks//settings", "/hooks/runs/../settings", "/hooks/./settings", "/hooks/runs//cancel"} {
		if resp := adminAsIs(s, "GET", path); resp.Status != http.StatusTemporaryRedirect {
			t.Errorf("%s: got %d %s", path, resp.Status, resp.Body)
		}
	}
	if resp := adminAsIs(s, "GET", "/hooks/instances/o%70s/settings"); resp.Status != 200 {
		t.Errorf("a name with an escaped letter: %d %s", resp.Status, resp.Body)
	}
}

// adminAsIs calls the admin API with a path as it stands, and follows no redirect.
func adminAsIs(s *hookstest.Server, method, path string) hookstest.Response {
	s.T.Helper()
	before := http.DefaultClient.CheckRedirect
	defer func() { http.DefaultClient.CheckRedirect = before }()
	http.DefaultClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := hookstest.TryRequest(method, s.Admin+path, "{}", "Content-Type", "application/json")
	if err != nil {
		s.T.Fatalf("%s %s: %v", method, path, err)
	}
	resp.Body = strings.TrimSpace(resp.Body)
	return resp
}
