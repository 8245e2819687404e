package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// dashboard is a Caddy that has a dashboard on a site of its own.
type dashboard struct {
	*hookstest.Server
	Page string // the address of the dashboard

	hooks, sites string // the directives of the site with the hooks, and all other sites
}

// openHouse is a dashboard for everybody who reaches it.
const openHouse = "hooks_dashboard {\n user operator\n}"

// startDashboard starts a Caddy with hooks, and a dashboard on a site with the given directives.
func startDashboard(t *testing.T, hooks, directives string) *dashboard {
	t.Helper()
	port := hookstest.FreePort(t)
	d := &dashboard{Page: "http://127.0.0.1:" + port + "/", hooks: hooks}
	d.addSite("http://:"+port, directives)
	d.Server = hookstest.StartProcess(t, d.directives())
	return d
}

// addSite adds a site to those that are served from the next load on.
func (d *dashboard) addSite(address, directives string) {
	d.sites += "}\n" + address + " {\n" + directives + "\n"
}

// directives are those of the first site, with the other sites after it.
func (d *dashboard) directives() string { return d.hooks + "\n" + d.sites }

// look opens a page of the dashboard.
func (d *dashboard) look(tab *browsertest.Tab, fragment string) { tab.Open(d.Page + fragment) }

// busyDashboard is a dashboard with something of everything in it.
type busyDashboard struct {
	*dashboard
	runner    *hookstest.Runner
	receiver  *httptest.Server
	completed string // runs
	failed    string
	running   string
	release   func() // lets running runs end
}

// receiverOf answers callbacks as their path asks: /gone is 410, /later is 503, and others are taken.
func receiverOf(t *testing.T, answer string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case strings.HasPrefix(r.URL.Path, "/gone"):
			w.WriteHeader(http.StatusGone)
		case strings.HasPrefix(r.URL.Path, "/later"):
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s
}

// chatOfManyRuns is the chat that the page of a chat is tried with.
const chatOfManyRuns = "repo:acme/api"

// startBusyDashboard starts a dashboard where runs of all kinds are and were.
func startBusyDashboard(t *testing.T) *busyDashboard {
	t.Helper()
	rn, _, release := hookstest.HeldRunner(t)
	d := &busyDashboard{runner: rn, receiver: receiverOf(t, "no such address"), release: func() { close(release) }}
	d.dashboard = startDashboard(t, hookstest.Hooks(rn, hookstest.WithCallbacks+`
		hook github-issues {
			action agent
			template "Issue {issue.number}: {issue.title}"
			chat_id "repo:{repository}"
		}`), openHouse)
	d.PutMapping("alerts", `{"action":"agent","authMode":"hmac","hmacHeader":"X-Signature","hmacSecret":"`+strings.Repeat("s", 32)+`","messageTemplate":"Alert {name}"}`)
	d.PatchSettings(`{"defaultTimeoutSeconds":120}`)

	for i, title := range []string{"Login loops after password reset", "Export is empty", "12345678901234567890 is too long a number"} {
		id, _ := d.Post("/api/hooks/github-issues", hookstest.AsJSON(t, map[string]any{
			"issue": map[string]any{"number": 1207 + i, "title": title}, "repository": "acme/api",
		})).Field(t, "runId").(string)
		d.Ended(id)
	}
	agent := func(fields map[string]any) string { return d.Accept(hookstest.AsJSON(t, fields)) }
	d.completed = agent(map[string]any{"message": "Summarize the night.", "name": "nightly", "chatId": chatOfManyRuns,
		"callbackUrl": d.receiver.URL + "/gone", "metadata": map[string]any{"shift": "night"}})
	d.failed = agent(map[string]any{"message": "fail", "chatId": chatOfManyRuns})
	late := agent(map[string]any{"message": "hold late", "timeoutSeconds": 1})
	cancelled := agent(map[string]any{"message": "hold this"})
	agent(map[string]any{"message": "Tell it later.", "callbackUrl": d.receiver.URL + "/later"})
	agent(map[string]any{"message": "Tell it.", "callbackUrl": d.receiver.URL + "/taken"})
	for _, id := range []string{d.completed, d.failed, late} {
		d.Ended(id)
	}
	d.CancelRun(cancelled)
	d.running = agent(map[string]any{"message": "hold on", "chatId": chatOfManyRuns})
	agent(map[string]any{"message": "After that.", "chatId": chatOfManyRuns})
	for range 3 {
		d.Request("POST", "/api/hooks/agent", `{"message":"let me in"}`, "Authorization", "Bearer wrong")
	}
	hookstest.Eventually(t, "a delivery is given up, and another is put off", func() bool {
		return len(d.Deliveries("status=dead")) == 1 && len(d.Deliveries("status=pending")) == 1 && len(d.Deliveries("status=delivered")) == 1
	})
	return d
}

// dashboardPage is a page of the dashboard.
type dashboardPage struct {
	name, fragment string
	says           string // as soon as it is there
}

// pages are all pages of the dashboard.
func (d *busyDashboard) pages() []dashboardPage {
	return []dashboardPage{
		{"overview", "#/overview", "github-issues"},
		{"runs", "#/runs", "Login loops after password reset"},
		{"refused", "#/runs/refused", "401"},
		{"run", "#/runs/" + d.completed, "Summarize the night."},
		{"failed-run", "#/runs/" + d.failed, "fail"},
		{"chats", "#/chats", chatOfManyRuns},
		{"chat", "#/chats?chatId=" + url.QueryEscape(chatOfManyRuns), "Summarize the night."},
		{"deliveries", "#/deliveries", "410"},
		{"settings", "#/settings", "github-issues"},
		{"hook", "#/settings/hooks/alerts", "<missing>"},
		{"new-hook", "#/settings/hooks", "Preview"},
		{"changes", "#/changes", "alerts"},
	}
}

// turnTo shows a page, and waits until it has what it is to show.
func (d *busyDashboard) turnTo(tab *browsertest.Tab, p dashboardPage) {
	d.T.Helper()
	d.look(tab, p.fragment)
	tab.Until("the page is drawn", `!!document.querySelector('main h1') && !document.querySelector('[aria-busy]')`)
	tab.Until(fmt.Sprintf("the page %s says %q", p.name, p.says), fmt.Sprintf(
		`document.querySelector('main').innerText.includes(%[1]s) || [...document.querySelectorAll('main :is(input, textarea)')].some(e => e.value.includes(%[1]s))`,
		hookstest.AsJSON(d.T, p.says)))
}
