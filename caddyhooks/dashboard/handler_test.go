package dashboard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// page is a page that everybody may enter, with an API that says what it was asked.
func page(change func(*Access)) http.Handler {
	access := Access{
		Name:      "test",
		Enter:     func(*http.Request) (Operator, error) { return Operator{User: "ops"}, nil },
		Instances: func(*http.Request) ([]string, error) { return []string{"default"}, nil },
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				WriteError(w, http.StatusRequestEntityTooLarge, err.Error())
				return
			}
			writeJSON(w, http.StatusOK, []string{r.Method, r.URL.Path, r.URL.RawQuery, string(body), OperatorFrom(r.Context()).User})
		}),
	}
	if change != nil {
		change(&access)
	}
	return Handler(access)
}

// ask sends a request with pairs of header names and values. Host is the host.
func ask(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://dashboard.example"+target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var own = []string{"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-origin"}

func wantError(t *testing.T, w *httptest.ResponseRecorder, status int, words string) {
	t.Helper()
	var shown map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil || w.Code != status || len(shown) != 1 ||
		!strings.Contains(shown["error"], words) {
		t.Errorf("got %d %s, want %d with %q", w.Code, w.Body, status, words)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("the content type is %q", got)
	}
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	t.Parallel()
	closed := page(func(d *Access) {
		d.Enter = func(*http.Request) (Operator, error) { return Operator{}, &Refusal{403, "closed"} }
	})
	open := page(nil)
	for _, test := range []struct {
		h              http.Handler
		method, target string
		headers        []string
		status         int
	}{
		{open, "GET", "/", nil, 200},
		{open, "HEAD", "/", nil, 200},
		{open, "POST", "/", nil, 405},
		{open, "GET", "/nothing", nil, 404},
		{open, "GET", "/assets/" + site().hash + "/main.js", nil, 200},
		{open, "GET", "/assets/" + site().hash + "/nothing.js", nil, 404},
		{open, "GET", "/api/me", own, 200},
		{open, "GET", "/api/settings", own, 200},
		{open, "GET", "/api/settings", nil, 403},
		{open, "OPTIONS", "/api/settings", []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "PATCH"}, 403},
		{closed, "GET", "/", nil, 403},
		{closed, "GET", "/assets/" + site().hash + "/main.js", nil, 403},
		{closed, "GET", "/api/me", own, 403},
		{closed, "GET", "/api/events", own, 403},
	} {
		w := ask(test.h, test.method, test.target, "", test.headers...)
		if w.Code != test.status {
			t.Errorf("%s %s: got %d, want %d", test.method, test.target, w.Code, test.status)
		}
		cache := "no-store"
		if strings.HasPrefix(test.target, "/assets/") && test.status == 200 {
			cache = "private, max-age=31536000, immutable"
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action " +
				"'none'; " +
				"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                cache,
		} {
			if got := w.Header().Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s %s: %s is %q", test.method, test.target, name, got)
			}
		}
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s %s: has %s", test.method, test.target, name)
			}
		}
	}
}

func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	asked := false
	h := page(func(d *Access) {
		d.API = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })
	})
	for name, headers := range map[string][]string{
		"nothing":                 nil,
		"another value":           {"X-Hooks-Dashboard", "2"},
		"another site":            {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "cross-site"},
		"a sibling":               {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-site"},
		"no page":                 {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "none"},
		"two answers":             {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "cross-site"},
		"a foreign origin":        {"X-Hooks-Dashboard", "1", "Origin", "https://evil.example"},
		"an origin of null":       {"X-Hooks-Dashboard", "1", "Origin", "null"},
		"its own site, no header": {"Sec-Fetch-Site", "same-origin"},
		"a form": {"Content-Type", "application/x-www-form-urlencoded", "Origin", "https://evil.example", "Sec-Fetch-Site",
			"cross-site"},
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			for _, target := range []string{"/api/settings", "/api/me", "/api/events"} {
				if w := ask(h, method, target, "", headers...); w.Code != 403 || asked {
					t.Errorf("%s: %s %s is answered %d, passed on: %v", name, method, target, w.Code, asked)
				}
				asked = false
			}
		}
	}
	for name, headers := range map[string][]string{
		"the page":                        {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-origin"},
		"an old browser":                  {"X-Hooks-Dashboard", "1"},
		"an old browser that posts":       {"X-Hooks-Dashboard", "1", "Origin", "https://dashboard.example"},
		"behind a proxy with other names": {"X-Hooks-Dashboard", "1", "Sec-Fetch-Site", "same-origin", "Origin", "https://outside.example"},
	} {
		if ask(h, "POST", "/api/settings", "", headers...); !asked {
			t.Errorf("%s is refused", name)
		}
		asked = false
	}
}

func TestAPIGetsItsRequests(t *testing.T) {
	t.Parallel()
	h := page(nil)
	for _, test := range []struct{ method, target, body, want string }{
		{"GET", "/api/settings", "", `["GET","/settings","","","ops"]`},
		{"PUT", "/api/instances/a/mappings/b%20c?x=1", "{}", `["PUT","/instances/a/mappings/b c","x=1","{}","ops"]`},
	} {
		if w := ask(h, test.method, test.target, test.body, own...); w.Code != 200 || strings.TrimSpace(w.Body.String()) != test.want {
			t.Errorf("%s: got %d %s", test.target, w.Code, w.Body)
		}
	}
	for _, target := range []string{"/api/../settings", "/api//settings", "/api/runs/../settings", "/api/runs/%2e%2e/settings",
		"/api/mappings/a%2Fb", "/api/settings/", "/api/./settings"} {
		wantError(t, ask(h, "GET", target, "", own...), 404, "no such endpoint")
	}
	if w := ask(h, "GET", "/api", "", own...); w.Code != 404 {
		t.Errorf("got %d", w.Code)
	}
}

func TestMe(t *testing.T) {
	t.Parallel()
	w := ask(page(func(d *Access) {
		d.Enter = func(*http.Request) (Operator, error) { return Operator{"<ops>", true, true}, nil }
		d.Instances = func(*http.Request) ([]string, error) { return nil, nil }
	}), "GET", "/api/me", "", own...)
	if got := strings.TrimSpace(w.Body.String()); got != `{"user":"<ops>","readOnly":true,"hideTexts":true,"instances":[],"access":"test"}` {
		t.Errorf("got %s", got)
	}
	wantError(t, ask(page(nil), "POST", "/api/me", "", own...), 405, "GET")
	wantError(t, ask(page(func(d *Access) {
		d.Instances = func(*http.Request) ([]string, error) { return nil, &Refusal{502, "away"} }
	}), "GET", "/api/me", "", own...), 502, "away")
	wantError(t, ask(page(func(d *Access) {
		d.Instances = func(*http.Request) ([]string, error) { return nil, errors.New("broken") }
	}), "GET", "/api/me", "", own...), 500, "broken")
}

func TestLargeBodiesAreRefused(t *testing.T) {
	t.Parallel()
	h := page(nil)
	wantError(t, ask(h, "POST", "/api/preview", strings.Repeat("a", MaxBody+1), own...), 413, "larger than")
	if w := ask(h, "POST", "/api/preview", strings.Repeat("a", MaxBody), own...); w.Code != 200 {
		t.Errorf("a body of the largest size: got %d", w.Code)
	}
	r := httptest.NewRequest("POST", "/api/preview", io.MultiReader(strings.NewReader(strings.Repeat("a", MaxBody+2)))) // of unknown length
	r.Header.Set("X-Hooks-Dashboard", "1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	wantError(t, w, 413, "too large")
}

func TestPageRefersToItsAssets(t *testing.T) {
	t.Parallel()
	h := page(nil)
	for _, target := range []string{"/", "/?x=1"} {
		page := ask(h, "GET", target, "")
		if page.Header().Get("Content-Type") != "text/html; charset=utf-8" || strings.Contains(page.Body.String(), "{hash}") {
			t.Fatalf("got %v %s", page.Header(), page.Body)
		}
		refs := regexp.MustCompile(`(?:src|href)="([^"#]+)[^"]*"`).FindAllStringSubmatch(page.Body.String(), -1)
		if len(refs) < 3 {
			t.Fatalf("found %v", refs)
		}
		for _, ref := range refs {
			if strings.HasPrefix(ref[1], "/") || strings.Contains(ref[1], "://") {
				t.Errorf("%s is not relative", ref[1])
			}
			if w := ask(h, "GET", "/"+ref[1], ""); w.Code != 200 {
				t.Errorf("%s: got %d", ref[1], w.Code)
			}
		}
	}
	if w := ask(h, "HEAD", "/", ""); w.Body.Len() != 0 || w.Header().Get("Content-Length") == "0" {
		t.Errorf("HEAD: got %d bytes, %v", w.Body.Len(), w.Header())
	}
}

func TestAssetsAreServedWithTheirTypes(t *testing.T) {
	t.Parallel()
	h := page(nil)
	served := 0
	err := fs.WalkDir(files, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, _ := fs.ReadFile(files, name)
		if ext := path.Ext(name); ext == ".js" || ext == ".css" {
			want = withoutComments(want)
		}
		target := "/assets/" + site().hash + "/" + strings.TrimPrefix(name, "assets/")
		w := ask(h, "GET", target, "")
		if contentTypes[path.Ext(name)] == "" {
			if w.Code != 404 {
				t.Errorf("%s is served", name)
			}
			return nil
		}
		served++
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), want) || w.Header().Get("Content-Type") != contentTypes[path.Ext(name)] ||
			w.Header().Get("Content-Encoding") != "" || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: got %d %v", name, w.Code, w.Header())
		}
		tag := w.Header().Get("ETag")
		if again := ask(h, "GET", target, "", "If-None-Match", tag); tag == "" || again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("%s: got %d again", name, again.Code)
		}
		zipped := ask(h, "GET", target, "", "Accept-Encoding", "br, gzip;q=0.5")
		if zipped.Header().Get("Content-Encoding") == "gzip" {
			reader, err := gzip.NewReader(zipped.Body)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(reader)
			if err != nil || !bytes.Equal(plain, want) || zipped.Header().Get("ETag") == tag {
				t.Errorf("%s: unpacks to other bytes, or has the same tag: %v", name, err)
			}
		}
		return nil
	})
	if err != nil || served < 3 {
		t.Errorf("served %d assets, %v", served, err)
	}
	for _, target := range []string{"/assets/", "/assets/main.js", "/assets/0123456789abcdef0123/main.js", "/assets/" + site().hash + "/",
		"/assets/" + site().hash + "/../page.html", "/page.html", "/favicon.ico"} {
		if w := ask(h, "GET", target, ""); w.Code != 404 {
			t.Errorf("%s: got %d", target, w.Code)
		}
	}
}

func TestCommentsAreNotServed(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"// a\nb // c\n":                    "\nb // c\n",
		"/** a */\n\tb\n":                   "\nb\n",
		"\t/**\n\t * a\n\t */\nb /* c */\n": "\n\n\nb /* c */\n",
		"/** @type {A} */ (b).c()\nd":       "/** @type {A} */ (b).c()\nd",
		"/* a */ b /* c */\nd\n":            "/* a */ b /* c */\nd\n",
	} {
		if got := string(withoutComments([]byte(source))); got != want {
			t.Errorf("of %q is left %q", source, got)
		}
	}
	// What is left out of the assets is a comment, and no text in them goes on over several lines.
	for _, pattern := range []string{"assets/*.js", "assets/*.css"} {
		names, _ := fs.Glob(files, pattern)
		for _, name := range names {
			content, _ := fs.ReadFile(files, name)
			source, served := strings.Split(string(content), "\n"), strings.Split(string(withoutComments(content)), "\n")
			if len(source) != len(served) {
				t.Errorf("%s has %d lines, of which %d are served", name, len(source), len(served))
				continue
			}
			for i, line := range source {
				line = strings.TrimLeft(line, "\t ")
				comment := strings.HasPrefix(line, "//") || strings.HasPrefix(line, "*") || strings.HasPrefix(line, "/*")
				if served[i] != line && (served[i] != "" || !comment || strings.Contains(line, "*/") && !strings.HasSuffix(line, "*/")) {
					t.Errorf("%s:%d: %q is served as %q", name, i+1, line, served[i])
				}
				if strings.Count(line, "`")%2 != 0 {
					t.Errorf("%s:%d: a text of several lines", name, i+1)
				}
			}
		}
	}
}

func TestAcceptedEncodings(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{"": false, "gzip": true, "GZIP": true, "br, gzip": true, "gzip;q=0": false,
		"gzip; q=0.000": false, "gzip;q=0.001": true, "br": false, "x-gzip": false} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", header)
		if got := acceptsGzip(r); got != want {
			t.Errorf("%q: got %v", header, got)
		}
	}
}

// The hash changes with the name and the content of every asset, and with nothing else.
func TestHashIsThatOfAllAssets(t *testing.T) {
	t.Parallel()
	load := func(files fstest.MapFS) *pageFiles {
		files["page.html"] = &fstest.MapFile{Data: []byte("at {hash}")}
		loaded, err := loadSite(files)
		if err != nil || string(loaded.page) != "at "+loaded.hash {
			t.Fatalf("%v, the page is %s", err, loaded.page)
		}
		return loaded
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	first := load(fstest.MapFS{"assets/a.js": file("1"), "assets/b/c.css": file("2")})
	if first.assets["b/c.css"].contentType == "" {
		t.Error("an asset in a folder is missing")
	}
	if same := load(fstest.MapFS{"assets/a.js": file("1"), "assets/b/c.css": file("2"),
		"assets/jsconfig.json": file("{}")}); same.hash != first.hash || len(same.assets) != 2 {
		t.Error("a file that is no asset counts")
	}
	for _, other := range []fstest.MapFS{
		{"assets/a.js": file("1"), "assets/b/c.css": file("3")},
		{"assets/a.js": file("1"), "assets/b/d.css": file("2")},
		{"assets/a.js": file("1")},
	} {
		if load(other).hash == first.hash {
			t.Errorf("the same hash for %v", other)
		}
	}
	if _, err := loadSite(fstest.MapFS{}); err == nil {
		t.Error("nothing was loaded")
	}
}

func TestPathWithoutASlashIsRedirected(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]string{"/dashboard": "./dashboard/", "/a/b": "./b/", "/a/x:y": "./x:y/",
		"//evil.example": "./evil.example/", "/dashboard/": "", "/": "", "": ""} {
		w := ask(page(func(d *Access) { d.PublicPath = func(*http.Request) string { return public } }), "GET", "/", "")
		if got := w.Header().Get("Location"); got != want || (w.Code == http.StatusSeeOther) != (want != "") {
			t.Errorf("%s: got %d %q", public, w.Code, got)
		}
	}
}

func TestHostNames(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"localhost": "localhost", "localhost:80": "localhost", "127.0.0.1:1": "127.0.0.1", "[::1]": "::1", "[::1]:80": "::1",
		"Dashboard.LAN:8080": "Dashboard.LAN",
		"":                   "", ":80": "", "localhost:": "", "localhost:x": "", "::1": "", "::1:80": "", "[localhost]": "",
		"[localhost]:80": "", "[::1": "", "[::1]x": "", "localhost:80:80": "",
		"user@localhost": "", "localhost/": "", "localhost#": "", "a b": "", "[::1%25lo]": "",
	} {
		if got := HostName(header); got != want {
			t.Errorf("%q: got %q, want %q", header, got, want)
		}
	}
	for host, want := range map[string]bool{"localhost": true, "LOCALHOST:9": true, "127.0.0.1:80": true, "[::1]:80": true, "127.0.0.2": false,
		"localhost.":             false,
		"localhost.evil.example": false, "evil.example": false, "": false, "127.0.0.1.evil.example:80": false} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if got := IsLoopback(r); got != want {
			t.Errorf("%q: got %v", host, got)
		}
	}
}

// Whatever a Host header holds, a name that comes of it is one that could be written in a Caddyfile, and it is found again.
func FuzzHostName(f *testing.F) {
	for _, seed := range []string{"localhost:80", "[::1]:80", "[::1]", "a:b", "[", "]:1", "127.0.0.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		name := HostName(header)
		if strings.ContainsAny(name, "[]/@") {
			t.Errorf("%q became %q", header, name)
		}
		if name != "" && !strings.Contains(header, name) {
			t.Errorf("%q became %q", header, name)
		}
		r := &http.Request{Host: header}
		if IsLoopback(r) && !strings.EqualFold(name, "localhost") && name != "127.0.0.1" && name != "::1" {
			t.Errorf("%q is taken for this machine", header)
		}
		if name != "" && !HostIn(r, []string{name}) {
			t.Errorf("%q is not found", name)
		}
	})
}
