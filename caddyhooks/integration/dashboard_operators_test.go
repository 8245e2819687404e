package integration

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Two people edit the same hook: the second is told who was quicker, and loses nothing.
func TestSecondOperatorIsToldOfTheFirst(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.PutMapping("alerts", `{"action":"agent","messageTemplate":"Alert"}`)
	open := func(tab *browsertest.Tab) {
		t.Helper()
		d.look(tab, "#/settings/hooks/alerts")
		tab.Wait("heading", "alerts")
		tab.Until("the hook is there", `document.querySelector('main').innerText.includes('Message')`)
	}
	open(tab)
	tab.Fill("Message", "Mine")

	quicker := tab.Stranger()
	open(quicker)
	quicker.Fill("Message", "Theirs")
	quicker.Click("button", "Save")
	quicker.WaitText("Saved.")

	// The stream may have told it before the server does.
	tab.Click("button", "Save")
	tab.WaitText("changed by operator at ")
	tab.Until("it is told once, in local time", `document.querySelectorAll('main .note').length === 1 && !/\dT\d/.test(document.querySelector('main .note').innerText)`)
	if got := tab.Value("Message"); got != "Mine" {
		t.Errorf("what was typed has become %q", got)
	}
	tab.Click("button", "Load theirs")
	tab.Until("their text is there", `[...document.querySelectorAll('textarea')].some(e => e.value === 'Theirs')`)
	tab.Fill("Message", "Both")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	tab.Forgive("412")
	tab.WantNoComplaint()
	quicker.WantNoComplaint()
}

// Somebody who may only look is offered nothing to change, and is told why.
func TestReadOnlyOperatorMayOnlyLook(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	receiver := receiverOf(t, "gone")
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, hookstest.WithCallbacks), "hooks_dashboard {\n user operator\n read_only operator\n}")
	d.PutMapping("alerts", `{"action":"agent","messageTemplate":"Alert"}`)
	id := d.CallBack("Tell them.", receiver.URL+"/gone")
	hookstest.Eventually(t, "a delivery is given up", func() bool { return len(d.Deliveries("status=dead")) == 1 })
	for _, p := range []struct{ fragment, says string }{
		{"#/runs/" + id, "Tell them."}, {"#/deliveries", "410"}, {"#/settings", "alerts"}, {"#/settings/hooks/alerts", "Preview"},
	} {
		d.look(tab, p.fragment)
		tab.WaitText(p.says)
		offered := browsertest.Eval[[]string](tab, `[...document.querySelectorAll('main :is(button, input, select, textarea):not(:disabled)')]
			.map(e => e.textContent || e.getAttribute('aria-label') || e.id).filter(name => /save|generate|add|delete|drop|remove|cancel|send (all )?(dead |pending )?(again|now|a test)|run again|switch|field-/i.test(name))`)
		if len(offered) != 0 {
			t.Errorf("%s offers %q", p.fragment, offered)
		}
		if strings.HasPrefix(p.fragment, "#/settings") {
			tab.Until(p.fragment+" says why, beside what saves", `document.querySelector('.save-bar').innerText.includes('You may look here, but change nothing.')`)
		}
	}
	tab.WantNoComplaint()
}
