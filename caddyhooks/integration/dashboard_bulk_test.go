package integration

import (
	"fmt"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Rows are selected one by one, in a range, or all; and all runs that match, shown or not, are cancelled and run again.
func TestDashboardActsOnManyRuns(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn, _, release := hookstest.HeldRunner(t)
	d := startDashboard(t, hookstest.Hooks(rn, "workers 1"), openHouse)
	held := d.Accept(`{"message":"hold","chatId":"other"}`)
	hookstest.Eventually(t, "the worker is busy", func() bool { return d.Run(held).Status == "running" })
	const flood = 70 // more than a page
	for i := range flood {
		d.Accept(fmt.Sprintf(`{"message":"flood %d","chatId":"flood"}`, i))
	}
	d.look(tab, "#/runs?chatId=flood&status=queued")
	tab.WaitText("50 runs")

	box := func(row int, shift bool) {
		browsertest.Eval[any](tab, fmt.Sprintf(`void document.querySelectorAll('tbody input[type=checkbox]')[%d].dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true, shiftKey: %t}))`, row, shift))
	}
	box(2, false)
	tab.WaitText("1 selected")
	box(9, true)
	tab.WaitText("8 selected")
	box(5, false)
	tab.WaitText("7 selected")
	tab.Click("checkbox", "Select all that are shown")
	tab.WaitText("50 selected")
	tab.Click("button", "Select all that match")
	tab.WaitText("All that match are selected")
	tab.WantAccessible()
	tab.Picture("bulk-selected")
	tab.Click("button", "Cancel all …")
	tab.Click("button", "Cancel 70")
	tab.WaitText("Done: 70 of 70 cancelled")
	tab.WantAccessible()
	tab.Picture("bulk-done")
	if ids, _ := d.Listed("?status=cancelled&limit=1000"); len(ids) != flood {
		t.Errorf("%d are cancelled", len(ids))
	}
	if run := d.Run(held); run.Status != "running" {
		t.Errorf("the other run is %s", run.Status)
	}
	tab.Click("button", "Hide")
	tab.WaitNoText("Done: 70 of 70 cancelled")

	d.look(tab, "#/runs?chatId=flood&status=cancelled")
	tab.WaitText("50 runs")
	tab.Click("checkbox", "Select all that are shown")
	tab.Click("button", "Select all that match")
	tab.Click("button", "Run all again …")
	tab.WaitText("Those that were run again before are left out.")
	tab.Click("button", "Run 70 again")
	tab.WaitText("70 of 70 run again")
	close(release)
	hookstest.Eventually(t, "all are carried out", func() bool {
		ids, _ := d.Listed("?status=completed&limit=1000")
		return len(ids) == flood+1
	})
	tab.WantNoComplaint()
}
