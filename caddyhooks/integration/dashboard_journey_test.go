package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// aSecret is a token or secret as the page makes them.
var aSecret = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// orderPayload has a number that no page may shorten.
const orderPayload = `{"order": {"id": 12345678901234567890, "note": "Ring twice", "shop": "berlin"}}`

// From an instance that has nothing to one where everything has happened once.
func TestDashboardLeadsFromNothingToARetriedDelivery(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		if strings.HasPrefix(tn.Text("chatId"), "test:") { // so that one sees it run
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "Noted: "+tn.Text("message"))
	})
	var there atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !there.Load() {
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(receiver.Close)
	d := startDashboard(t, "hooks {\n runner http "+rn.URL+"\n"+hookstest.WithCallbacks+"}", openHouse)

	d.look(tab, "")
	tab.Wait("heading", "Overview")
	tab.Click("link", "Webhooks")
	token := switchOn(tab)
	secret := addOrdersHook(tab)

	// A test, watched live.
	tab.Fill("Payload", orderPayload)
	tab.Click("button", "Send a test")
	tab.Click("link", "Open the run")
	tab.WaitText("Running for")
	tab.WaitText("Order 12345678901234567890: Ring twice (<missing>)")
	close(release)
	tab.WaitText("completed")
	tab.WaitText("Noted: Order 12345678901234567890: Ring twice (<missing>)")

	// The signature that is shown is good for a real request.
	d.look(tab, "#/settings/hooks/orders")
	tab.Fill("Payload", orderPayload)
	var header []string
	hookstest.Eventually(t, "the signature of the payload is shown", func() bool {
		header = regexp.MustCompile(`X-Signature: (\S+)`).FindStringSubmatch(tab.Text())
		if header == nil {
			return false
		}
		resp := d.Request("POST", "/api/hooks/orders", orderPayload, "Content-Type", "application/json", "X-Signature", header[1])
		return resp.Status == http.StatusAccepted // that of the payload before is not
	})

	// The chat.
	tab.Click("link", "Chats")
	tab.Wait("heading", "Chats")
	tab.Click("link", "shop:berlin.*")
	tab.Within("log", "Conversation in shop:berlin").Wait("article", "Message from orders")
	tab.WaitText("Noted: Order 12345678901234567890: Ring twice (<missing>)")

	// A callback that is given up is sent again.
	resp := d.Request("POST", "/api/hooks/agent", hookstest.AsJSON(t, map[string]any{"message": "Tell them.", "callbackUrl": receiver.URL}),
		"Content-Type", "application/json", "Authorization", "Bearer "+token)
	if resp.Status != http.StatusAccepted {
		t.Fatalf("with the token of the page: %d %s", resp.Status, resp.Body)
	}
	tab.Click("link", "Deliveries.*")
	tab.Wait("heading", "Deliveries")
	tab.WaitText("410")
	there.Store(true)
	tab.Click("button", "Send again")
	hookstest.Eventually(t, "the callback is delivered", func() bool { return len(d.Deliveries("status=delivered")) == 1 })
	tab.Click("button", "Delivered.*")
	tab.WaitText(receiver.URL)

	// So is one that has arrived, after a question.
	tab.Click("button", "Send again")
	tab.Within("dialog", "Send the delivery again.*").Click("button", "Send again")
	hookstest.Eventually(t, "the callback is delivered once more", func() bool {
		list := d.Deliveries("status=delivered")
		return len(list) == 1 && list[0].Attempts == 3
	})
	tab.WaitText("sent again 1 time")

	// Who did all that.
	tab.Click("link", "Changes")
	tab.Wait("heading", "Changes")
	for _, what := range []string{"orders", "enabled", "token", "operator"} {
		tab.WaitText(what)
	}
	tab.Click("link", "Overview")
	tab.Wait("heading", "Overview")
	tab.WaitText("orders")
	if page := browsertest.Eval[string](tab, `document.documentElement.outerHTML`); strings.Contains(page, token) || strings.Contains(page, secret) {
		t.Error("a secret stays on the page")
	}
	tab.WantNoComplaint()
}

// switchOn makes a token and switches webhooks on, on the page of the settings.
func switchOn(tab *browsertest.Tab) (token string) {
	tab.Wait("heading", "Webhooks off")
	tab.Click("button", "Generate a token")
	tab.WaitText("It is shown once")
	token = aSecret.FindString(tab.Text())
	tab.Click("button", "Switch on")
	tab.Wait("heading", "Webhooks on")
	return token
}

// addOrdersHook adds a hook that is signed, and sees in the preview what it will say.
func addOrdersHook(tab *browsertest.Tab) (secret string) {
	tab.Click("link", "Add a hook")
	tab.Wait("heading", "New hook")
	tab.Fill("Name", "orders")
	tab.Choose("Action", "agent, a full turn")
	tab.Choose("Authentication", "a signature (HMAC)")
	tab.Fill("Header", "X-Signature")
	tab.Click("button", "Generate")
	tab.WaitText("It is shown once")
	secret = aSecret.FindString(tab.Text())
	tab.Fill("Message", "Order {order.id}: {order.note} ({order.gift})")
	tab.Fill("Chat", "shop:{order.shop}")
	tab.Fill("Payload", orderPayload)
	tab.WaitText("Order 12345678901234567890: Ring twice (<missing>)")
	tab.WaitText("not in this payload: {order.gift}")
	tab.WaitText("shop:berlin")
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "orders")
	tab.WaitNoText("webhooks are off") // as they were on the pages before
	return secret
}

// With nothing but a runner, the page on this machine is enough.
func TestDashboardOnThisMachineNeedsARunnerAlone(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	s := hookstest.StartProcess(t, "hooks {\n runner echo\n}")
	p := startDashboardProgram(t, hookstest.NewBinary(t), "--address", strings.TrimPrefix(s.Admin, "http://"))
	link := hookstest.ReceiveWithin(t, "the command prints a link", p.links)

	tab.Open(link)
	tab.Wait("heading", "Overview")
	if at := browsertest.Eval[string](tab, `location.href`); at == link || strings.ContainsAny(at, "?=") {
		t.Errorf("the address is %s, and the link was %s", at, link)
	}
	tab.Click("link", "Webhooks")
	switchOn(tab)
	addOrdersHook(tab)
	tab.Fill("Payload", orderPayload)
	tab.Click("button", "Send a test")
	tab.Wait("link", "Open the run")
	tab.WaitText("completed")
	tab.WantNoComplaint()

	// The link was good once; without its cookie nobody gets in.
	stranger := tab.Stranger()
	stranger.Open(link)
	stranger.Until("somebody else is refused", `!document.querySelector('main h1')`)
	if got := browsertest.Eval[int](stranger, `fetch('/api/settings', {headers: {'X-Hooks-Dashboard': '1'}}).then(r => r.status, () => 403)`); got != http.StatusForbidden && got != http.StatusUnauthorized {
		t.Errorf("somebody else is answered %d", got)
	}
}
