package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// startDashboardOfRuns starts a dashboard with some runs that completed, and one that failed.
func startDashboardOfRuns(t *testing.T) *dashboard {
	t.Helper()
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if strings.Contains(turn.Text("message"), "fail") {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, "done")
	})
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	for _, message := range []string{"the first", "fail this", "the last"} {
		d.Ended(d.Accept(hookstest.AsJSON(t, map[string]any{"message": message})))
	}
	return d
}

// fragment is where the page is.
func fragment(t *testing.T, tab *browsertest.Tab) url.Values {
	t.Helper()
	_, query, _ := strings.Cut(browsertest.Eval[string](tab, `location.hash`), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// moment reads a time of the page's address.
func moment(t *testing.T, tab *browsertest.Tab, name string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, fragment(t, tab).Get(name))
	if err != nil {
		t.Fatalf("%s of the address: %v", name, err)
	}
	return at
}

func TestRunsOfAPeriodAreChosen(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboardOfRuns(t)
	d.look(tab, "#/runs")
	tab.WaitText("the first")

	// By keyboard: the choice opens, closes and gives the focus back.
	browsertest.Eval[any](tab, `void document.querySelector('.picker summary').focus()`)
	tab.Press("Enter")
	tab.Until("the choice is open", `document.querySelector('.picker').open`)
	for _, look := range []browsertest.Look{browsertest.Light, browsertest.Dark, browsertest.Narrow} {
		tab.Look(look)
		tab.Picture("picker-" + look.Name)
		tab.WantAccessible()
		tab.WantNames()
		tab.WantFits()
	}
	tab.Look(browsertest.Light)
	tab.Press("Escape")
	tab.Until("the choice is closed, and its button has the focus", `!document.querySelector('.picker').open && document.activeElement.matches('.picker summary')`)

	choose := func(name string) {
		t.Helper()
		browsertest.Eval[any](tab, `void (document.querySelector('.picker').open || document.querySelector('.picker summary').click())`)
		tab.Click("button", name)
	}
	choose("Last 15 minutes")
	tab.WaitText("the last")
	if got := fragment(t, tab).Get("since"); got != "15m" {
		t.Errorf("since is %q", got)
	}
	choose("Yesterday")
	tab.WaitText("No run matches.")
	if since, until := moment(t, tab, "since"), moment(t, tab, "until"); until.Sub(since) < 23*time.Hour || until.Sub(since) > 25*time.Hour || until.After(time.Now()) {
		t.Errorf("yesterday is from %v to %v", since, until)
	}
	choose("Today")
	tab.WaitText("the last")

	// Two fields, and a mistake in them.
	fields := func(from, to time.Time) {
		t.Helper()
		browsertest.Eval[any](tab, fmt.Sprintf(`(() => {
			const picker = document.querySelector('.picker');
			picker.open || picker.querySelector('summary').click();
			const local = ms => new Date(ms - new Date(ms).getTimezoneOffset() * 6e4).toISOString().slice(0, 16);
			setTimeout(() => {
				const [from, to] = picker.querySelectorAll('input');
				[from.value, to.value] = [local(%d), local(%d)];
				picker.querySelector('.primary').click();
			}, 50);
		})()`, from.UnixMilli(), to.UnixMilli()))
	}
	now := time.Now().Truncate(time.Minute)
	fields(now, now.Add(-time.Hour))
	tab.WaitText("To must be after From.")
	fields(now.Add(-time.Hour), now.Add(time.Hour))
	tab.Until("the address has both times", `/since=.*until=/.test(location.hash)`)
	tab.WaitText("the last")
	if since, until := moment(t, tab, "since"), moment(t, tab, "until"); !since.Equal(now.Add(-time.Hour)) || !until.Equal(now.Add(time.Hour)) {
		t.Errorf("the times are %v and %v, want an hour around %v", since, until, now)
	}

	// A link is the whole filter.
	tab.Click("button", "Failed.*")
	tab.WaitNoText("the last")
	tab.Choose("Order", "Longest first")
	tab.Fill("Chat", "no-such-chat")
	tab.Press("Tab")
	tab.WaitText("No run matches.")
	link, other := browsertest.Eval[string](tab, `location.hash`), tab.Stranger()
	d.look(other, link)
	other.WaitText("No run matches.")
	if got := fragment(t, other); got.Get("status") != "failed" || got.Get("chatId") != "no-such-chat" || got.Get("since") == "" || got.Get("until") == "" || got.Get("sort") != "took" {
		t.Errorf("the link is %s", link)
	}
	name := `document.querySelector('.picker summary').innerText`
	if mine, theirs := browsertest.Eval[string](tab, name), browsertest.Eval[string](other, name); mine != theirs || !strings.Contains(mine, "–") {
		t.Errorf("the period is called %q and %q", mine, theirs)
	}
	tab.WantNoComplaint()
}

// Rows are put in the order of their durations, and stay so when others come.
func TestRunsAreOrderedByDuration(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn, _, release := hookstest.HeldRunner(t)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	long, since := d.Accept(`{"message":"hold it"}`), time.Now()
	for range 3 {
		d.Ended(d.Accept(`{"message":"a short one"}`))
	}
	hookstest.Eventually(t, "it takes longer than a short one on a busy machine", func() bool { return time.Since(since) > 2*time.Second })
	close(release)
	d.Ended(long)
	d.look(tab, "#/runs?sort=took")
	first := func(what, id string) {
		t.Helper()
		tab.Until(what, `document.querySelectorAll('tr[data-row]').length >= 4 && document.querySelector('tr[data-row]').dataset.row === "`+id+`"`)
	}
	first("the longest is the first", long)
	tab.WaitText("the longest of these first")
	d.Ended(d.Accept(`{"message":"a newer one"}`))
	tab.WaitText("a newer one")
	first("the longest is still the first", long)
	tab.Choose("Order", "Shortest first")
	tab.Until("the longest is the last", `[...document.querySelectorAll('tr[data-row]')].at(-1).dataset.row === "`+long+`"`)
	tab.Choose("Order", "Newest first")
	tab.Until("the newest is the first", `document.querySelector('tr[data-row]').innerText.includes('a newer one')`)
	tab.WaitText("newest first")
	tab.WantNoComplaint()
}

// Dragging over a plot leads to the runs of that time, and a click on failures to those that failed.
func TestPlotsLeadToRuns(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboardOfRuns(t)
	overview := func() {
		t.Helper()
		d.look(tab, "#/overview")
		tab.Until("failures are drawn", `(document.querySelector('.plot .bar.bad')?.getAttribute('d') ?? '') !== ''`)
	}
	overview()
	drag := func(plot int, from, to float64) {
		t.Helper()
		box := browsertest.Eval[[]float64](tab, fmt.Sprintf(`(() => { const e = document.querySelectorAll('.plot')[%d]; e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); return [b.left + 50, b.width - 60, b.top + 60]; })()`, plot))
		tab.Drag(box[0]+from*box[1], box[2], box[0]+to*box[1], box[2])
		tab.Wait("heading", "Runs")
	}
	for plot := range 4 {
		overview()
		drag(plot, 0.8, 1.05)
		tab.WaitText("the last")
		if since, until := moment(t, tab, "since"), moment(t, tab, "until"); until.Sub(since) < 5*time.Minute || until.Sub(since) > 20*time.Minute || until.Before(time.Now().Add(-2*time.Minute)) {
			t.Errorf("plot %d: dragging over a fifth of an hour is from %v to %v", plot, since, until)
		}
	}
	overview()
	drag(0, 0.4, 0.1) // to the left
	tab.WaitText("No run matches.")
	if since, until := moment(t, tab, "since"), moment(t, tab, "until"); !since.Before(until) {
		t.Errorf("from %v to %v", since, until)
	}

	overview()
	hookstest.Eventually(t, "a click on failures leads to runs", func() bool { // bars may move before they are clicked
		at := browsertest.Eval[[]float64](tab, `(() => {
			const bar = document.querySelector('.plot .bar.bad'), box = bar?.ownerSVGElement.getBoundingClientRect();
			if (!bar) return [];
			const [, x, from, to, wide] = /^M([\d.]+) ([\d.]+)V([\d.]+)h([\d.]+)/.exec(bar.getAttribute('d')).map(Number);
			return [box.left + x + wide / 2, box.top + (from + to) / 2];
		})()`)
		if len(at) > 0 {
			tab.Drag(at[0], at[1], at[0], at[1])
		}
		return tab.Has("heading", "Runs")
	})
	tab.WaitText("fail this")
	tab.WaitNoText("the last")
	if got := fragment(t, tab).Get("status"); got != "failed" {
		t.Errorf("status is %q", got)
	}

	// By keyboard, the table of a plot has the same as links.
	overview()
	browsertest.Eval[any](tab, `void [...document.querySelectorAll('button')].find(e => e.innerText === 'Show as table').click()`)
	tab.Until("the failures are a link", `!!document.querySelector('.plot-table a[href*="status=failed"]')`)
	tab.WantAccessible()
	browsertest.Eval[any](tab, `void document.querySelector('.plot-table a[href*="status=failed"]').click()`)
	tab.WaitText("fail this")
	overview()
	browsertest.Eval[any](tab, `void [...document.querySelectorAll('button')].find(e => e.innerText === 'Show as table').click()`)
	tab.Until("the minutes are links", `document.querySelectorAll('.plot-table td:first-child a').length === 60`)
	tab.WantNoComplaint()
}

// A queue that has come and gone is in its plot.
func TestThePlotOfTheQueueHasItsPeak(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn, _, release := hookstest.HeldRunner(t)
	d := startDashboard(t, hookstest.Hooks(rn, "workers 1"), openHouse)
	d.Accept(`{"message":"hold on"}`)
	rn.Next()
	var last string
	for range 40 {
		last = d.Accept(`{"message":"wait"}`)
	}
	d.look(tab, "#/overview")
	tab.Until("the plot has the queue", `[...document.querySelectorAll('.plot')].some(e => e.ariaLabel.includes('at most 40 at'))`)
	close(release)
	d.Ended(last)
	d.look(tab, "#/runs")
	tab.Wait("heading", "Runs")
	d.look(tab, "#/overview")
	tab.Until("the plot has the peak of the queue", `[...document.querySelectorAll('.plot')].some(e => e.ariaLabel.includes('0 most recently, at most 40 at') || e.ariaLabel.includes('at most 40 at'))`)
	tab.WaitText("99\u00a0%\u00a0within")
	tab.WantNoComplaint()
}
