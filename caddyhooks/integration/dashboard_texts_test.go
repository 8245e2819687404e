package integration

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The answer of a turn that several messages were folded into is shown once, after all of them.
func TestAFoldedTurnHasOneAnswer(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("All three are known."))
	d := startDashboard(t, hookstest.Hooks(rn, "channel notes log\nhook alerts {\n action agent\n template \"Alert {n}\"\n chat_id ops\n fold 1h 3\n deliver notes team\n}"), openHouse)
	var last string
	for _, n := range []string{"one", "two", "three"} {
		last, _ = d.Post("/api/hooks/alerts", `{"n":"`+n+`"}`).Field(t, "runId").(string)
	}
	d.Ended(last)
	d.Ended(d.Accept(`{"message":"Alone.","chatId":"ops"}`))
	d.look(tab, "#/chats?chatId=ops")
	tab.WaitText("Alone.")
	for _, text := range []string{"Alert one", "Alert two", "Alert three"} {
		tab.WaitText(text)
	}
	order := browsertest.Eval[[]string](tab, `[...document.querySelectorAll('.turn')].map(e => e.classList.contains('reply') ? 'answer' : 'message')`)
	if got := strings.Join(order, " "); got != "message message message answer message answer" {
		t.Errorf("the chat shows: %s", got)
	}
	tab.WaitText("to 3 messages, in one turn")
	tab.Until("where the answer went is said below it", `document.querySelector('.turn.reply').innerText.includes('sent to notes:team')`)
	if n := browsertest.Eval[int](tab, `document.querySelectorAll('.turn.in a[href*="runs/"]').length`); n != 2 {
		t.Errorf("%d messages link to their run, want those 2 that the answer does not link to", n)
	}
	tab.WantAccessible()
	tab.Click("link", "4 runs")
	tab.Wait("heading", "Runs")
	tab.WaitText("4 runs, newest first")
	tab.WantNoComplaint()
}

// A character that reverses the text after it would show evil.exe as something else. All pages show the character itself.
func TestDirectionsOfTextAreShown(t *testing.T) {
	t.Parallel()
	const reversal, shown = "\u202e", "⟨U+202E⟩"
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if strings.HasPrefix(turn.Text("message"), "fail") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "Run "+reversal+"exe.live")
	})
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	agent := func(message string) string {
		id := d.Accept(hookstest.AsJSON(t, map[string]any{"message": message + reversal + "fdp.x", "chatId": "a" + reversal + "b", "name": "l" + reversal}))
		d.Ended(id)
		return id
	}
	id, failed := agent("Open "), agent("fail ")
	for _, fragment := range []string{"#/runs", "#/runs/" + id, "#/runs/" + failed, "#/chats?chatId=" + url.QueryEscape("a"+reversal+"b")} {
		d.look(tab, fragment)
		tab.WaitText(shown)
		if raw := browsertest.Eval[string](tab, `document.body.innerText + document.title + [...document.querySelectorAll('[title], [aria-label]')].map(e => e.title + e.ariaLabel)`); strings.Contains(raw, reversal) {
			t.Errorf("%s turns the direction of its text", fragment)
		}
	}
	// The link leads to the chat by its true name.
	d.look(tab, "#/runs")
	tab.Click("link", "a⟨U.*")
	tab.WaitText("2 runs")
	tab.WantNoComplaint()
}

// A dialog asks about the page below it, so it goes with that page.
func TestDialogsCloseWithTheirPage(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn, _, release := hookstest.HeldRunner(t)
	defer close(release)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	id := d.Accept(`{"message":"hold on"}`)
	d.look(tab, "#/runs")
	tab.WaitText("hold on")
	for _, leave := range []string{`history.back()`, `location.hash = "#/deliveries"`} {
		browsertest.Eval[any](tab, `void (location.hash = "#/runs/`+id+`")`)
		tab.Click("button", "Cancel")
		tab.Wait("dialog", "Cancel 1 run.*")
		browsertest.Eval[any](tab, `void (`+leave+`)`)
		tab.Until("the run is left", `!location.hash.includes("`+id+`")`)
		tab.Until("its dialog is closed", `!document.querySelector('dialog')`)
	}
	if status := d.Run(id).Status; status != "running" {
		t.Errorf("the run is %s", status)
	}
	tab.WantNoComplaint()
}

// The list says why runs did not complete, and shows no marks around text from outside.
func TestTheListOfRunsSaysWhy(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if strings.Contains(turn.Text("message"), "broken") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "the model is gone")
		}
	})
	d := startDashboard(t, hookstest.Hooks(rn, "hook issues {\n action agent\n untrusted wrap\n template \"Issue {title}, by {user}\"\n chat_id issues\n}"), openHouse)
	for _, title := range []string{"fine", "broken"} {
		id, _ := d.Post("/api/hooks/issues", `{"title":"`+title+`","user":"eve"}`).Field(t, "runId").(string)
		d.Ended(id)
	}
	for _, fragment := range []string{"#/runs", "#/chats"} {
		d.look(tab, fragment)
		tab.WaitText("Issue broken, by eve")
		if fragment == "#/runs" {
			tab.WaitText("Issue fine, by eve")
			tab.WaitText("the model is gone")
			if n := browsertest.Eval[int](tab, `document.querySelectorAll('main .why').length`); n != 1 {
				t.Errorf("%d runs have a reason", n)
			}
			tab.WantFits()
		}
	}
	tab.WantNoComplaint()
}
