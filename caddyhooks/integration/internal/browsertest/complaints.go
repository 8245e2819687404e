package browsertest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// complaints are all that a browser has to say about a page: messages on the console, exceptions, what its security policy
// forbids, and requests that fail.
type complaints struct {
	mu   sync.Mutex
	list []string
}

// reportViolation is the function that pages tell of what their policy forbids.
const reportViolation = "browsertestViolation"

func (c *complaints) watch() []chromedp.Action {
	return []chromedp.Action{
		network.Enable(), // chromedp has the others enabled already
		runtime.AddBinding(reportViolation),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(`document.addEventListener('securitypolicyviolation', e => ` + reportViolation +
				`(e.effectiveDirective + ' forbids ' + (e.blockedURI || 'something') + ' ' + e.sample + ' in ' + e.sourceFile + ':' + e.lineNumber));`).Do(ctx)
			return err
		}),
	}
}

func (c *complaints) listen(ctx context.Context) {
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			var words []string
			for _, arg := range e.Args {
				if len(arg.Value) > 0 {
					words = append(words, strings.Trim(string(arg.Value), `"`))
				} else {
					words = append(words, arg.Description)
				}
			}
			c.add("console %s: %s", e.Type, strings.Join(words, " "))
		case *runtime.EventExceptionThrown:
			c.add("exception: %s", e.ExceptionDetails.Error())
		case *runtime.EventBindingCalled:
			if e.Name == reportViolation {
				c.add("policy: %s", e.Payload)
			}
		case *log.EventEntryAdded:
			c.add("log %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		case *network.EventResponseReceived:
			if e.Response.Status >= 400 {
				c.add("answer %d: %s", e.Response.Status, e.Response.URL)
			}
		case *network.EventLoadingFailed:
			if !e.Canceled { // pages let go of streams when they are left
				c.add("request: %s %s %s", e.Type, e.ErrorText, e.BlockedReason)
			}
		}
	})
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

func (c *complaints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// Complaints are all that the browser has complained of in this tab.
func (tab *Tab) Complaints() []string { return tab.complaints.all() }

// Forgive takes out complaints that a test has caused: those in which a regular expression finds something.
func (tab *Tab) Forgive(expected string) {
	c := tab.complaints
	pattern := regexp.MustCompile(expected)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, pattern.MatchString)
}

// WantNoComplaint checks that the browser has nothing to complain of.
func (tab *Tab) WantNoComplaint() {
	tab.t.Helper()
	for _, complaint := range tab.complaints.all() {
		tab.t.Errorf("the browser complained: %s", complaint)
	}
}
