package integration

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// A page that is open shows what happens, whatever happens to Caddy.
func TestOpenPageStaysLive(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.look(tab, "#/runs")
	tab.Wait("heading", "Runs")
	// Nothing but the stream tells the page of a run. A page that was loaded anew would have forgotten this.
	browsertest.Eval[any](tab, `void (globalThis.untouched = true)`)
	live := func(message string) {
		t.Helper()
		hookstest.Eventually(t, "the page holds a stream", func() bool { return tab.Waiting("/api/events") == 1 })
		d.Ended(d.Accept(hookstest.AsJSON(t, map[string]any{"message": message})))
		tab.WaitText(message)
		tab.Until("the page is the same", `globalThis.untouched === true`)
	}
	live("before all")
	tab.WantNoComplaint()
	d.Reload(d.directives() + "\nheader X-Version 2")
	live("after a reload")
	d.Restart(d.directives())
	live("after a restart")
	d.Stop()
	d.Load(d.directives())
	d.Settle()
	live("after it was unreachable")
	// What a browser says of a server that is unreachable.
	tab.Forgive("ERR_|Failed to load resource|request: ")
	tab.WantNoComplaint()
}

// What happens while the list is under way may not be in it.
func TestRunThatCameWhileThePageWasFetchedIsShown(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.look(tab, "#/settings")
	// The first list is held back until the page has heard of a run that it has not.
	browsertest.Eval[any](tab, `void (() => {
		const plain = globalThis.fetch;
		let heard, lists = 0;
		const isHeard = new Promise(resolve => { heard = resolve; });
		globalThis.fetch = async (...asked) => {
			const answer = await plain(...asked), path = new URL(asked[0]).pathname;
			if (path.endsWith("/api/runs") && !lists++) {
				globalThis.isHeldBack = true;
				await isHeard;
			}
			if (!path.endsWith("/api/events")) return answer;
			return new Response(answer.body.pipeThrough(new TransformStream({ transform(bytes, out) {
				out.enqueue(bytes);
				if (new TextDecoder().decode(bytes).includes("meanwhile")) setTimeout(heard, 100);
			} })), answer);
		};
	})()`)
	browsertest.Eval[any](tab, `void (location.hash = "#/runs")`)
	tab.Until("the list is under way", `globalThis.isHeldBack === true`)
	hookstest.Eventually(t, "the page holds a stream", func() bool { return tab.Waiting("/api/events") == 1 })
	d.Ended(d.Accept(`{"message":"meanwhile"}`))
	tab.WaitText("meanwhile")
	tab.WantNoComplaint()
}

// A server that cannot reach its database can answer, and knows nothing. A page that said "Live" would be wrong.
func TestPageSaysThatTheStoreIsUnreachable(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, "store postgres \""+database.TCP("postgres", pgtest.Password, "postgres")+"\""), openHouse)
	says := func(word string) {
		t.Helper()
		tab.Until("the page says "+word, `document.querySelector('.state .live').innerText.includes('`+word+`')`)
	}
	d.look(tab, "#/runs")
	says("Live")
	d.Ended(d.Accept(`{"message":"before"}`))
	tab.WaitText("before")
	database.Stop("immediate")
	says("Store unreachable")
	tab.WaitText("before") // is still shown
	other := tab.Beside()
	d.look(other, "#/overview")
	other.Until("a page that is opened meanwhile says so", `document.querySelector('.state .live').innerText.includes('Store unreachable')`)
	other.WantAccessible()
	tab.Show()
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	says("Live")
	d.Ended(d.Accept(`{"message":"after"}`))
	tab.WaitText("after")
	if why := browsertest.Eval[int](tab, `document.querySelectorAll('.state .why').length`); why != 0 {
		t.Error("the page still says why")
	}
	database.Exec(t, "postgres", `INSERT INTO hooks_default.node (name, host, alive_until, seen_at) VALUES ('other', 'web-2', now(), now() - interval '1 minute')`)
	d.look(tab, "#/overview")
	tab.WaitText("The node on web-2 was last seen")
	tab.Until("the nodes are listed", `/web-2\s+silent/.test(document.querySelector('[data-row=other]').innerText) && document.querySelectorAll('[data-row] .tag').length > 0`)
	tab.WantAccessible()
	tab.Forgive("503")
	tab.WantNoComplaint()
}

// A browser has six connections for a site, so a tab that nobody sees holds none.
func TestHiddenPageLetsGoOfItsStream(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.look(tab, "#/runs")
	streams := func(want int) {
		t.Helper()
		hookstest.Eventually(t, "the page holds its stream or not", func() bool { return tab.Waiting("/api/events") == want })
	}
	streams(1)
	other := tab.Beside()
	other.Show()
	streams(0)
	d.Ended(d.Accept(`{"message":"while nobody looked"}`))
	tab.Show()
	streams(1)
	tab.WaitText("while nobody looked")
	tab.WantNoComplaint()
}

// A user whose other pages hold all streams of a share still sees what happens, only later.
func TestPageWithoutAStreamLooksAnew(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 16 {
		r, err := http.NewRequestWithContext(ctx, "GET", d.Page+"api/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Hooks-Dashboard", "1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v", resp, err)
		}
		defer resp.Body.Close()
	}
	d.look(tab, "#/runs")
	tab.Wait("heading", "Runs")
	tab.WaitText("Not live")
	tab.WaitText("You have 16 event streams of this instance open")
	d.Ended(d.Accept(`{"message":"seen without a stream"}`))
	tab.WaitText("seen without a stream")
	if n := tab.Waiting("/api/events"); n != 0 {
		t.Errorf("the page holds %d streams", n)
	}
	stop()
	tab.Until("the page is live again", `document.querySelector('.state').innerText.includes('Live')`)
	tab.Forgive("429")
	tab.WantNoComplaint()
}

// The page may be anywhere: below a path, and behind a proxy that has it below another one.
func TestPageWorksBelowPathsAndBehindProxies(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), "handle_path /dashboard/* {\n"+openHouse+"\n}")
	address := strings.TrimSuffix(strings.TrimPrefix(d.Page, "http://"), "/")
	front := hookstest.StartProcess(t, "hooks\n handle_path /ops/* {\n rewrite * /dashboard{uri}\n reverse_proxy "+address+"\n}")
	for _, page := range []string{d.Page + "dashboard/", front.URL + "/ops/"} {
		tab.Open(page)
		tab.Wait("heading", "Overview")
		tab.Click("link", "Runs.*")
		tab.Wait("heading", "Runs")
		hookstest.Eventually(t, "the page holds a stream", func() bool { return tab.Waiting(page+"api/events") == 1 })
		d.Ended(d.Accept(hookstest.AsJSON(t, map[string]any{"message": "seen at " + page})))
		tab.WaitText("seen at " + page)
		tab.WantNoComplaint()
	}
}
