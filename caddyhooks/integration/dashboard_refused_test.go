package integration

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// A request with a wrong signature is looked at, and tried with a draft of its hook.
func TestDashboardTriesARefusedRequest(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.PutMapping("issues", `{"action":"agent","authMode":"github","authSecret":"the secret of the hook","messageTemplate":"Issue {n}"}`)
	d.look(tab, "#/runs/refused")
	tab.WaitText("are not kept")
	d.PatchSettings(`{"keepRefusedSeconds":3600}`)
	payload := `{"action":"opened","n":42,"title":"<b>bold</b> ` + "\u202e" + `odd"}`
	if resp := fromGitHub(d, "another secret", payload); resp.Status != 401 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	tab.WaitText("The signature does not match the body and the secret") // without a reload of the page
	tab.WaitText("POST /api/hooks/issues")
	unfold(tab, "POST /api/hooks/issues")
	tab.WaitText("X-Hub-Signature-256: ••••")
	tab.WaitText("<b>bold</b> ⟨U+202E⟩odd")
	tab.Picture("refused")
	tab.WantAccessible()
	tab.WantNames()
	tab.Click("link", "Try with the hook")
	tab.Wait("heading", "issues")
	tab.WaitText("Issue 42")
	tab.Fill("Message", "Draft of {action}")
	tab.WaitText("Draft of opened")
	if text := browsertest.Eval[string](tab, `document.querySelector('[aria-label="Headers and query"]').value`); strings.Contains(text, "••••") || !strings.Contains(text, "X-Github-Event: issues") {
		t.Errorf("the headers are %q", text)
	}
	if runs := d.AdminRequest("GET", "/hooks/runs", "").Body; !strings.Contains(runs, `"runs":[]`) {
		t.Errorf("there are runs: %s", runs)
	}
}
