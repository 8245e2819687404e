package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// An operator pauses a hook, others see who did it and why, and somebody resumes it at a pace and then at once.
func TestPausesOnTheDashboard(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	d := startDashboard(t, hookstest.Hooks(rn, "runner small echo\n"), openHouse)
	d.PutMapping("orders", `{"action":"agent","messageTemplate":"Order {id}"}`)
	d.Ended(d.Accept(`{"message":"x","chatId":"team"}`))
	paused := func() string { return d.AdminRequest("GET", "/hooks/pauses", "").Body }

	const markup = `<img src=x onerror="document.title='hurt'">`
	d.look(tab, "#/settings/hooks/orders")
	tab.Click("button", "Pause hook orders")
	tab.Wait("dialog", "Pause hook orders.")
	tab.WantAccessible()
	tab.Fill("Reason", "deploy v1.2 "+markup)
	tab.Within("dialog", "Pause hook orders.").Click("button", "Pause")
	tab.WaitText("Hook orders is paused by operator")
	tab.WaitText("deploy v1.2 " + markup)
	tab.WaitText("0 runs wait")
	id, _ := d.Post("/api/hooks/orders", `{"id":7}`).Field(t, "runId").(string)

	// The banner is on every page, and a run says why it waits.
	d.look(tab, "#/runs/"+id)
	tab.WaitText("Hook orders is paused by operator")
	tab.WaitText("1 run waits")
	tab.WaitText("paused by operator: deploy v1.2 ")
	tab.WantAccessible()
	for _, look := range []browsertest.Look{browsertest.Dark, browsertest.Narrow, browsertest.Light} {
		tab.Look(look)
		d.look(tab, "#/overview")
		tab.Wait("heading", "Overview")
		tab.WaitText("Hook orders is paused by operator")
		tab.Until("it is said once", `document.body.innerText.split("Hook orders is paused").length === 2`)
		tab.WantAccessible()
		tab.WantFits()
		tab.WantNames()
	}

	// Somebody else's pause is shown without a reload, and so is its end.
	if resp := d.AdminRequest("POST", "/hooks/pauses", `{"what":"chat","name":"team"}`, "Hooks-Operator", "ann"); resp.Status != http.StatusOK {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	tab.WaitText("Chat team is paused by ann")
	d.look(tab, "#/chats?chatId=team")
	tab.Wait("button", "Resume chat team")
	if resp := d.AdminRequest("DELETE", "/hooks/pauses?what=chat&name=team", ""); resp.Status != http.StatusNoContent {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	tab.Wait("button", "Pause chat team")
	tab.WaitNoText("Chat team is paused")

	d.look(tab, "#/settings/hooks/orders")
	tab.Within("region", "Paused").Click("button", "Resume hook orders")
	dialog := tab.Within("dialog", "Resume hook orders.")
	tab.Fill("Rate", "many")
	dialog.Click("button", "Resume")
	tab.WaitText("Rate must be a number of runs and a time, as in 10/s")
	tab.Forgive("400")
	tab.Fill("Rate", "10/s")
	dialog.Click("button", "Resume")
	tab.WaitText("Hook orders is resumed at 10/1s on each node by operator")
	d.Ended(id)
	tab.Within("region", "Paused").Click("button", "Resume hook orders")
	dialog.Click("button", "Resume")
	tab.WaitNoText("Hook orders is resumed")
	tab.Wait("button", "Pause hook orders")

	d.look(tab, "#/settings")
	tab.Click("button", "Pause runner small")
	tab.Within("dialog", "Pause runner small.").Click("button", "Pause")
	tab.WaitText("Runner small is paused by operator")
	d.look(tab, "#/overview")
	tab.Click("button", "Pause everything")
	tab.Within("dialog", "Pause everything.").Click("button", "Pause")
	tab.WaitText("Everything is paused by operator")
	if list := paused(); !strings.Contains(list, `"what":"runner","name":"small"`) || !strings.Contains(list, `"what":"all"`) {
		t.Errorf("paused is %s", list)
	}
	d.look(tab, "#/changes")
	for _, text := range []string{"pauses/all", "pauses/hook/orders", "Paused: deploy v1.2 " + markup, "Resumed at 10/1s on each node", "Resumed\n"} {
		tab.WaitText(text)
	}
	tab.WantAccessible()
	tab.WantNoComplaint()
	if title := browsertest.Eval[string](tab, `document.title`); title == "hurt" {
		t.Error("a reason was read as markup")
	}
}

// Who may only look sees what is paused, and cannot resume it.
func TestReadOnlyOperatorsSeePauses(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n}", "hooks_dashboard {\n user operator\n read_only operator\n}")
	if resp := d.AdminRequest("POST", "/hooks/pauses", `{"what":"all","reason":"deploy"}`); resp.Status != http.StatusOK {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	d.look(tab, "#/overview")
	tab.WaitText("Everything is paused by admin")
	tab.Until("buttons are off", `(buttons => buttons.length > 0 && buttons.every(b => b.disabled))([...document.querySelectorAll('main button')].filter(b => /^Resume/.test(b.textContent)))`)
	tab.WantAccessible()
	tab.WantNoComplaint()
}
