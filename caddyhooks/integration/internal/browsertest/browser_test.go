package browsertest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Close()
	os.Exit(code)
}

// policy is as strict as that of the pages that are to be tried.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// serve serves a page with the given body and script.
func serve(t *testing.T, body, script string) (url string) {
	t.Helper()
	files := map[string][2]string{
		"/": {"text/html", `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title><meta name="viewport" content="width=device-width">
			<link rel="stylesheet" href="page.css"><link rel="icon" href="icon.svg"><script type="module" src="page.js"></script></head><body><main><h1>A page</h1>` + body + `</main></body></html>`},
		"/page.js": {"text/javascript", script},
		"/page.css": {"text/css", `:root { color-scheme: light dark; --text: light-dark(#111, #eee); --page: light-dark(#fff, #111); --pale: light-dark(#bbb, #999) }
			body { color: var(--text); background: var(--page) } .wide { width: 400px } .ringless:focus { outline: none }`},
		"/icon.svg": {"image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"/>`},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", file[0])
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = io.WriteString(w, file[1])
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/"
}

func TestTabActsAsAPersonDoes(t *testing.T) {
	t.Parallel()
	tab := NewTab(t)
	tab.Open(serve(t, `
		<p><label>Name <input id="name" value="old"></label> <label>Kind <select id="kind"><option>one</option><option>two</option></select></label></p>
		<p><label><input type="checkbox" id="sure"> Sure</label></p>
		<ul><li aria-label="first"><button>Go</button></li><li aria-label="second"><button>Go</button></li></ul>
		<output id="out"></output>`, `
		const out = document.getElementById('out'), value = id => document.getElementById(id).value;
		for (const button of document.querySelectorAll('button')) button.addEventListener('click', () => {
			out.textContent = [button.parentElement.getAttribute('aria-label'), value('name'), value('kind'), document.getElementById('sure').checked].join(' ');
		});
		document.addEventListener('keydown', e => { if (e.target === document.body) out.textContent += e.key; });`))
	tab.Fill("Name", "new <b>")
	tab.Choose("Kind", "two")
	tab.Click("checkbox", "Sure")
	tab.Within("listitem", "second").Click("button", "G.")
	tab.WaitText("second new <b> two true")
	Eval[any](tab, `document.activeElement.blur()`)
	tab.Press("g", "Escape")
	tab.WaitText("two truegEscape")
	tab.WaitNoText("first")
	if got := tab.Value("Name"); got != "new <b>" {
		t.Errorf("the field has %q", got)
	}
	if tab.Has("button", "Stop") || !tab.Has("button", "Go") {
		t.Error("Has does not know what is there")
	}
	tab.WantNoComplaint()
	tab.WantFits()
	tab.WantNames()
	tab.WantKeyboard()
	tab.WantAccessible()
	tab.WantContrast([][2]string{{"--text", "--page"}}, 4.5)
	tab.Look(Dark)
	tab.WantContrast([][2]string{{"--text", "--page"}, {"--pale", "--page"}}, 4.5)
	tab.WantAccessible()
	tab.WantNoComplaint() // of the checks themselves
}

func TestTabKeepsEveryComplaint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, script, want string }{
		"console":       {"", `console.warn('careful', 7)`, "console warning: careful 7"},
		"exception":     {"", `throw new Error('broken')`, "exception: "},
		"inline style":  {`<p style="color: red">red</p>`, "", "policy: style-src-attr forbids inline"},
		"inline script": {`<img alt="" src="x.png" onerror="alert(1)">`, "", "policy: script-src-attr forbids inline"},
		"markup":        {"", `document.body.innerHTML = '<b>x</b>'`, "policy: require-trusted-types-for forbids trusted-types-sink"},
		"elsewhere":     {"", `fetch('http://other.test/').catch(() => {})`, "policy: connect-src forbids http://other.test/"},
		"not found":     {"", `fetch('missing').catch(() => {})`, "answer 404: http://127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := NewTab(t)
			tab.Open(serve(t, c.body, c.script))
			tab.until("there is a complaint", func() error {
				if all := tab.Complaints(); !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, c.want) }) {
					return fmt.Errorf("it complained %q", all)
				}
				return nil
			})
			tab.Forgive(".")
			tab.WantNoComplaint()
		})
	}
}

func TestChecksFindMistakes(t *testing.T) {
	t.Parallel()
	tab := NewTab(t)
	tab.Open(serve(t, `<button class="ringless"></button><a href="#" tabindex="-1">no stop</a><p class="wide">wide</p><input>`, ""))
	tab.Look(Narrow)
	if got := tab.overflow(); len(got) == 0 {
		t.Error("a part of 400 px fits in 360")
	}
	if got := tab.nameless(); len(got) != 2 {
		t.Errorf("controls without a name are %q", got)
	}
	if got := tab.keyboardTroubles(); len(got) != 1 || !strings.Contains(got[0], "focus") {
		t.Errorf("by keyboard the troubles are %q", got)
	}
	found, err := tab.axeFindings()
	if err != nil || !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, "button-name: ") }) {
		t.Errorf("axe-core finds %q, %v", found, err)
	}
	if got := tab.Properties(); !slices.Equal(got, []string{"--text", "--page", "--pale"}) {
		t.Errorf("the colours are %q", got)
	}
	if got := contrast(tab.colour("--pale"), tab.colour("--page")); got < 1.5 || got > 2.5 {
		t.Errorf("the contrast is %v", got)
	}
}

func TestHiddenTabKnowsThatItIs(t *testing.T) {
	t.Parallel()
	tab := NewTab(t)
	tab.Open(serve(t, "", ""))
	tab.Until("the tab is seen", `document.visibilityState === 'visible'`)
	other := tab.Beside()
	other.Show()
	tab.Until("the tab is hidden", `document.visibilityState === 'hidden'`)
	tab.Show()
	tab.Until("the tab is seen again", `document.visibilityState === 'visible'`)
}

func TestPictureIsKeptWhereItIsAskedFor(t *testing.T) {
	t.Setenv("PAGE_PICTURES", t.TempDir())
	tab := NewTab(t)
	tab.Open(serve(t, "", ""))
	tab.Picture("a page, light")
	if data, err := os.ReadFile(filepath.Join(os.Getenv("PAGE_PICTURES"), "a-page,-light.png")); err != nil || !strings.HasPrefix(string(data), "\x89PNG") {
		t.Errorf("the picture is %.10q, %v", data, err)
	}
}

func TestTabKnowsItsStreams(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><title>A page</title>`)
	}))
	t.Cleanup(s.Close)
	tab := NewTab(t)
	tab.Open(s.URL)
	waiting := func(want int) {
		t.Helper()
		tab.until("streams are counted", func() error {
			if got := tab.Waiting("/stream"); got != want {
				return fmt.Errorf("there are %d, want %d", got, want)
			}
			return nil
		})
	}
	Eval[any](tab, `void (globalThis.held = new AbortController(), fetch('stream', {signal: held.signal}).catch(() => {}))`)
	waiting(1)
	Eval[any](tab, `held.abort()`)
	waiting(0)
	tab.WantNoComplaint()
}
