package integration

import (
	"io"
	"net/http"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// An operator sends a hook to another runner, and sees which runners work.
func TestRunnersOnTheDashboard(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	const markup = `<img src=x onerror="document.title='hurt'">`
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "OK "+markup)
	})
	d := startDashboard(t, hookstest.Hooks(rn, "runner small echo\nrunner dead http http://127.0.0.1:1/\nrunner_for coding small"), openHouse)
	d.PutMapping("orders", `{"action":"agent","messageTemplate":"Order {id}"}`)

	unfold := func() {
		tab.Until("the folds are open", `[...document.querySelectorAll('main details')].map(d => d.open = true).length > 3`)
	}
	d.look(tab, "#/settings/hooks/orders")
	unfold()
	if got := tab.Value("Runner"); got != "" {
		t.Errorf("at first the runner is %q", got)
	}
	tab.Choose("Runner", "small (echo)")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	tab.WaitText("runner small")
	if saved := d.AdminRequest("GET", "/hooks/mappings/orders", ""); saved.Field(t, "runner") != "small" {
		t.Errorf("saved is %s", saved.Body)
	}
	id, _ := d.Post("/api/hooks/orders", `{"id":7}`).Field(t, "runId").(string)
	d.Ended(id)
	d.look(tab, "#/runs/"+id)
	tab.WaitText("completed")
	tab.Until("the run names its runner", `[...document.querySelectorAll('dt')].some(dt => dt.textContent === 'Runner' && dt.nextSibling.textContent === 'small')`)
	other := d.Accept(`{"message":"of the other"}`)
	d.Ended(other)
	d.look(tab, "#/runs")
	tab.WaitText("of the other")
	tab.WantNames()
	tab.Choose("Runner", "small")
	tab.WaitNoText("of the other")
	tab.WaitText("Order 7")
	tab.Until("the address has the runner", `location.hash.includes('runner=small')`)

	d.look(tab, "#/settings/hooks/orders")
	unfold()
	tab.Choose("Runner", "as configured")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	if saved := d.AdminRequest("GET", "/hooks/mappings/orders", ""); saved.Field(t, "runner") != nil {
		t.Errorf("saved is %s", saved.Body)
	}

	d.Post("/api/hooks/agent", `{"message":"fail","syncResponse":true}`).WantError(t, 502)
	d.look(tab, "#/settings")
	tab.Wait("table", "Runners")
	for _, text := range []string{"takes runs", "not known", "the runner answered 500: OK " + markup, "http://127.0.0.1:1", "coding"} {
		tab.WaitText(text)
	}
	tab.Click("button", "Try default")
	tab.WaitText("default answered")
	tab.WaitText("OK " + markup)
	tab.Click("button", "Try dead")
	tab.WaitText("dead failed")
	tab.WaitText("reaching the runner: ")
	tab.WantAccessible()
	tab.WantNoComplaint()
	if title := browsertest.Eval[string](tab, `document.title`); title == "hurt" {
		t.Error("an answer was read as markup")
	}
}
