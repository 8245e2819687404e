package browsertest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// WantFits checks that nothing of the page is beyond the side of its window.
func (tab *Tab) WantFits() {
	tab.t.Helper()
	for _, beyond := range tab.overflow() {
		tab.t.Errorf("the page is wider than its window: %s", beyond)
	}
}

// overflow is what makes the page wider than its window.
func (tab *Tab) overflow() []string {
	tab.t.Helper()
	return Eval[[]string](tab, `(() => {
		const root = document.documentElement;
		if (root.scrollWidth <= innerWidth) return [];
		const wide = [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
		return [root.scrollWidth + ' > ' + innerWidth + ' px', ...wide.slice(0, 5).map(e => e.outerHTML.slice(0, 160))];
	})()`)
}

// controls are the roles of what people act on.
var controls = []string{
	"button", "link", "textbox", "searchbox", "checkbox", "radio", "switch", "combobox", "ComboBoxSelect", "listbox", "menuitem", "menuitemcheckbox",
	"menuitemradio", "slider", "spinbutton", "tab", "treeitem", "option", "DisclosureTriangle", "PopUpButton", "ToggleButton", "Date", "DateTime", "InputTime",
}

// WantNames checks that everything that people act on has a name to call it by.
func (tab *Tab) WantNames() {
	tab.t.Helper()
	for _, nameless := range tab.nameless() {
		tab.t.Errorf("a control has no name: %s", nameless)
	}
}

func (tab *Tab) nameless() (found []string) {
	tab.t.Helper()
	var tree struct {
		Nodes []axNode `json:"nodes"`
	}
	tab.run("reading the accessibility tree", call("Accessibility.getFullAXTree", map[string]any{}, &tree))
	for _, node := range tree.Nodes {
		if node.Ignored || !slices.Contains(controls, node.Role.String()) || strings.TrimSpace(node.Name.String()) != "" {
			continue
		}
		var described struct {
			HTML string `json:"outerHTML"`
		}
		_ = tab.try(call("DOM.getOuterHTML", map[string]any{"backendNodeId": node.Backend}, &described))
		found = append(found, fmt.Sprintf("%s %.200s", node.Role, described.HTML))
	}
	return found
}

// keyboardStops walks the page with the Tab key. A control is told apart by a number that it is given.
const keyboardStops = `(() => {
	const all = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex], [contenteditable=true]')];
	const seen = e => e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && !e.closest('[inert]');
	globalThis.browsertestControls = all.filter(e => seen(e) && !e.disabled && e.tabIndex >= 0);
	// Of a group of radio buttons one is a stop; the arrow keys lead to the others. While a dialog is open nothing else is there.
	const dialog = document.querySelector('dialog:modal');
	browsertestControls = browsertestControls.filter(e => !dialog || dialog.contains(e)).filter(e => e.type !== 'radio' || !e.name || e.checked ||
		!browsertestControls.some(other => other !== e && other.type === 'radio' && other.name === e.name && (other.checked || browsertestControls.indexOf(other) < browsertestControls.indexOf(e))));
	document.activeElement?.blur();
	globalThis.browsertestStops = [];
	globalThis.browsertestWatch?.abort();
	globalThis.browsertestWatch = new AbortController();
	document.addEventListener('focusin', event => {
		const e = event.target, style = getComputedStyle(e);
		const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none';
		browsertestStops.push({index: browsertestControls.indexOf(e), shown: ring, html: e.outerHTML.slice(0, 160)});
	}, {signal: browsertestWatch.signal});
	return browsertestControls.length;
})()`

// WantKeyboard checks that the Tab key leads to every control of the page, and that one sees where one is.
func (tab *Tab) WantKeyboard() {
	tab.t.Helper()
	for _, trouble := range tab.keyboardTroubles() {
		tab.t.Errorf("by keyboard: %s", trouble)
	}
}

// keyboardTroubles are those of every one of a few walks: a live page may draw itself anew on the way.
func (tab *Tab) keyboardTroubles() (troubles []string) {
	tab.t.Helper()
	for range 4 {
		if troubles = tab.walkByKeyboard(); len(troubles) == 0 {
			break
		}
	}
	return troubles
}

func (tab *Tab) walkByKeyboard() (troubles []string) {
	tab.t.Helper()
	n := Eval[int](tab, keyboardStops)
	// The body, and scrollable parts, are stops as well.
	tab.run("walking by keyboard", chromedp.KeyEvent(strings.Repeat(kb.Tab, n+8)))
	reached := make(map[int]bool)
	for _, stop := range Eval[[]struct {
		Index int    `json:"index"`
		Shown bool   `json:"shown"`
		HTML  string `json:"html"`
	}](tab, `browsertestWatch.abort(), browsertestStops`) {
		if !stop.Shown && !reached[stop.Index] {
			troubles = append(troubles, "nothing shows the focus of "+stop.HTML)
		}
		reached[stop.Index] = true
	}
	for i := range n {
		if !reached[i] {
			troubles = append(troubles, "the Tab key does not lead to "+Eval[string](tab, fmt.Sprintf(`browsertestControls[%d].outerHTML.slice(0, 160)`, i)))
		}
	}
	return troubles
}

// WantContrast checks that one can read text of a colour on another. Both are names of custom properties.
func (tab *Tab) WantContrast(pairs [][2]string, least float64) {
	tab.t.Helper()
	for _, pair := range pairs {
		ratio := contrast(tab.colour(pair[0]), tab.colour(pair[1]))
		if ratio < least {
			tab.t.Errorf("%s on %s has a contrast of %.2f, want %.1f", pair[0], pair[1], ratio, least)
		}
	}
}

// Properties are the custom properties of the page that are colours.
func (tab *Tab) Properties() []string {
	tab.t.Helper()
	return Eval[[]string](tab, `[...new Set([...document.styleSheets].flatMap(sheet => [...sheet.cssRules]).filter(rule => rule.selectorText === ':root')
		.flatMap(rule => [...rule.style]).filter(name => name.startsWith('--')
			&& CSS.supports('color', getComputedStyle(document.documentElement).getPropertyValue(name).trim())))]`)
}

// colour is the colour that a custom property stands for as the page is looked at now, from 0 to 1.
func (tab *Tab) colour(property string) (c [3]float64) {
	tab.t.Helper()
	channels := Eval[[]float64](tab, fmt.Sprintf(`(() => {
		const probe = document.createElement('i');
		probe.style.color = 'var(' + %s + ', transparent)';
		document.body.append(probe);
		const text = getComputedStyle(probe).color;
		probe.remove();
		const numbers = text.match(/[\d.]+/g).map(Number);
		return text.startsWith('rgb') ? numbers.map((n, i) => i < 3 ? n / 255 : n) : numbers;
	})()`, quoted(property)))
	if len(channels) != 3 {
		tab.t.Errorf("%s is no opaque colour: %v", property, channels)
		return c
	}
	return [3]float64(channels)
}

// contrast is the contrast ratio of WCAG 2.
func contrast(one, other [3]float64) float64 {
	light, dark := luminance(one), luminance(other)
	if light < dark {
		light, dark = dark, light
	}
	return (light + 0.05) / (dark + 0.05)
}

func luminance(c [3]float64) float64 {
	linear := func(v float64) float64 {
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c[0]) + 0.7152*linear(c[1]) + 0.0722*linear(c[2])
}
