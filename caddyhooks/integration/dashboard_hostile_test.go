package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// planted is markup that somebody puts in a text, with the place where it was put.
func planted(where string) string {
	return `<img src=x onerror=planted('` + where + `')>`
}

// Whoever sends webhooks, answers them or receives callbacks can write markup. The page shows it as it is, and makes nothing of it.
func TestTextsFromOutsideStayTexts(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		switch {
		case strings.HasPrefix(tn.Text("message"), "fail"):
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, planted("error"))
		default:
			_, _ = io.WriteString(w, planted("reply"))
		}
	})
	receiver := receiverOf(t, planted("receiver"))
	path := filepath.Join(t.TempDir(), "hooks.db")
	asked := runThatAsked(t, path)
	d := startDashboard(t, hookstest.Hooks(rn, "store bolt "+path+"\n"+hookstest.WithCallbacks+"hook custom {\n action agent\n template \"{a}\"\n }"), openHouse)
	d.PutMapping("alerts", hookstest.AsJSON(t, map[string]any{"action": "agent", "messageTemplate": planted("template"), "chatId": planted("mapping chat")}))

	chat := planted("chat")
	agent := hookstest.AsJSON(t, map[string]any{
		"message": planted("message"), "name": planted("label"), "chatId": chat, "callbackUrl": receiver.URL + "/gone/" + url.PathEscape(planted("address")),
		"metadata": map[string]any{planted("key"): planted("metadata")},
	})
	id := d.Accept(agent, "User-Agent", planted("agent"), "X-Forwarded-For", planted("client"), "Idempotency-Key", planted("idempotency"))
	d.Ended(id)
	failed := d.Accept(hookstest.AsJSON(t, map[string]any{"message": "fail " + planted("message"), "chatId": chat}))
	d.Ended(failed)
	unmet := d.Post("/api/hooks/agent", hookstest.AsJSON(t, map[string]any{"message": "answer as asked", "chatId": chat, "syncResponse": true,
		"responseJsonSchema": map[string]any{"type": "object", "title": planted("schema")}})).Header.Get("X-Service-Run-Id")
	d.Post("/api/hooks/custom", hookstest.AsJSON(t, map[string]any{"a": planted("payload")}))
	d.Post("/api/hooks/"+url.PathEscape(planted("asked")), "{}")
	d.Post("/api/hooks/agent", hookstest.AsJSON(t, map[string]any{"message": "x", planted("field"): 1, "timeoutSeconds": planted("value")}))
	hookstest.Eventually(t, "a delivery is given up", func() bool { return len(d.Deliveries("status=dead")) == 1 })

	for _, p := range []struct {
		name, fragment string
		shows          []string // the plants that are seen there
	}{
		{"overview", "#/overview", nil},
		{"runs", "#/runs", []string{"message", "label"}},
		{"refused", "#/runs/refused", nil},
		{"run", "#/runs/" + id, []string{"message", "reply", "label", "chat", "key", "metadata"}},
		{"failed run", "#/runs/" + failed, []string{"message", "error"}},
		{"unmet run", "#/runs/" + unmet, []string{"reply", "chat"}},
		{"run that asked", "#/runs/" + asked, []string{"kind", "title"}},
		{"chats", "#/chats", []string{"chat"}},
		{"chat", "#/chats?chatId=" + url.QueryEscape(chat), []string{"chat", "message", "reply"}},
		{"search", "#/runs?q=" + url.QueryEscape(planted("message")), []string{"message"}},
		{"deliveries", "#/deliveries", []string{"receiver"}},
		{"settings", "#/settings", nil},
		{"hook", "#/settings/hooks/alerts", []string{"template", "mapping chat"}},
		{"hook with payloads", "#/settings/hooks/custom", []string{"payload"}},
		{"changes", "#/changes", []string{"template"}},
	} {
		d.look(tab, p.fragment)
		if p.name == "run that asked" {
			for _, text := range []string{"The agent had lost the session of this chat and began a new one.", "rejected", "allowed", "2 more requests not kept."} {
				tab.WaitText(text)
			}
			for _, look := range []browsertest.Look{browsertest.Narrow, browsertest.Light} {
				tab.Look(look)
				tab.Picture("asked-" + look.Name)
				tab.WantAccessible()
				tab.WantFits()
			}
		}
		if p.name == "deliveries" {
			tab.Click("button", "Attempts and details")
		}
		for _, where := range p.shows {
			tab.Until(fmt.Sprintf("the page %s shows %s", p.name, planted(where)), fmt.Sprintf(
				`document.querySelectorAll('main details').forEach(d => d.open = true), document.querySelector('main').innerText.replaceAll('\\"', '"').includes(%[1]s) || [...document.querySelectorAll('main :is(input, textarea)')].some(e => e.value.includes(%[1]s))`,
				hookstest.AsJSON(t, planted(where))))
		}
		tab.Until("the page is there", `!!document.querySelector('main h1')`)
		if made := browsertest.Eval[[]string](tab, `[...document.querySelectorAll('img, [onerror], main script')].map(e => e.outerHTML)`); len(made) != 0 {
			t.Errorf("the page %s has made %q of a text", p.name, made)
		}
	}
	tab.WantNoComplaint() // of its policy, above all
}

// runThatAsked makes a store with a run whose agent had lost its session and asked for permissions.
func runThatAsked(t *testing.T, path string) (id string) {
	t.Helper()
	database, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	store := database.Store()
	run := &engine.Run{ChatID: "asked", Hook: "agent", Action: engine.Agent, Message: "make it", Timeout: time.Minute}
	add := store.Runs().Add(t.Context(), run, engine.Terms{})
	claims, _, claim := store.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute})
	if err := errors.Join(add, claim); err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	_, err = store.Runs().End(t.Context(), claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "made", HasText: true, SessionRenewed: true,
		Account: engine.Account{MorePermissions: 2, Permissions: []engine.Permission{
			{Kind: planted("kind"), Title: planted("title"), Answer: "rejected"}, {Kind: "read", Title: "a file", Answer: "allowed"},
			{Kind: strings.Repeat("k", 64), Title: strings.Repeat("/a/path", 36), Answer: "rejected"}}}}}, engine.Batch{})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	return run.ID
}

// A link may come from anybody. What it names and what is not there must not be taken for something else.
func TestOddAddressesAreNoPages(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n}", openHouse)
	for _, name := range []string{"constructor", "__proto__", "toString", "none"} {
		d.look(tab, "#/"+name)
		tab.WaitText("There is no such page.")
	}
	d.look(tab, "#/settings?instance=..")
	tab.Until("the instance is called by its name", `document.title === "Webhooks · hooks"`)
	tab.WantNoComplaint()
}
