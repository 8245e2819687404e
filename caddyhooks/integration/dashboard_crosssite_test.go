package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// attacks are what a page of another site can do to a site that its visitor is logged in to. Each returns what it has got to
// read, if anything.
const attacks = `
const settled = (element, add = document.body) => new Promise(done => {
	element.onload = () => done('loaded');
	element.onerror = () => done('');
	add.append(element);
});
const made = (name, properties) => Object.assign(document.createElement(name), properties);
const post = async (url, enctype) => {
	const frame = made('iframe', {name: 'f' + Math.random()});
	document.body.append(frame);
	const form = made('form', {method: 'post', action: url, enctype, target: frame.name});
	form.append(made('input', {name: '{"enabled":false,"x":"', value: '"}'}));
	document.body.append(form);
	const answered = new Promise(done => frame.onload = () => { try { if (frame.contentDocument === null || frame.contentWindow.location.href !== 'about:blank') done() } catch { done() } });
	form.submit();
	await answered;
	try { return frame.contentDocument.body.innerText } catch { return '' }
};
const read = async (url, options) => { try { return await (await fetch(url, {credentials: 'include', ...options})).text() } catch { return '' } };
globalThis.attack = {
	form: (base, path) => post(base + path, 'text/plain'),
	encodedForm: (base, path) => post(base + path, 'application/x-www-form-urlencoded'),
	noCors: (base, path) => read(base + path, {method: 'POST', mode: 'no-cors', body: '{}'}),
	simple: (base, path) => read(base + path, {method: 'POST', body: '{}'}),
	withHeader: (base, path) => read(base + path, {method: 'POST', body: '{}', headers: {'X-Hooks-Dashboard': '1', 'Content-Type': 'application/json'}}),
	patch: base => read(base + 'api/settings', {method: 'PATCH', body: '{"enabled":false}', headers: {'X-Hooks-Dashboard': '1'}}),
	get: (base, _, reading) => read(base + reading),
	getNoCors: (base, _, reading) => read(base + reading, {mode: 'no-cors'}),
	beacon: async (base, path) => { navigator.sendBeacon(base + path, '{}'); return '' },
	frame: async (base) => {
		const frame = made('iframe', {src: base});
		await settled(frame);
		try { return frame.contentDocument?.body.innerText ?? '' } catch { return '' }
	},
	image: (base, _, reading) => settled(made('img', {src: base + reading})),
	script: (base, _, reading) => settled(made('script', {src: base + reading})),
	module: (base, _, reading) => settled(made('script', {src: base + reading, type: 'module'})),
	style: (base, _, reading) => settled(made('link', {href: base + reading, rel: 'stylesheet'}), document.head),
	eventSource: (base) => new Promise(done => {
		const source = new EventSource(base + 'api/events?topics=runs', {withCredentials: true});
		source.onopen = () => done('opened');
		source.onerror = () => { source.close(); done('') };
	}),
};`

// startAttacker serves pages of somebody else.
func startAttacker(t *testing.T) (port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>A nice page</title><link rel="icon" href="data:,"><body><script>`+attacks+`</script>`)
	}))
	t.Cleanup(s.Close)
	_, port, _ = strings.Cut(s.Listener.Addr().String(), ":")
	return port
}

// tryAttacks tries all attacks from the page that is open, and returns those that had something to read.
func tryAttacks(tab *browsertest.Tab, base, path string, reading []string) (read map[string]string) {
	quote := func(v any) string { data, _ := json.Marshal(v); return string(data) }
	return browsertest.Eval[map[string]string](tab, fmt.Sprintf(`(async () => {
		const got = {};
		for (const [name, attack] of Object.entries(globalThis.attack)) for (const reading of attack.length > 2 ? %s : ['']) {
			const text = await attack(%s, %s, reading);
			if (text) got[name + ' ' + reading] = text.slice(0, 200);
		}
		return got;
	})()`, quote(reading), quote(base), quote(path)))
}

// Attacks are worth something only if they harm a site that does nothing against them.
func TestAttacksHarmASiteWithoutProtection(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	var posts atomic.Int32
	victim := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Access-Control-Allow-Headers", "X-Hooks-Dashboard, Content-Type")
		w.Header().Set("Access-Control-Allow-Methods", "PATCH")
		switch {
		case r.Method == http.MethodPost || r.Method == http.MethodPatch:
			posts.Add(1)
		case r.URL.Path == "/api/events":
			w.Header().Set("Content-Type", "text/event-stream")
		case r.URL.Path == "/image.svg":
			w.Header().Set("Content-Type", "image/svg+xml")
			_, _ = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>`)
			return
		case r.URL.Path == "/script.js":
			w.Header().Set("Content-Type", "text/javascript")
		case r.URL.Path == "/style.css":
			w.Header().Set("Content-Type", "text/css")
		}
		_, _ = io.WriteString(w, "/* secret */")
	}))
	t.Cleanup(func() {
		victim.CloseClientConnections()
		victim.Close()
	})
	tab.Open("http://evil.test:" + startAttacker(t))
	read := tryAttacks(tab, victim.URL+"/", "api/bulk", []string{"image.svg", "script.js", "style.css"})
	for _, name := range []string{"simple ", "withHeader ", "patch ", "get script.js", "image image.svg", "script script.js", "module script.js", "style style.css", "eventSource "} {
		if read[name] == "" {
			t.Errorf("%s reads nothing even there: %v", name, read)
		}
	}
	hookstest.Eventually(t, "posts come", func() bool { return posts.Load() >= 7 }) // of two forms, four kinds of fetch and a beacon
}

// A page of another site can neither change nor read anything, although the browser knows the password of the dashboard.
func TestOtherSitesCannotUseTheDashboard(t *testing.T) {
	t.Parallel()
	const password, hash = "correct-horse", "$2a$04$/rlVD3uCO.WfdCKGmOGkv.gibGHgYtPCzudLyFTMRZHJDJJSUsmi2"
	for name, dashboard := range map[string]string{
		"with a password": "basic_auth {\n ops " + hash + "\n}\n hooks_dashboard",
		"without one":     openHouse,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := browsertest.NewTab(t)
			receiver := receiverOf(t, "gone")
			rn := hookstest.StartRunner(t, nil)
			d := startDashboard(t, hookstest.Hooks(rn, hookstest.WithCallbacks), dashboard)
			d.CallBack("tell", receiver.URL+"/gone")
			hookstest.Eventually(t, "a delivery is given up", func() bool { return len(d.Deliveries("status=dead")) == 1 })
			before := d.AdminRequest("GET", "/hooks/settings", "").Body
			dead := d.Deliveries("status=dead")[0]

			// The browser is told the password, and keeps it.
			tab.Open(strings.Replace(d.Page, "http://", "http://ops:"+password+"@", 1))
			tab.Forgive(".") // the page cannot ask for anything with a password in its address
			d.look(tab, "#/deliveries")
			tab.WaitText("410")
			script := browsertest.Eval[string](tab, `document.querySelector('script[src]').getAttribute('src')`)
			style := browsertest.Eval[string](tab, `document.querySelector('link[rel=stylesheet]').getAttribute('href')`)
			tab.WantNoComplaint()

			port := startAttacker(t)
			for _, attacker := range []string{"http://evil.test:" + port, "http://127.0.0.1:" + port, "http://localhost:" + port} {
				tab.Open(attacker)
				reading := []string{"", "api/settings", "api/runs", "api/export?of=runs", script, style}
				read := tryAttacks(tab, d.Page, "api/bulk?do=retry&status=dead", reading)
				if len(read) != 0 {
					t.Errorf("from %s one reads %v", attacker, read)
				}
				// A form that leads the whole tab to the dashboard.
				browsertest.Eval[any](tab, fmt.Sprintf(`void (() => { const form = Object.assign(document.createElement('form'), {method: 'post', action: %q}); document.body.append(form); form.submit() })()`,
					d.Page+"api/bulk?do=retry&status=dead"))
				tab.Until("the dashboard answers the form", fmt.Sprintf(`location.href.startsWith(%q)`, d.Page))
			}
			if after := d.AdminRequest("GET", "/hooks/settings", "").Body; after != before {
				t.Errorf("the settings were %s and are %s", before, after)
			}
			if now := d.Deliveries("status=dead"); len(now) != 1 || now[0].Attempts != dead.Attempts {
				t.Errorf("the delivery was %+v, and there are %+v", dead, now)
			}
			tab.Forgive(".")

			// The page itself may.
			d.look(tab, "#/deliveries")
			tab.Wait("heading", "Deliveries")
			status := browsertest.Eval[int](tab, `fetch('api/bulk?do=retry&status=dead', {method: 'POST', headers: {'X-Hooks-Dashboard': '1'}}).then(r => r.status)`)
			if status != http.StatusAccepted {
				t.Errorf("the page is answered %d", status)
			}
			tab.Forgive("favicon") // which the browser asks for, in its own time, when it shows an answer to a form
			tab.WantNoComplaint()
		})
	}
}

// A name of another site that is made to lead to this machine is not taken for the dashboard, although such a page and its
// requests have the same origin.
func TestReboundNameIsNotTheDashboard(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n}", openHouse)
	tab.Open(strings.Replace(d.Page, "127.0.0.1", "rebound.test", 1))
	tab.WaitText("hosts rebound.test")
	for _, request := range []string{`fetch('/api/settings', {headers: {'X-Hooks-Dashboard': '1'}})`, `fetch('/api/settings', {method: 'PATCH', body: '{"enabled":true}', headers: {'X-Hooks-Dashboard': '1'}})`} {
		// The page that says so has a policy, too; what counts is that nothing is answered.
		if got := browsertest.Eval[int](tab, request+`.then(r => r.status, () => 403)`); got != http.StatusForbidden {
			t.Errorf("%s is answered %d", request, got)
		}
	}
	if enabled := d.AdminRequest("GET", "/hooks/settings", "").Field(t, "enabled"); enabled != false {
		t.Errorf("enabled is %v", enabled)
	}
	if all := tab.Complaints(); !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "answer 403") }) {
		t.Errorf("the browser complained only %q", all)
	}
}

// A browser sends the cookies of a host to all of its ports. Other servers on this machine get none that opens the dashboard.
func TestOtherPortsGetNoKeyToTheDashboard(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	s := hookstest.StartProcess(t, "hooks {\nrunner echo\n}")
	p := startDashboardProgram(t, hookstest.NewBinary(t), "--address", strings.TrimPrefix(s.Admin, "http://"))
	link := hookstest.ReceiveWithin(t, "the command prints a link", p.links)
	base, _, _ := strings.Cut(link, "?")

	var mu sync.Mutex
	var seen []*http.Request
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r)
		http.SetCookie(w, &http.Cookie{Name: "own", Value: "sent", Path: "/"}) //nolint:gosec // it shows that cookies are sent here at all
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>Another program</title><link rel="icon" href="data:,">`)
	}))
	t.Cleanup(other.Close)

	tab.Open(link)
	tab.Wait("heading", "Overview")
	page := browsertest.Eval[string](tab, `location.href`)
	// From the dashboard to the other server, and from there back, by all paths that one can think of.
	for _, from := range []string{page, other.URL} {
		tab.Open(from)
		for _, path := range []string{"/", "/api/settings", "/" + strings.TrimPrefix(link, base), "/hooks_dashboard/"} {
			browsertest.Eval[any](tab, fmt.Sprintf(`fetch(%q, {mode: 'no-cors', credentials: 'include'}).catch(() => {}).then(() => null)`, other.URL+path))
			tab.Open(other.URL + path)
		}
	}
	tab.Forgive("Content Security Policy|violates|Failed to load|fetch")
	mu.Lock()
	sent := seen
	mu.Unlock()
	if len(sent) < 8 || len(sent[len(sent)-1].Cookies()) == 0 {
		t.Fatalf("the other server got %d requests, the last one with no cookie of its own", len(sent))
	}
	for _, r := range sent {
		for _, cookie := range r.Cookies() {
			if cookie.Name != "own" {
				t.Errorf("%s is sent the cookie %s", r.URL, cookie)
			}
		}
		if strings.HasPrefix(r.Referer(), base) && r.Referer() != base {
			t.Errorf("%s is told the address of the dashboard: %s", r.URL, r.Referer())
		}
		for _, target := range []string{base, base + "api/settings"} {
			if got, err := hookstest.TryRequest("GET", target, "", "Cookie", r.Header.Get("Cookie"), "X-Hooks-Dashboard", "1"); err != nil || got.Status != http.StatusUnauthorized {
				t.Errorf("with what the other server got, %s is answered %d, %v", target, got.Status, err)
			}
		}
	}
	// The browser is still let in.
	tab.Open(page)
	tab.Wait("heading", "Overview")
}
