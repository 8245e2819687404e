package integration

import (
	"net/http"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Whoever writes a hook is told what is wrong with it at the field, in the words of the page.
func TestDashboardTellsMistakesInAHookAtItsFields(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Fill("Name", "shop")
	tab.Choose("Authentication", "a signature (HMAC)")
	tab.WaitText("Header must name the header that carries the signature") // while it is written
	tab.Click("button", "Add the hook")
	tab.WaitText("Not saved.")
	tab.Until("the field has the focus", `document.activeElement?.id === 'field-hmacHeader' && document.activeElement.getAttribute('aria-invalid') === 'true'`)

	tab.Choose("Authentication", "Shopify")
	tab.WaitText("Paste the secret that Shopify shows you.")
	tab.WaitNoText("Generate")
	tab.Fill("Secret", "0123456789abcdef0123456789abcdef")
	tab.Fill("Message", "Order {{id}}")
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "shop")
	tab.WaitText("in force")
	tab.WaitText("which is not replaced: write {id}") // the answer's warning
	if got := tab.Value("Authentication"); got != "shopify" {
		t.Errorf("the sender has become %q", got)
	}
	tab.Forgive("400")
	tab.WantNoComplaint()
}

// An error is gone as soon as what it tells of is.
func TestDashboardForgetsAnErrorThatIsOver(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.PutMapping("alerts", `{"action":"agent","messageTemplate":"Alert"}`)
	d.Ended(d.Accept(`{"message":"before"}`))
	hooks := d.hooks
	d.hooks = "respond nothing"
	d.Reload(d.directives())
	d.look(tab, "#/runs")
	tab.Until("the error is told", `document.querySelector('main .note.bad') !== null`)
	tab.WaitNoText("No runs yet.")
	d.hooks = hooks
	d.Reload(d.directives())
	tab.WaitText("before")
	tab.Until("the error is gone", `!document.querySelector('main .note.bad')`)
	tab.Until("the hooks can be chosen", `[...document.querySelector('select[aria-label=Hook]').options].some(option => option.value === 'alerts')`)
	tab.Forgive("404|request: |Failed to load resource")
	tab.WantNoComplaint()
}

// Many deliveries are sent again at once, and the page says how many.
func TestDashboardSaysHowManyDeliveriesWereSentAgain(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	receiver := receiverOf(t, "gone")
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, hookstest.WithCallbacks), openHouse)
	for range 2 {
		d.CallBack("Tell them.", receiver.URL+"/gone")
	}
	hookstest.Eventually(t, "both are given up", func() bool { return len(d.Deliveries("status=dead")) == 2 })
	d.look(tab, "#/deliveries")
	tab.WaitText("410")
	tab.Click("button", "Send all dead again")
	tab.Click("button", "Send 2 again")
	tab.WaitText("Done: 2 of 2 sent again")
	hookstest.Eventually(t, "both are given up again", func() bool { return len(d.Deliveries("status=dead")) == 2 })
	tab.Click("button", "Drop all dead")
	tab.Click("button", "Drop 2")
	tab.WaitText("Done: 2 of 2 dropped")
	tab.WaitText("No delivery is waiting.")
	tab.WantNoComplaint()
}

// Operators are told why a request was refused, and for which name, and not only what its caller was told.
func TestDashboardTellsWhyARequestWasRefused(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	for _, path := range []string{"/api/hooks/githb", "/api/hooks/nope"} {
		if resp := d.Request("POST", path, `{}`, "Content-Type", "application/json"); resp.Status != http.StatusNotFound {
			t.Fatalf("%s is answered %d", path, resp.Status)
		}
	}
	d.look(tab, "#/runs/refused")
	tab.WaitText("asked for nope, githb")
	tab.WaitText("The caller got: ")
	tab.WantNoComplaint()
}

// A search for chats leaves no other chat beside what it found.
func TestDashboardShowsTheChatThatWasSearchedFor(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	for _, chat := range []string{"first", "second"} {
		d.Ended(d.Accept(`{"message":"in ` + chat + `","chatId":"` + chat + `"}`))
	}
	d.look(tab, "#/chats")
	tab.Wait("log", "Conversation in second")
	tab.Fill("Search for a chat", "fir")
	tab.Wait("log", "Conversation in first")
	tab.Fill("Search for a chat", "nobody")
	tab.WaitText("No chat id contains that.")
	tab.Until("no chat is open", `!document.querySelector('[role=log]')`)
	tab.WantNoComplaint()
}

// Whoever runs a run again hears first that somebody did so before.
func TestDashboardSaysThatARunWasRunAgain(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	id := d.Accept(`{"message":"hello","chatId":"greetings"}`)
	d.Ended(id)
	d.look(tab, "#/runs/"+id)
	tab.Click("button", "Run again")
	tab.WaitText("A new run gets the same message.")
	tab.WaitNoText("run again already")
	tab.Click("button", "Cancel")
	again, _ := d.AdminRequest("POST", "/hooks/runs/"+id+"/again", "").Field(t, "runId").(string)
	d.Ended(again)
	for _, page := range []string{"#/runs/" + id, "#/chats?chatId=greetings"} {
		d.look(tab, page)
		tab.Click("button", "Run again")
		tab.WaitText("This run was already run again, as " + again)
		tab.Click("button", "Cancel")
	}
	tab.WantNoComplaint()
}
