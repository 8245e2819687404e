package integration

import (
	"encoding/json"
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
	receiver  *httptest.Server
	completed string // runs
	failed    string
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

// agentAnswers answers turns of a busy dashboard as an agent might. Messages that begin with "Check every" are held until they are
// cancelled, or release is closed; answers to customers never match a schema.
func agentAnswers(release <-chan struct{}) func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
	return func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		answer := "All quiet: two deploys, no alert."
		switch {
		case strings.HasPrefix(tn.Text("message"), "Check every"):
			select {
			case <-r.Context().Done():
				return
			case <-release:
			}
		case strings.HasPrefix(tn.Text("chatId"), "customer:"):
			answer = "{\n  \"invoice\": \"in_20417\",\n  \"customer\": \"cus_318\",\n  \"amount\": \"49.90\",\n  \"action\": \"send_receipt\"\n}"
		case strings.Contains(tn.Text("message"), "issue"):
			answer = "Duplicate of #1188: the session cookie is not cleared on reset. I labelled it auth and told the reporter."
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"text": answer,
			"usage": map[string]any{"model": "gpt-5", "inputTokens": 1200, "outputTokens": len(answer), "costUsd": 0.0049}})
	}
}

// busyHooks are the hooks of a busy dashboard that its Caddyfile has. The last one is to be closed. One budget is nearly used up, and one is
// used up for a customer.
const busyHooks = `
	budget 2M tokens/24h
	hook github-issues {
		action agent
		auth github a-secret-of-github
		template "New issue {issue.number} in {repository}: {issue.title}"
		chat_id "repo:{repository}"
		untrusted wrap
		budget $0.018/24h
	}
	hook stripe-invoices {
		action agent
		sync
		template <<MESSAGE
			Invoice {id} for {amount} {currency} was paid by {customer}.

			Decide what to do next, and answer with the fields invoice, customer, amount (in cents), currency and action.
			MESSAGE
		chat_id "customer:{customer}"
		model smart
		metadata source billing
		budget $0.0049/24h by "{customer}"
		response_schema ` + "`" + `{"type":"object","required":["invoice","customer","amount","currency","action"],"properties":{"amount":{"type":"integer"}}}` + "`\n"

// startBusyDashboard starts a dashboard where runs of all kinds are and were.
func startBusyDashboard(t *testing.T) *busyDashboard {
	t.Helper()
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, agentAnswers(release))
	d := &busyDashboard{receiver: receiverOf(t, "no such address")}
	d.dashboard = startDashboard(t, hookstest.Hooks(rn, hookstest.WithCallbacks+busyHooks+"callback_url "+d.receiver.URL+"/gone\n}"), openHouse)
	secret := strings.Repeat("s", 32)
	d.PutMapping("alerts", hookstest.AsJSON(t, map[string]any{
		"action": "agent", "authMode": "hmac", "hmacHeader": "X-Signature", "hmacSecret": secret, "chatId": "alert:{alertname}",
		"messageTemplate": "The alert {alertname} fires on {instance}: {summary}\nRunbook: {runbook}\n\nFind the cause. Change nothing without asking.",
	}))
	d.PatchSettings(`{"defaultTimeoutSeconds":120}`)

	for i, title := range []string{"Login loops after password reset", "Export is empty", "12345678901234567890 is too long a number"} {
		payload := hookstest.AsJSON(t, map[string]any{"issue": map[string]any{"number": 1207 + i, "title": title}, "repository": "acme/api"})
		id, _ := d.Request("POST", "/api/hooks/github-issues", payload, "X-GitHub-Event", "issues",
			"X-GitHub-Delivery", fmt.Sprintf("72d3162e-cc78-11e3-81ab-4c9367dc095%d", i), "X-Hub-Signature-256", "sha256="+signed("a-secret-of-github", payload)).Field(t, "runId").(string)
		d.Ended(id)
	}
	alert := `{"alertname":"DiskFull","instance":"db-2:9100","summary":"/var is 92 % full"}`
	d.Request("POST", "/api/hooks/alerts", alert, "X-Signature", signed(secret, alert))
	d.Post("/api/hooks/stripe-invoices", `{"id":"in_20417","customer":"cus_318","amount":4990,"currency":"EUR"}`, "Idempotency-Key", "evt_20417").WantError(t, http.StatusUnprocessableEntity)
	ids, _ := d.Listed("?hook=stripe-invoices")
	d.failed = ids[0]
	agent := func(fields map[string]any) string { return d.Accept(hookstest.AsJSON(t, fields)) }
	d.completed = agent(map[string]any{"message": "Summarize the night.", "name": "nightly", "chatId": chatOfManyRuns,
		"callbackUrl": d.receiver.URL + "/gone", "metadata": map[string]any{"shift": "night"}})
	late := agent(map[string]any{"message": "Check every query of the week.", "timeoutSeconds": 1})
	cancelled := agent(map[string]any{"message": "Check every link of the handbook."})
	agent(map[string]any{"message": "Summarize the week.", "callbackUrl": d.receiver.URL + "/later"})
	agent(map[string]any{"message": "Summarize the month.", "callbackUrl": d.receiver.URL + "/taken"})
	for _, id := range []string{d.completed, late} {
		d.Ended(id)
	}
	d.CancelRun(cancelled)
	agent(map[string]any{"message": "Check every backup of the year.", "chatId": chatOfManyRuns})
	agent(map[string]any{"message": "Say which of them are too old.", "chatId": chatOfManyRuns})
	for range 3 {
		d.Request("POST", "/api/hooks/agent", `{"message":"let me in"}`, "Authorization", "Bearer wrong")
	}
	hookstest.Eventually(t, "deliveries are given up, and another is put off", func() bool {
		return len(d.Deliveries("status=dead")) == 2 && len(d.Deliveries("status=pending")) == 1 && len(d.Deliveries("status=delivered")) == 1
	})
	t.Cleanup(func() { close(release) })
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
		{"overview", "#/overview", "81 % of the budget of $0.018/24h of hook github-issues are used"},
		{"runs", "#/runs", "Login loops after password reset"},
		{"refused", "#/runs/refused", "401"},
		{"run", "#/runs/" + d.completed, "Summarize the night."},
		{"failed-run", "#/runs/" + d.failed, "does not match the schema"},
		{"chats", "#/chats", chatOfManyRuns},
		{"chat", "#/chats?chatId=" + url.QueryEscape(chatOfManyRuns), "Summarize the night."},
		{"deliveries", "#/deliveries", "410"},
		{"settings", "#/settings", "github-issues"},
		{"hook", "#/settings/hooks/alerts", "<missing>"},
		{"new-hook", "#/settings/hooks", "Preview"},
		{"changes", "#/changes", "alerts"},
		{"cost", "#/cost", "400 %, $0.0196 of $0.0049"},
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
