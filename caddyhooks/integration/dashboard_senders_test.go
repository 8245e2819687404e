package integration

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// unfold opens a part of the form of a hook.
func unfold(tab *browsertest.Tab, title string) {
	tab.Until("the part "+title+" is open", fmt.Sprintf(
		`(() => { const fold = [...document.querySelectorAll('details')].find(d => d.querySelector('summary').innerText.startsWith(%q)); if (fold) fold.open = true; return !!fold })()`, title))
}

// fromGitHub sends a request as GitHub does.
func fromGitHub(d *dashboard, secret, payload string) hookstest.Response {
	return d.Request("POST", "/api/hooks/issues", payload, "Content-Type", "application/json", "X-GitHub-Event", "issues",
		"X-Hub-Signature-256", "sha256="+signed(secret, payload))
}

// signed is the signature of a payload in hex.
func signed(secret, payload string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(payload))
	return hex.EncodeToString(mac.Sum(nil))
}

// A sender is chosen by its name; a condition tells while it is written what it would have ignored; a secret is replaced without
// a request being refused.
func TestDashboardSetsUpASender(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Fill("Name", "issues")
	tab.Choose("Action", "agent, a full turn")
	tab.Choose("Authentication", "GitHub")
	tab.WaitNoText("Prefix")
	tab.Click("button", "Generate")
	tab.WaitText("It is shown once")
	first := aSecret.FindString(tab.Text())
	tab.Fill("Message", "Issue {n} was {action}, told as {@header.X-GitHub-Event}")
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "issues")
	tab.WaitText(first) // for the last time

	// Requests that GitHub signed become samples, at most one a second.
	sent, samples := 0, func() int {
		return strings.Count(d.AdminRequest("GET", "/hooks/samples?hook=issues", "").Body, `"payload"`)
	}
	hookstest.Eventually(t, "there are samples", func() bool {
		sent++
		action := []string{"opened", "closed"}[samples()%2]
		if resp := fromGitHub(d, first, fmt.Sprintf(`{"action":%q,"n":%d}`, action, sent)); resp.Status != http.StatusAccepted {
			t.Fatalf("GitHub is answered %d %s", resp.Status, resp.Body)
		}
		return samples() == 3
	})
	d.look(tab, "#/overview")
	tab.Wait("heading", "Overview")
	d.look(tab, "#/settings/hooks/issues")
	tab.WaitText("told as issues")
	unfold(tab, "Which requests count")
	tab.Fill("Only if", "$.action == 'closed")
	tab.Until("the line is told to be wrong", `document.querySelector('#field-only-0-said .wrong') !== null && document.querySelector('#field-only-0').getAttribute('aria-invalid') === 'true'`)
	tab.Fill("Only if", "$.action == 'closed'")
	tab.WaitText("Would have ignored 2 of the last 3")
	tab.WaitText("does not hold for this payload")
	tab.Fill("Only if, line 2", "header X-GitHub-Event issues")
	tab.WaitText("holds for this payload")
	unfold(tab, "Would have ignored")
	tab.Picture("conditions")
	tab.WantAccessible()
	tab.WantNames()
	tab.Click("button", "Show request 2")
	tab.WaitText("was closed")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	if resp := fromGitHub(d, first, `{"action":"labeled"}`); resp.Status != http.StatusOK || !strings.Contains(resp.Body, "ignored") {
		t.Errorf("another action is answered %d %s", resp.Status, resp.Body)
	}

	// A second secret works beside the first, until that one is taken out.
	tab.Click("button", "Generate")
	tab.WaitText("It is shown once")
	second := aSecret.FindString(tab.Text())
	save := func() {
		tab.Click("button", "Close")
		tab.Click("button", "Save")
		tab.WaitText("Saved.")
	}
	save()
	row := func(secret int) string {
		return fmt.Sprintf(`document.querySelectorAll('.tokens li')[%d]?.innerText ?? ''`, secret-1)
	}
	tab.Until("the first secret is used", `/secret 1\s+last used/.test(`+row(1)+`)`)
	tab.Until("the second is not", `/secret 2\s+not used yet/.test(`+row(2)+`)`)
	answers := func(secret string) int { return fromGitHub(d, secret, `{"action":"closed","n":"`+secret+`"}`).Status }
	if one, two := answers(first), answers(second); one != http.StatusAccepted || two != http.StatusAccepted {
		t.Errorf("with both secrets the answers are %d and %d", one, two)
	}
	tab.Click("button", "Remove secret 1")
	tab.WaitText("removed when you save")
	save()
	tab.WaitNoText("secret 2")
	tab.Until("the use of the second is shown", `/in force\s+last used/.test(`+row(1)+`)`)
	if one, two := answers(first), answers(second); one != http.StatusUnauthorized || two != http.StatusAccepted {
		t.Errorf("with the second secret alone the answers are %d and %d", one, two)
	}

	// The token that all hooks take is another one, which nobody has used.
	d.look(tab, "#/settings")
	tab.Until("the token is not used", `/in force\s+not used yet/.test(`+row(1)+`)`)
	d.Accept(`{"message":"x"}`)
	d.look(tab, "#/runs/refused")
	tab.WaitText("ignored")
	tab.WaitText("only $.action == 'closed'")
	tab.Picture("ignored")
	d.look(tab, "#/settings")
	tab.Until("the use of the token is shown", `/in force\s+last used/.test(`+row(1)+`)`)
	tab.WantNoComplaint()
}

// The test of the page and its command send what GitHub sends, with what the conditions of the hook ask for.
func TestDashboardSendsWhatTheSenderSends(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, "hook issues {\naction agent\nauth github geheimnis\nonly header X-GitHub-Event issue_comment issues\nonly query team\ntemplate \"Issue {issue.number} as {@header.X-GitHub-Event}\"\n}"), openHouse)
	d.look(tab, "#/settings/hooks/issues")
	tab.WaitText("Issue 1207 as issues")
	tab.Until("the payload is shown", `[...document.querySelectorAll('textarea')].some(e => e.value.includes('"Login loops'))`)
	tab.Click("button", "Send a test")
	tab.Wait("link", "Open the run")
	tab.WaitText("completed")

	browsertest.Eval[any](tab, `void (navigator.clipboard.writeText = async text => { globalThis.copied = text })`)
	tab.Click("button", "Copy as a curl command")
	tab.Until("it is copied", `globalThis.copied !== undefined`)
	command := browsertest.Eval[string](tab, `globalThis.copied`)
	called := regexp.MustCompile(`^curl 'http://[^/]+(/api/hooks/issues\?team=example)'`).FindStringSubmatch(command)
	payload := regexp.MustCompile(`(?s) --data-raw '(.*)'$`).FindStringSubmatch(command)
	if called == nil || payload == nil {
		t.Fatalf("the command is %s", command)
	}
	var headers []string
	for _, header := range regexp.MustCompile(` -H '([^:']+): ([^']*)'`).FindAllStringSubmatch(command, -1) {
		headers = append(headers, header[1], header[2])
	}
	guid := slices.Index(headers, "X-Github-Delivery") + 1
	if guid == 0 {
		t.Fatalf("the command is %s", command)
	}
	resp := d.Request("POST", called[1], payload[1], headers...)
	if resp.Status != http.StatusAccepted {
		t.Fatalf("%s is answered %d %s", command, resp.Status, resp.Body)
	}
	// What somebody changes is not replaced by an example any more.
	tab.Fill("Payload", `{"issue":{"number":7}}`)
	tab.WaitText("Issue 7 as issues")

	// The id that GitHub lists its delivery by leads to the run; the test before it has another.
	d.look(tab, "#/runs")
	tab.Fill("Search", headers[guid])
	tab.WaitText("1 run, newest first")
	tab.Click("link", "issues")
	tab.Until("the run is shown", fmt.Sprintf(`location.hash.startsWith('#/runs/%v')`, resp.Field(t, "runId")))
	tab.WaitText(headers[guid])
	tab.Wait("button", "Copy the request id")
	tab.WantNoComplaint()
}

// A part of the form that is folded says what it holds, and all of it is saved.
func TestDashboardSavesWhatSendersNeed(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Fill("Name", "alerts")
	tab.Choose("Action", "agent, a full turn")
	tab.Fill("Message", "{labels.alertname}")
	for _, part := range []string{"Which requests count", "Who may call", "Batching and rate limits", "Answer to the caller"} {
		unfold(tab, part)
	}
	tab.Fill("A run for each match of", "$.alerts[*]")
	tab.Choose("Form of the body", "either, by the Content-Type")
	tab.Fill("Largest body", "64 KB")
	tab.Fill("Addresses of callers", "127.0.0.0/8, ::1")
	tab.Fill("Wait for more, in seconds", "30")
	tab.Fill("Runs in one turn, at most", "50")
	tab.Fill("Rate", "many")
	tab.Until("the rate is told to be wrong", `document.querySelector('#field-rate').getAttribute('aria-invalid') === 'true'`)
	tab.Fill("Rate", "60/1h")
	tab.Fill("Runs at once", "2")
	tab.Fill("Status of the answer", "204")
	tab.Fill("Payload", `{"alerts":[{"labels":{"alertname":"DiskFull"}},{"labels":{"alertname":"Down"}}]}`)
	tab.WaitText("2 runs, the first is shown")
	unfold(tab, "Several runs in one turn")
	tab.WaitText("[2 of 2, accepted")
	tab.Picture("storms")
	tab.WantAccessible()
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "alerts")
	tab.WaitText("folded for 30 s · at most 60/1h · 2 at once")
	d.AdminRequest("GET", "/hooks/mappings/alerts", "").WantMembers(t, `{"each":"$.alerts[*]","body":"auto","maxPayloadSize":65536,"from":["127.0.0.0/8","::1"],
		"foldSeconds":30,"foldMax":50,"rate":"60/1h","workers":2,"respondStatus":204}`)

	// What is taken out of the form is taken out of the hook.
	unfold(tab, "Batching and rate limits")
	tab.Fill("Rate", "")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	if body := d.AdminRequest("GET", "/hooks/mappings/alerts", "").Body; strings.Contains(body, `"rate"`) || !strings.Contains(body, `"foldMax":50`) {
		t.Errorf("the hook is %s", body)
	}
	tab.WantNoComplaint()
}

// The page knows what schemes need beside a secret.
func TestDashboardSavesHowSendersProveThemselves(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, hookstest.Hooks(hookstest.StartRunner(t, nil), ""), openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Fill("Name", "whatsapp")
	tab.Choose("Authentication", "Meta, WhatsApp")
	tab.Fill("Secret", "the-app-secret")
	tab.Fill("Verify token", "a-verify-token")
	tab.WantAccessible()
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "whatsapp")
	d.AdminRequest("GET", "/hooks/mappings/whatsapp", "").WantMembers(t, `{"authMode":"meta","authSecret":"••••","verifyToken":"••••"}`)
	const asked = "/api/hooks/whatsapp?hub.mode=subscribe&hub.challenge=42&hub.verify_token=a-verify-token"
	if resp := d.Request("GET", asked, ""); resp.Status != 200 || resp.Body != "42" {
		t.Errorf("Meta is answered %d %s", resp.Status, resp.Body)
	}

	// Another scheme leaves out what it does not read.
	tab.Choose("Authentication", "a signature (HMAC)")
	tab.Fill("Header", "X-Signature")
	tab.Fill("Prefix", "v1=")
	tab.Fill("Secret", "MDEyMzQ1Njc4OWFiY2RlZg==")
	unfold(tab, "Who may call")
	tab.Choose("Form of the secret", "the key in base64")
	tab.Fill("What is signed", "{@time}.{@body}")
	tab.Fill("Header with the time of the signature", "t=")
	tab.Choose("Form of the time", "milliseconds since 1970")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	saved := d.AdminRequest("GET", "/hooks/mappings/whatsapp", "")
	saved.WantMembers(t, `{"authMode":"hmac","hmacSecret":"••••","keyEncoding":"base64","timestampHeader":"t=","timestampFormat":"milliseconds"}`)
	if strings.Contains(saved.Body, "verifyToken") || strings.Contains(saved.Body, "authSecret") {
		t.Errorf("the hook is %s", saved.Body)
	}
	if resp := d.Request("GET", asked, ""); resp.Status != 405 {
		t.Errorf("Meta is answered %d %s", resp.Status, resp.Body)
	}

	tab.Choose("Authentication", "a token of its own")
	tab.Fill("Secret", "a-token-that-nobody-guesses")
	tab.Fill("Header with the token", "X-Api-Key")
	tab.Click("button", "Save")
	tab.WaitText("Saved.")
	if resp := d.Request("POST", "/api/hooks/whatsapp", `{"text":"a"}`, "X-Api-Key", "a-token-that-nobody-guesses"); resp.Status != 200 {
		t.Errorf("a request with a token is answered %d %s", resp.Status, resp.Body)
	}
	tab.WantNoComplaint()
}

// A run that was told together with another one leads to it.
func TestDashboardLeadsFromAFoldedRunToItsTurn(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, nil)
	d := startDashboard(t, hookstest.Hooks(rn, ""), openHouse)
	d.PutMapping("storm", `{"action":"agent","messageTemplate":"Event {n}","chatId":"storm","foldSeconds":60,"foldMax":2}`)
	var ids []string
	for _, payload := range []string{`{"n":1}`, `{"n":2}`} {
		ids = append(ids, d.Post("/api/hooks/storm", payload).Field(t, "runId").(string))
	}
	d.look(tab, "#/runs/"+ids[1]) // which is live
	tab.WaitText("Folded into")
	tab.Click("link", ids[0])
	tab.WaitText("one turn for 2 runs")
	tab.WantNoComplaint()
}
