package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
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
	d := startDesk(t, hookstest.Hooks(rn, hookstest.WithCallbacks+"hook custom {\n action agent\n template \"{a}\"\n }"), openHouse)
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
		{"sessions", "#/sessions", []string{"chat"}},
		{"session", "#/sessions?chatId=" + url.QueryEscape(chat), []string{"chat", "message", "reply"}},
		{"search", "#/runs?q=" + url.QueryEscape(planted("message")), []string{"message"}},
		{"deliveries", "#/deliveries", []string{"receiver"}},
		{"settings", "#/settings", nil},
		{"hook", "#/settings/hooks/alerts", []string{"template", "mapping chat"}},
		{"hook with payloads", "#/settings/hooks/custom", []string{"payload"}},
		{"changes", "#/changes", []string{"template"}},
	} {
		d.look(tab, p.fragment)
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

// A link may come from anybody. What it names and what is not there must not be taken for something else.
func TestOddAddressesAreNoPages(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDesk(t, "hooks", openHouse)
	for _, name := range []string{"constructor", "__proto__", "toString", "none"} {
		d.look(tab, "#/"+name)
		tab.WaitText("There is no such page.")
	}
	d.look(tab, "#/settings?instance=..")
	tab.Until("the instance is called by its name", `document.title === "Webhooks · hooks"`)
	tab.WantNoComplaint()
}
