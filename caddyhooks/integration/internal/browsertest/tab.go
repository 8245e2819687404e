package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Tab is a tab of the browser.
type Tab struct {
	t      testing.TB
	ctx    context.Context
	person cdp.BrowserContextID // to whom logins and cookies belong

	complaints *complaints
	requests   *requests
	look       *Look
	within     []thing // the parts of the page that are looked at
}

// thing is something on a page, as people who cannot see it are told of it.
type thing struct {
	role string
	name string // a regular expression for all of its name
}

func (th thing) String() string { return fmt.Sprintf("%s %q", th.role, th.name) }

// openTab opens a tab in the browser that has been started.
func openTab(t testing.TB, blank *target.CreateTargetParams) *Tab {
	t.Helper()
	browser, done := forBrowser()
	defer done()
	id, err := blank.Do(browser)
	if err != nil {
		t.Fatalf("opening a tab: %v", err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithTargetID(id))
	tab := &Tab{t: t, ctx: ctx, person: blank.BrowserContextID, complaints: &complaints{}, requests: &requests{}, look: &Look{}}
	tab.complaints.listen(ctx)
	tab.requests.listen(ctx)
	late := time.AfterFunc(patience, cancel) // a context with a deadline here would be that of the tab
	err = chromedp.Run(ctx, tab.complaints.watch()...)
	if !late.Stop() || err != nil {
		cancel()
		t.Fatalf("opening a tab within %v: %v", patience, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			tab.report()
		}
		cancel()
	})
	tab.Look(Light)
	return tab
}

// report tells what a tab looked like in the end.
func (tab *Tab) report() {
	ctx, cancel := context.WithTimeout(tab.ctx, 10*time.Second)
	defer cancel()
	var at, text string
	_ = chromedp.Run(ctx, chromedp.Evaluate(`location.href`, &at), chromedp.Evaluate(`document.body.innerText`, &text))
	tab.t.Logf("the tab is at %s, and the browser complained %q; the page says:\n%.4000s", at, tab.complaints.all(), text)
	tab.picture("failed-" + tab.t.Name())
}

// try does something in the browser.
func (tab *Tab) try(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// run is try for what must go well.
func (tab *Tab) run(what string, actions ...chromedp.Action) {
	tab.t.Helper()
	if err := tab.try(actions...); err != nil {
		tab.t.Fatalf("%s: %v", what, err)
	}
}

// call is a command of the browser's protocol, with only those parts of its answer that are needed: the list of words
// that chromedp expects is older than the browser.
func call(method string, params map[string]any, result any) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var raw rawJSON
		if err := cdp.Execute(ctx, method, params, &raw); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(raw, result)
	})
}

// rawJSON is an answer as it came.
type rawJSON []byte

func (r *rawJSON) UnmarshalJSON(data []byte) error {
	*r = append((*r)[:0], data...)
	return nil
}

// Open goes to an address and waits until the page is there.
func (tab *Tab) Open(url string) {
	tab.t.Helper()
	// A page of which only the fragment changes is not loaded again, and there is nothing to wait for.
	before, _, _ := strings.Cut(Eval[string](tab, `location.href`), "#")
	if wanted, fragment, ok := strings.Cut(url, "#"); ok && wanted == before {
		Eval[any](tab, fmt.Sprintf(`void (location.hash = %s)`, quoted("#"+fragment)))
		return
	}
	tab.run("opening "+url, chromedp.Navigate(url))
}

// Show brings a tab to the front of its window; others are hidden by that.
func (tab *Tab) Show() {
	tab.t.Helper()
	tab.run("showing the tab", chromedp.ActionFunc(func(ctx context.Context) error {
		c := chromedp.FromContext(ctx)
		return target.ActivateTarget(c.Target.TargetID).Do(cdp.WithExecutor(ctx, c.Browser))
	}))
}

// Eval is the value of an expression in the page, or of the promise that it is. Rules of the page against
// scripts do not hold for it.
func Eval[T any](tab *Tab, expression string) (value T) {
	tab.t.Helper()
	value, err := tryEval[T](tab, expression)
	if err != nil {
		tab.t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

func tryEval[T any](tab *Tab, expression string) (value T, err error) {
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err = tab.try(call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &answer))
	if err == nil && answer.Exception != nil {
		err = fmt.Errorf("%s %s", answer.Exception.Text, answer.Exception.Exception.Description)
	}
	if err == nil && len(answer.Result.Value) > 0 {
		err = json.Unmarshal(answer.Result.Value, &value)
	}
	return value, err
}

func quoted(text string) string {
	data, _ := json.Marshal(text) // a string always can be
	return string(data)
}

// Until waits until an expression is true in the page.
func (tab *Tab) Until(what, expression string) {
	tab.t.Helper()
	tab.until(what, func() error {
		ok, err := tryEval[bool](tab, expression)
		if err == nil && !ok {
			err = fmt.Errorf("%s is false", expression)
		}
		return err
	})
}

// until does something until it goes well. The page may be on its way to another one, or drawing itself anew.
func (tab *Tab) until(what string, do func() error) {
	tab.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || tab.ctx.Err() != nil {
			tab.t.Fatalf("did not happen within %v: %s: %v", patience, what, err)
		}
	}
}

// Text is what can be read on the page.
func (tab *Tab) Text() string {
	tab.t.Helper()
	return Eval[string](tab, `document.body.innerText`)
}

// WaitText waits until a text can be read on the page.
func (tab *Tab) WaitText(text string) {
	tab.t.Helper()
	tab.Until("the page says "+text, fmt.Sprintf(`document.body.innerText.includes(%s)`, quoted(text)))
}

// WaitNoText waits until a text is gone from the page.
func (tab *Tab) WaitNoText(text string) {
	tab.t.Helper()
	tab.Until("the page no longer says "+text, fmt.Sprintf(`!document.body.innerText.includes(%s)`, quoted(text)))
}

// For is the tab for a part of a test.
func (tab *Tab) For(t testing.TB) *Tab {
	same := *tab
	same.t = t
	return &same
}

// Within is the tab with eyes only for a part of the page.
func (tab *Tab) Within(role, name string) *Tab {
	part := *tab
	part.within = append(append([]thing(nil), tab.within...), thing{role, name})
	return &part
}

// axNode is something in the accessibility tree.
type axNode struct {
	Ignored bool    `json:"ignored"`
	Role    axValue `json:"role"`
	Name    axValue `json:"name"`
	Backend int64   `json:"backendDOMNodeId"`
}

type axValue struct {
	Value any `json:"value"`
}

func (v axValue) String() string {
	s, _ := v.Value.(string)
	return s
}

// find finds things of a role and a name.
func (tab *Tab) find(wanted thing) ([]axNode, error) {
	var document struct {
		Root struct {
			Backend int64 `json:"backendNodeId"`
		} `json:"root"`
	}
	if err := tab.try(call("DOM.getDocument", map[string]any{"depth": 0}, &document)); err != nil {
		return nil, err
	}
	from := document.Root.Backend
	var found []axNode
	for _, th := range append(append([]thing(nil), tab.within...), wanted) {
		name, err := regexp.Compile(`(?s)^(?:` + th.name + `)$`)
		if err != nil {
			tab.t.Fatal(err)
		}
		var tree struct {
			Nodes []axNode `json:"nodes"`
		}
		if err := tab.try(call("Accessibility.queryAXTree", map[string]any{"backendNodeId": from, "role": th.role}, &tree)); err != nil {
			return nil, err
		}
		found = found[:0]
		for _, node := range tree.Nodes {
			if !node.Ignored && node.Backend != 0 && node.Backend != from && name.MatchString(strings.TrimSpace(node.Name.String())) {
				found = append(found, node)
			}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("there is no %v", th)
		}
		from = found[0].Backend
	}
	return found, nil
}

// Has reports whether there is something of a role and a name on the page.
func (tab *Tab) Has(role, name string) bool {
	tab.t.Helper()
	_, err := tab.find(thing{role, name})
	return err == nil
}

// Wait waits until there is something of a role and a name on the page.
func (tab *Tab) Wait(role, name string) {
	tab.t.Helper()
	tab.until(fmt.Sprintf("there is the %s %q", role, name), func() error {
		_, err := tab.find(thing{role, name})
		return err
	})
}

// do calls a function of the page's language on the first thing of a role and a name.
func (tab *Tab) do(wanted thing, function string, result any, args ...any) error {
	found, err := tab.find(wanted)
	if err != nil {
		return err
	}
	var resolved struct {
		Object struct {
			ID string `json:"objectId"`
		} `json:"object"`
	}
	if err := tab.try(call("DOM.resolveNode", map[string]any{"backendNodeId": found[0].Backend}, &resolved)); err != nil {
		return err
	}
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	arguments := make([]map[string]any, len(args))
	for i, arg := range args {
		arguments[i] = map[string]any{"value": arg}
	}
	err = tab.try(call("Runtime.callFunctionOn", map[string]any{"objectId": resolved.Object.ID, "functionDeclaration": function,
		"arguments": arguments, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &answer))
	if err == nil && answer.Exception != nil {
		err = fmt.Errorf("%v: %s", wanted, answer.Exception.Exception.Description)
	}
	if err == nil && result != nil && len(answer.Result.Value) > 0 {
		err = json.Unmarshal(answer.Result.Value, result)
	}
	return err
}

// spot says where to click something, and whether a click there would reach it.
const spot = `function () {
	let at = this;
	if (!at.getClientRects().length || at.getBoundingClientRect().width < 2) at = this.labels?.[0] ?? this; // drawn by its label
	at.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});
	const box = at.getClientRects()[0];
	if (!box) return {why: 'is not drawn'};
	if (this.disabled || this.getAttribute('aria-disabled') === 'true') return {why: 'is disabled'};
	const x = box.x + box.width / 2, y = box.y + box.height / 2;
	const hit = document.elementFromPoint(x, y);
	const reached = hit && (at.contains(hit) || this.contains(hit) || hit.closest('label')?.control === this);
	globalThis.browsertestClicked = false;
	const isIt = target => { // or what the page has drawn in its place since
		const now = !this.isConnected && target.closest(this.tagName);
		return at.contains(target) || this.contains(target) ||
			now && now.textContent === this.textContent && now.getAttribute('href') === this.getAttribute('href');
	};
	document.addEventListener('click', e => { globalThis.browsertestClicked = Boolean(isIt(e.target)); }, {capture: true, once: true});
	return {x, y, why: reached ? '' : 'is covered by ' + (hit ? hit.outerHTML.slice(0, 200) : 'nothing')};
}`

// Click clicks what has a role and a name, which is a regular expression for all of it, as soon as it is there and a click
// can reach it.
func (tab *Tab) Click(role, name string) {
	tab.t.Helper()
	th := thing{role, name}
	tried := false
	tab.until(fmt.Sprintf("the %v is clicked", th), func() error {
		var at struct {
			X, Y float64
			Why  string
		}
		if err := tab.do(th, spot, &at); err != nil {
			// On a busy machine a click may take effect after it was given up, and take the thing away.
			clicked := false
			if tried && tab.try(chromedp.Evaluate(`globalThis.browsertestClicked === true`, &clicked)) == nil && clicked {
				return nil
			}
			return err
		}
		if at.Why != "" {
			return fmt.Errorf("it %s", at.Why)
		}
		tried = true
		if err := tab.try(chromedp.MouseClickXY(at.X, at.Y)); err != nil {
			return err
		}
		// What is above it may have grown just now. In another document there is nothing to be asked any more.
		missed := false
		if err := tab.try(chromedp.Evaluate(`globalThis.browsertestClicked === false`, &missed)); err == nil && missed {
			return errors.New("the click went elsewhere")
		}
		return nil
	})
}

// Drag presses the mouse at a point of the window, moves it to another one, and lets it go there. If the points are the same, that is a click.
func (tab *Tab) Drag(fromX, fromY, toX, toY float64) {
	tab.t.Helper()
	mouse := func(kind input.MouseType, x, y float64) chromedp.Action {
		return input.DispatchMouseEvent(kind, x, y).WithButton(input.Left).WithButtons(1).WithClickCount(1)
	}
	tab.run("dragging", mouse(input.MousePressed, fromX, fromY), mouse(input.MouseMoved, (fromX+toX)/2, (fromY+toY)/2),
		mouse(input.MouseMoved, toX, toY), mouse(input.MouseReleased, toX, toY))
}

// Fill types a text in place of what is in a field.
func (tab *Tab) Fill(label, text string) {
	tab.t.Helper()
	tab.until(fmt.Sprintf("the field %q is filled", label), func() error {
		var err error
		for _, role := range []string{"textbox", "searchbox", "spinbutton", "combobox"} {
			if err = tab.do(thing{role, label}, `function () {
				if (this.disabled || this.readOnly) throw new Error('it cannot be changed');
				this.scrollIntoView({block: 'center', behavior: 'instant'});
				this.focus();
				this.select();
				if (document.activeElement !== this) throw new Error('it cannot be focused');
			}`, nil); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		if text == "" {
			return tab.try(chromedp.KeyEvent(kb.Delete))
		}
		if err := tab.try(input.InsertText(text)); err != nil {
			return err
		}
		// The page may have set the field after all of it was selected: then the text stands beside what the page has set.
		quoted, err := json.Marshal(text)
		if err != nil {
			return err
		}
		var beside bool
		look := fmt.Sprintf(`((value, text) => value !== text && value.includes(text))(document.activeElement?.value ?? '', %s)`, quoted)
		if err := tab.try(chromedp.Evaluate(look, &beside)); err != nil || !beside {
			return err
		}
		return errors.New("the page has filled it meanwhile")
	})
}

// Choose takes one of the options of a select.
func (tab *Tab) Choose(label, option string) {
	tab.t.Helper()
	tab.until(fmt.Sprintf("%q is chosen in %q", option, label), func() error {
		return tab.do(thing{"combobox", label}, `function (wanted) {
			const option = [...this.options].find(o => o.label.trim() === wanted || o.value === wanted);
			if (!option || option.disabled || this.disabled) throw new Error('it has ' + [...this.options].map(o => o.label));
			this.focus();
			this.value = option.value;
			this.dispatchEvent(new Event('input', {bubbles: true}));
			this.dispatchEvent(new Event('change', {bubbles: true}));
		}`, nil, option)
	})
}

// Value is what is in a field.
func (tab *Tab) Value(label string) (value string) {
	tab.t.Helper()
	tab.until("the value of "+label+" is read", func() error {
		var err error
		for _, role := range []string{"textbox", "searchbox", "spinbutton", "combobox"} {
			if err = tab.do(thing{role, label}, `function () { return this.value }`, &value); err == nil {
				break
			}
		}
		return err
	})
	return value
}

// namedKeys are the keys that print nothing.
var namedKeys = map[string]string{
	"Enter": kb.Enter, "Tab": kb.Tab, "Escape": kb.Escape, "Space": " ", "Backspace": kb.Backspace,
	"Up": kb.ArrowUp, "Down": kb.ArrowDown, "Left": kb.ArrowLeft, "Right": kb.ArrowRight,
}

// Press presses keys, one after the other.
func (tab *Tab) Press(keys ...string) {
	tab.t.Helper()
	for _, key := range keys {
		if named, ok := namedKeys[key]; ok {
			key = named
		}
		tab.run("pressing "+key, chromedp.KeyEvent(key))
	}
}

// Picture keeps a picture of the whole page in the directory that PAGE_PICTURES names, if it is set.
func (tab *Tab) Picture(name string) {
	tab.t.Helper()
	if err := tab.picture(name); err != nil {
		tab.t.Errorf("taking a picture of %s: %v", name, err)
	}
}

func (tab *Tab) picture(name string) error {
	dir := os.Getenv("PAGE_PICTURES")
	if dir == "" {
		return nil
	}
	height, err := tryEval[int64](tab, `document.documentElement.scrollHeight`)
	if err != nil {
		return err
	}
	// In a window as high as the page, what sticks to an edge of the window is where it belongs. Text is sharp with more dots.
	as := *tab.look
	var picture []byte
	err = tab.try(
		emulation.SetDeviceMetricsOverride(as.Width, max(as.Height, height), 1.5, false),
		chromedp.ActionFunc(func(ctx context.Context) error {
			var err error
			picture, err = page.CaptureScreenshot().Do(ctx)
			return err
		}),
		emulation.SetDeviceMetricsOverride(as.Width, as.Height, 1, false))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-", ":", "").Replace(name)+".png"), picture, 0o600)
}
