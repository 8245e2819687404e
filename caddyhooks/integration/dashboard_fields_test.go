package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Every field has a link to the reference, which a test of package dashboard compares with the documentation.
func TestDashboardFieldsLeadToTheReference(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n channel notes log\n}", openHouse)
	for fragment, least := range map[string]int{"#/settings": 7, "#/settings/hooks": 40} {
		d.look(tab, fragment)
		tab.Until("the page is drawn", `!!document.querySelector('main h1') && !document.querySelector('[aria-busy]')`)
		bare := browsertest.Eval[[]string](tab, `[...document.querySelectorAll('.setting, form :is(input, select, textarea)')].map(e => e.closest('.setting, .field')).filter(box => {
			const links = box.querySelectorAll('a.reference');
			return links.length !== 1 || links[0].target !== '_blank' || links[0].rel !== 'noopener noreferrer' || links[0].tabIndex !== 0 ||
				!/^https:\/\/github\.com\/caddy-hooks\/caddy-hooks\/blob\/main\/caddyhooks\/docs\/reference\/[\w-]+\.md#[\w-]+$/.test(links[0].href);
		}).map(box => box.outerHTML)`)
		if len(bare) > 0 {
			t.Errorf("%s has fields without a link: %s", fragment, strings.Join(bare, "\n"))
		}
		if n := browsertest.Eval[int](tab, `document.querySelectorAll('a.reference').length`); n < least {
			t.Errorf("%s has only %d links", fragment, n)
		}
	}
	tab.Wait("link", "Reference: (Message|Token)")
	tab.WantNoComplaint()
}

// The schema of answers is one click away, and makes the caller wait.
func TestDashboardAsksForAnAnswerSchema(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n}", openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Until("the part is clicked", `(() => { const part = [...document.querySelectorAll('summary')].find(s => s.innerText.startsWith('Answer schema')); part?.click(); return !!part })()`)
	tab.Fill(`Answer schema \(.*`, `{"type":"object"`)
	tab.WaitText("Answer schema must be a JSON object")
	tab.Fill(`Answer schema \(.*`, `{"type":"object"}`)
	tab.Fill("Name", "facts")
	tab.Choose("Action", "agent, a full turn")
	tab.WantAccessible()
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "facts")
	d.AdminRequest("GET", "/hooks/mappings/facts", "").WantMembers(t, `{"action":"agent","syncResponse":true,"responseJsonSchema":{"type":"object"}}`)
	tab.WantNoComplaint()
}

// The page offers model tiers and memory presets that make a difference to a runner. What a hook has already stays.
func TestDashboardOffersWhatRunnersUse(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	const program = "runner command claude {\ntier coding opus\n}\n"
	d := startDashboard(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner small echo\n"+program+"}", openHouse)
	d.PutMapping("kept", `{"action":"agent","messageTemplate":"{id}","model":"deep","memoryPreset":"ops_support"}`)
	options := func(id string) []string {
		return browsertest.Eval[[]string](tab, `[...document.querySelectorAll('#field-`+id+` option')].map(o => o.value)`)
	}
	want := func(id string, values ...string) {
		t.Helper()
		if got := options(id); !slices.Equal(got, values) {
			t.Errorf("%s offers %q", id, got)
		}
	}
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	want("model", "", "coding")
	want("responseValidationModelTier", "", "coding")
	want("memoryPreset", "", "disabled", "general_chat")

	d.look(tab, "#/settings/hooks/kept")
	tab.Wait("heading", "kept")
	want("model", "", "coding", "deep")
	want("memoryPreset", "", "disabled", "general_chat", "ops_support")
	tab.Fill("Message", "Order {id}")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	d.AdminRequest("GET", "/hooks/mappings/kept", "").WantMembers(t, `{"messageTemplate":"Order {id}","model":"deep","memoryPreset":"ops_support"}`)

	d.look(tab, "#/settings")
	tab.Until("the settings offer the same presets", `[...document.querySelectorAll('[aria-labelledby=label-memoryPreset] option')].map(o => o.value).join() === 'disabled,general_chat'`)
	tab.WantNoComplaint()
}
