// Package browsertest drives pages in Debian's chromium, the way a person does: it clicks what has a role and a name, fills what
// has a label, presses keys and reads text. A tab keeps all that the browser complains of meanwhile. A program that no test
// of a page needs does not get to know it: only tests import it.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// patience is how long a tab waits for what should come at once. A browser on a busy machine takes its time.
const patience = time.Minute

// atOnce is how many tests have a tab at the same time: each of them keeps a processor busy.
const atOnce = 2

var slots = make(chan struct{}, atOnce)

// chromium is the browser that all tests of a package share.
var chromium struct {
	once  sync.Once
	ctx   context.Context
	dir   string // its profile
	close func()
	err   error
}

// start starts the browser, once for all tests of a package.
func start() error {
	c := &chromium
	c.once.Do(func() {
		path, err := exec.LookPath("chromium")
		if err != nil {
			c.err = errors.New("needs chromium, which is in Debian's package of that name")
			return
		}
		if c.dir, c.err = os.MkdirTemp("", "caddyhooks-browser-"); c.err != nil {
			return
		}
		ctx, stop := chromedp.NewExecAllocator(context.Background(), append(flags(c.dir), chromedp.ExecPath(path))...)
		// chromedp's list of what a browser may say is older than the browser; what it does not know is left out.
		ctx, cancel := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
		c.ctx = ctx
		c.close = func() {
			cancel()
			stop()
		}
		if err := chromedp.Run(ctx); err != nil {
			c.err = fmt.Errorf("starting %s: %w", path, err)
		}
	})
	return c.err
}

// flags are those of a browser that has nothing to do with the world beyond this machine. Names below .test are this machine
// too, so that pages of other sites can be tried.
func flags(profile string) []chromedp.ExecAllocatorOption {
	options := []chromedp.ExecAllocatorOption{
		chromedp.UserDataDir(profile),
		chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck,
		chromedp.WSURLReadTimeout(patience),
		chromedp.Env("XDG_CONFIG_HOME="+filepath.Join(profile, "config"), "XDG_CACHE_HOME="+filepath.Join(profile, "cache")),
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	}
	for _, name := range []string{
		"headless", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars", "mute-audio", "metrics-recording-only",
		"disable-background-networking", "disable-component-update", "disable-domain-reliability", "disable-sync", "disable-extensions",
		"disable-default-apps", "disable-breakpad", "disable-client-side-phishing-detection", "safebrowsing-disable-auto-update",
		"disable-hang-monitor", "disable-prompt-on-repost", "disable-popup-blocking", "enable-automation", "no-pings",
	} {
		options = append(options, chromedp.Flag(name, true))
	}
	options = append(options,
		chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable"),
		chromedp.Flag("password-store", "basic"), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("lang", "en-GB"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // chromium refuses to have one for root
	}
	return options
}

// Close ends the browser, if any test has started it. It belongs after the tests of a package.
func Close() {
	if chromium.close != nil {
		chromium.close()
	}
	if chromium.dir != "" {
		_ = os.RemoveAll(chromium.dir)
	}
}

// Look is how a page is looked at.
type Look struct {
	Name          string // of its pictures
	Dark          bool
	Width, Height int64
}

// How people look at pages.
var (
	Light  = Look{Name: "light", Width: 1280, Height: 900}
	Dark   = Look{Name: "dark", Dark: true, Width: 1280, Height: 900}
	Narrow = Look{Name: "360", Width: 360, Height: 800}
)

// Look has the page looked at in another way. Motion is always reduced.
func (tab *Tab) Look(as Look) {
	tab.t.Helper()
	*tab.look = as
	scheme := "light"
	if as.Dark {
		scheme = "dark"
	}
	tab.run("looking at the page in another way",
		emulation.SetDeviceMetricsOverride(as.Width, as.Height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"},
		}))
}

// NewTab opens a tab that shares no cookie, login or cache with others. The test is skipped with -short, and where
// tests need Go alone.
func NewTab(t testing.TB) *Tab {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser is driven")
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
	return openWindow(t)
}

// Stranger opens a tab of somebody else.
func (tab *Tab) Stranger() *Tab {
	tab.t.Helper()
	return openWindow(tab.t)
}

// forBrowser is for commands to the browser itself. They are not waited for longer than for those to a tab.
func forBrowser() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(chromium.ctx, patience)
	return cdp.WithExecutor(ctx, chromedp.FromContext(chromium.ctx).Browser), cancel
}

// openWindow opens a window for somebody who was never here.
func openWindow(t testing.TB) *Tab {
	t.Helper()
	ctx, cancel := forBrowser()
	defer cancel()
	person, err := target.CreateBrowserContext().Do(ctx)
	if err != nil {
		t.Fatalf("opening a window: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := forBrowser()
		defer cancel()
		_ = target.DisposeBrowserContext(person).Do(ctx)
	})
	return openTab(t, target.CreateTarget("about:blank").WithBrowserContextID(person).WithNewWindow(true))
}

// Beside opens another tab of the same person, in the same window.
func (tab *Tab) Beside() *Tab {
	tab.t.Helper()
	return openTab(tab.t, target.CreateTarget("about:blank").WithBrowserContextID(tab.person))
}
