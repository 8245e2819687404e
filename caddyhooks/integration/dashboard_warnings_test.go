package integration

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// A warning is dismissed with a reason, which others see, and brought back.
func TestWarningsAreDismissedOnThePage(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.Ended(d.Accept(`{"message":"hello"}`))
	d.PutMapping("alerts", `{"action":"agent","authMode":"token","hmacHeader":"X-Token","authSecret":"guess-me","messageTemplate":"Alert"}`)
	d.look(tab, "#/overview")
	const warning = "Hook alerts: authSecret (auth in a Caddyfile) has fewer than 16 characters and can be guessed"
	tab.WaitText(warning)
	other := tab.Stranger()
	d.look(other, "#/overview")
	other.WaitText(warning)

	tab.Click("button", "Dismiss: .*guessed")
	dialog := tab.Within("dialog", "Dismiss this warning.*")
	tab.WantAccessible()
	dialog.Fill("Why it may stay", "only for a test")
	dialog.Click("button", "Dismiss")
	for _, page := range []*browsertest.Tab{tab, other} {
		page.Until("the warning is folded", `document.querySelector('.dismissed:not([open]) summary')?.innerText === 'Dismissed (1)' && !document.querySelector('.panel > .todo').innerText.includes('guessed')`)
	}
	browsertest.Eval[any](other, `void document.querySelector('.dismissed summary').click()`)
	other.Until("the warning is unfolded", `document.querySelector('.dismissed').open`)
	other.WaitText(warning)
	other.WaitText("operator, ")
	other.WaitText("only for a test")
	for _, look := range []browsertest.Look{browsertest.Light, browsertest.Dark, browsertest.Narrow} {
		other.Look(look)
		other.Picture("dismissed-" + look.Name)
		other.WantAccessible()
		other.WantNames()
		other.WantFits()
	}
	d.look(tab, "#/settings")
	tab.WaitText("alerts")
	tab.WaitNoText("can be guessed")
	d.look(tab, "#/changes")
	tab.WaitText("only for a test")

	other.Click("button", "Bring back: .*")
	other.Until("the warning is back", `!document.querySelector('.dismissed') && document.querySelector('.todo').innerText.includes('can be guessed')`)
	tab.WantNoComplaint()
	other.WantNoComplaint()
}
