package integration

import (
	"cmp"
	"slices"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
)

// Every page is looked at in daylight, at night and on a telephone, by people who see, hear or type. With PAGE_PICTURES=dir,
// pictures of all of them are kept there, and among them overview.png, run.png and hook.png for the README:
//
//	PAGE_PICTURES=/tmp/pictures go test -run TestEveryPageIsForEverybody
func TestEveryPageIsForEverybody(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startBusyDashboard(t)
	for _, look := range []browsertest.Look{browsertest.Light, browsertest.Dark, browsertest.Narrow} {
		t.Run(look.Name, func(t *testing.T) {
			tab := tab.For(t)
			tab.Look(look)
			for _, p := range d.pages() {
				d.turnTo(tab, p)
				name := p.name + "-" + look.Name
				tab.Picture(cmp.Or(readmePictures[name], name))
				tab.WantAccessible()
				tab.WantFits()
				if look == browsertest.Dark {
					continue // the same controls as by day
				}
				tab.WantNames()
				tab.WantKeyboard()
			}
			tab.WantNoComplaint()
		})
	}
}

// readmePictures are the names of the pictures that README.md shows.
var readmePictures = map[string]string{"overview-light": "overview", "failed-run-light": "run", "hook-dark": "hook"}

// Colours are tokens, so that it is enough to try each that text has with each that it is on.
func TestTextCanBeReadInEveryColour(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n}", openHouse)
	d.look(tab, "")
	tab.Wait("heading", "Overview")
	// A colour that is new has to be put in one of these.
	texts := []string{"--text", "--muted", "--accent", "--ok", "--wait", "--bad", "--late"}
	grounds := []string{"--bg", "--surface", "--sunken"}                                                    // for all texts
	tinted := []string{"--accent-soft", "--ok-soft", "--wait-soft", "--bad-soft", "--late-soft", "--mark"}  // for plain text, and the text of that name
	drawn := []string{"--line", "--line-soft", "--edge", "--plot-1", "--plot-2", "--plot-3", "--plot-area"} // no text is on them
	pairs := [][2]string{{"--accent-text", "--accent"}}
	for _, text := range texts {
		for _, ground := range append(grounds, tinted...) {
			if slices.Contains(grounds, ground) || text == "--text" || ground == text+"-soft" {
				pairs = append(pairs, [2]string{text, ground})
			}
		}
	}
	all := slices.Concat(texts, grounds, tinted, drawn, []string{"--accent-text"})
	for _, property := range tab.Properties() {
		if !slices.Contains(all, property) {
			t.Errorf("the colour %s is in no pair", property)
		}
	}
	for _, look := range []browsertest.Look{browsertest.Light, browsertest.Dark} {
		tab.Look(look)
		tab.WantContrast(pairs, 4.5)
	}
	t.Logf("%d pairs of colours were tried in both schemes", len(pairs))
}

// The keys of the help lead everywhere.
func TestPagesAreReachedByKeys(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startBusyDashboard(t)
	d.look(tab, "")
	tab.Wait("heading", "Overview")
	for _, step := range []struct{ key, heading string }{
		{"r", "Runs"}, {"h", "Chats"}, {"d", "Deliveries"}, {"w", "Webhooks.*"}, {"o", "Overview"},
	} {
		tab.Press("g" + step.key) // in one go: the second key must come soon
		tab.Wait("heading", step.heading)
	}
	tab.Press("?")
	tab.Wait("dialog", ".*")
	tab.Press("Escape")
	tab.Until("the help is gone", `!document.querySelector('dialog[open]')`)
	tab.Press("gr")
	tab.WaitText("Login loops after password reset")
	tab.Press("j", "Enter")
	tab.Until("a run is shown", `/^#\/runs\/[0-9a-f-]{36}/.test(location.hash)`)
	tab.WantNoComplaint()
}
