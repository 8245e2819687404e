package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// linked is a page behind links.
func linked(links *Links) http.Handler {
	return links.Handler(page(func(d *Access) {
		d.Enter = func(r *http.Request) (Operator, error) { return Operator{User: "me"}, links.Enter(r) }
	}))
}

const here = "127.0.0.1:8765"

// keyOf reads the path of the page, and the cookie for it, that a link was answered with.
func keyOf(t *testing.T, answer *httptest.ResponseRecorder) (path, cookie string) {
	t.Helper()
	set := answer.Result().Cookies()
	if len(set) != 1 || len(set[0].Value) != 26 || len(set[0].Path) != 28 || !set[0].HttpOnly || set[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("got %d, and the cookies %v", answer.Code, set)
	}
	return set[0].Path, set[0].Name + "=" + set[0].Value
}

func TestLinkWorksOnceAndForAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	links := &Links{Renew: "get another.", now: func() time.Time { return now }}
	h := linked(links)
	link := "/?" + links.New()
	if first := ask(h, "HEAD", link, "", "Host", here); first.Code != 401 {
		t.Errorf("HEAD: got %d", first.Code)
	}
	now = now.Add(59 * time.Second)
	first := ask(h, "GET", link, "", "Host", here)
	path, cookie := keyOf(t, first)
	if first.Code != http.StatusSeeOther || first.Header().Get("Location") != "."+path || first.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d %v", first.Code, first.Header())
	}
	if second := ask(h, "GET", link, "", "Host", here); second.Code != 403 || second.Header().Get("Set-Cookie") != "" ||
		strings.TrimSpace(second.Body.String()) != "This link was used already, or is older than a minute; get another." {
		t.Errorf("the second use: got %d %s", second.Code, second.Body)
	}
	if page := ask(h, "GET", path, "", "Host", here, "Cookie", cookie); page.Code != 200 {
		t.Errorf("the page: got %d %s", page.Code, page.Body)
	}
	if api := ask(h, "GET", path+"api/settings", "", "Host", "localhost:8765", "Cookie", cookie, "X-Hooks-Dashboard", "1"); api.Code != 200 {
		t.Errorf("the API: got %d %s", api.Code, api.Body)
	}

	late := "/?" + links.New()
	now = now.Add(time.Minute)
	if w := ask(h, "GET", late, "", "Host", here); w.Code != 403 {
		t.Errorf("after a minute: got %d", w.Code)
	}
	guessed := "/?" + links.New()
	if w := ask(h, "GET", guessed, "", "Host", here, "Sec-Purpose", "prefetch;prerender"); w.Code != 503 ||
		w.Header().Get("Set-Cookie") != "" {
		t.Errorf("ahead of time: got %d", w.Code)
	}
	if w := ask(h, "GET", guessed, "", "Host", here); w.Code != http.StatusSeeOther {
		t.Errorf("after that: got %d", w.Code)
	}
	replaced := "/?" + links.New()
	links.New()
	if w := ask(h, "GET", replaced, "", "Host", here); w.Code != 403 {
		t.Errorf("a link that was replaced: got %d", w.Code)
	}
	if page := ask(h, "GET", path, "", "Host", here, "Cookie", cookie); page.Code != 200 {
		t.Errorf("the cookie ends with its link: got %d", page.Code)
	}
}

// A browser does not send a strict cookie along with a redirect that a link on another site began.
func TestLinkOnAPageOfAnotherSite(t *testing.T) {
	t.Parallel()
	links := new(Links)
	w := ask(linked(links), "GET", "/?"+links.New(), "", "Host", here, "Sec-Fetch-Site", "cross-site")
	path, _ := keyOf(t, w)
	if w.Code != 200 || w.Header().Get("Refresh") != "0; url=."+path || w.Body.Len() != 0 {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
}

func TestNobodyGetsInWithoutALink(t *testing.T) {
	t.Parallel()
	links := &Links{Renew: "get another."}
	h := linked(links)
	link := "/?" + links.New()
	for _, host := range []string{"evil.example", "evil.example:8765", "192.168.0.1:8765", "localhost.evil.example", ""} {
		if w := ask(h, "GET", link, "", "Host", host, "Origin", "http://"+host); w.Code != 403 || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("a link at %q: got %d", host, w.Code)
		}
	}
	path, cookie := keyOf(t, ask(h, "GET", link, "", "Host", here))
	otherPath, otherCookie := keyOf(t, ask(h, "GET", "/?"+links.New(), "", "Host", here))
	value := strings.TrimPrefix(cookie, "hooks_dashboard=")
	targets := []string{"", "assets/" + site().hash + "/main.js", "api/me", "api/settings", "api/events"}
	for _, target := range targets {
		refused := func(target, cookies string) {
			t.Helper()
			if w := ask(h, "GET", target, "", "Host", here, "Cookie", cookies, "X-Hooks-Dashboard", "1"); w.Code != 401 ||
				!strings.Contains(w.Body.String(), "get another.") {
				t.Errorf("%s with the cookie %q: got %d %s", target, cookies, w.Code, w.Body)
			}
		}
		for _, cookies := range []string{"", "hooks_dashboard=", "hooks_dashboard=x", "other=" + value, cookie + "x", "hooks_dashboard=" +
			strings.Repeat("a", 4000),
			"hooks_dashboard=" + strings.ToLower(value), otherCookie} {
			refused(path+target, cookies)
		}
		// Whoever has a cookie has no path, and whoever has a path has no cookie.
		for _, elsewhere := range []string{"/", otherPath, strings.ToLower(path), path[:len(path)-2] + "/", "/x" + path, "/" +
			strings.Repeat("A", 4000) + "/"} {
			refused(elsewhere+target, cookie)
		}
		target = path + target
		if w := ask(h, "GET", target, "", "Host", here, "Cookie", cookie, "X-Hooks-Dashboard", "1"); w.Code == 401 {
			t.Errorf("%s with the key: got %d %s", target, w.Code, w.Body)
		}
		if w := ask(h, "GET", target, "", "Host", "evil.example:8765", "Cookie", cookie, "X-Hooks-Dashboard", "1", "Origin",
			"http://evil.example:8765"); w.Code != 403 {
			t.Errorf("%s at another host: got %d", target, w.Code)
		}
	}
	for _, code := range []string{"", "x", url.QueryEscape(value), strings.Repeat("A", 26), strings.Repeat("A", 100_000)} {
		if w := ask(h, "GET", "/?code="+code, "", "Host", here); w.Code != 403 || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("the code %.30q: got %d", code, w.Code)
		}
	}
}

func TestTheOldestBrowserMakesRoom(t *testing.T) {
	t.Parallel()
	links := new(Links)
	h := linked(links)
	enter := func() (path, cookie string) {
		t.Helper()
		return keyOf(t, ask(h, "GET", "/?"+links.New(), "", "Host", here))
	}
	oldestPath, oldest := enter()
	for range maxKeys - 1 {
		enter()
	}
	if w := ask(h, "GET", oldestPath, "", "Host", here, "Cookie", oldest); w.Code != 200 {
		t.Errorf("among the most: got %d", w.Code)
	}
	newestPath, newest := enter()
	if w := ask(h, "GET", oldestPath, "", "Host", here, "Cookie", oldest); w.Code != 401 {
		t.Errorf("the oldest: got %d", w.Code)
	}
	if w := ask(h, "GET", newestPath, "", "Host", here, "Cookie", newest); w.Code != 200 {
		t.Errorf("the newest: got %d", w.Code)
	}
}

// Whatever is sent as host, cookie and code, nobody gets in, and a code that waits still works.
func FuzzLinks(f *testing.F) {
	f.Add(here, "hooks_dashboard=x", "code=x")
	f.Add("localhost", "hooks_dashboard=", "code=")
	f.Add("[::1]:80", `hooks_dashboard="x"; a=b`, "code=a&code=b")
	f.Fuzz(func(t *testing.T, host, cookie, query string) {
		links := new(Links)
		code := links.New()
		h := linked(links)
		for _, target := range []string{"/", "/api/settings", "/key/api/settings"} {
			r := httptest.NewRequest("GET", target, nil)
			r.Host, r.URL.RawQuery = host, query
			r.Header.Set("Cookie", cookie)
			r.Header.Set("X-Hooks-Dashboard", "1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 401 && w.Code != 403 || w.Header().Get("Set-Cookie") != "" {
				t.Errorf("host %q, cookie %q, query %q: got %d", host, cookie, query, w.Code)
			}
		}
		if w := ask(h, "GET", "/?"+code, "", "Host", here); w.Code != http.StatusSeeOther {
			t.Errorf("host %q, cookie %q, query %q: the code does not work any more", host, cookie, query)
		}
	})
}
