package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Operators answer questions on the overview and on the page of a run. Whoever comes second is told who was first, and what is answered
// elsewhere disappears.
func TestQuestionsOnTheDashboard(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	d := startDashboard(t, hookstest.Hooks(rn, "channel ops log\nhook deploy {\n action agent\n template \"Deploy {what}\"\n ask ops team before run 1h else drop\n}\n"), openHouse)
	const markup = `<img src=x onerror="document.title='hurt'">`
	waiting := func(what string) string {
		t.Helper()
		id, _ := d.Post("/api/hooks/deploy", hookstest.AsJSON(t, map[string]string{"what": what})).Field(t, "runId").(string)
		hookstest.Eventually(t, "the run waits", func() bool { return d.Run(id).Status == "waiting" })
		return id
	}
	answer := func(id, text string) {
		t.Helper()
		if resp := d.AdminRequest("POST", "/hooks/questions/"+engine.QuestionID(id, 0), `{"answer":"`+text+`"}`, "Hooks-Operator", "ann"); resp.Status != http.StatusOK {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
	}

	// A question comes while somebody looks at the overview, and is shown there as plain text.
	d.look(tab, "#/overview")
	tab.Wait("heading", "Overview")
	first := waiting("api " + markup)
	tab.Wait("button", "yes: deploy: may this run start.")
	tab.WaitText(markup)
	tab.WaitText("closes in ")
	for _, look := range []browsertest.Look{browsertest.Dark, browsertest.Narrow, browsertest.Light} {
		tab.Look(look)
		d.look(tab, "#/overview")
		tab.Wait("heading", "Needs you 1")
		tab.Wait("button", "no: deploy: may this run start.")
		tab.WantAccessible()
		tab.WantFits()
		tab.WantNames()
		tab.Picture("questions-" + look.Name)
	}
	tab.WantKeyboard()
	tab.Click("button", "yes: deploy: may this run start.")
	tab.Wait("dialog", "Answer “yes”.")
	tab.WantAccessible()
	tab.Within("dialog", "Answer “yes”.").Click("button", "Answer")
	tab.WaitText("Answered “yes”.")
	tab.Until("the question is gone", `!document.querySelector("[data-question]")`)
	if run := d.Ended(first); run.Status != "completed" {
		t.Errorf("the run is %+v", run)
	}
	d.look(tab, "#/runs/"+first)
	tab.WaitText("“yes” by operator (page)")
	tab.WantAccessible()

	// Another operator is first, while this one has the dialog open.
	second := waiting("web")
	d.look(tab, "#/runs?status=waiting")
	tab.WaitText("waits: somebody has to answer a question")
	tab.WantAccessible()
	d.look(tab, "#/runs/"+second)
	tab.Wait("heading", "Needs you")
	tab.WantAccessible()
	tab.Look(browsertest.Narrow)
	tab.WantFits()
	tab.Look(browsertest.Light)
	tab.Click("button", "yes: deploy: may this run start.")
	tab.Wait("dialog", "Answer “yes”.")
	answer(second, "no")
	tab.Within("dialog", "Answer “yes”.").Click("button", "Answer")
	tab.WaitText(`The question was answered already at `)
	tab.WaitText(`"no" by ann (api)`)
	tab.WaitText("“no” by ann (api)")
	tab.Forgive("409")

	// What is answered elsewhere disappears by itself, and the others stay.
	third, fourth := waiting("docs"), waiting("shop")
	d.look(tab, "#/overview")
	tab.Wait("heading", "Needs you 2")
	answer(third, "yes")
	tab.Wait("heading", "Needs you 1")
	tab.WaitText("Deploy shop")
	tab.WaitNoText("Deploy docs")
	d.AdminRequest("POST", "/hooks/runs/"+fourth+"/cancel", "")
	tab.Until("nobody is needed", `!document.querySelector("[data-question]")`)
	tab.WantNoComplaint()
	if title := browsertest.Eval[string](tab, `document.title`); title == "hurt" {
		t.Error("a question was read as markup")
	}
}

// A question that any text answers has an input, in which what is typed stays while other questions come and go.
func TestQuestionsForAnyTextOnTheDashboard(t *testing.T) {
	tab := browsertest.NewTab(t)
	port := hookstest.FreePort(t)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	d := &dashboard{Page: "http://127.0.0.1:" + port + "/", hooks: hookstest.Hooks(rn, "")}
	d.addSite("http://:"+port, openHouse)
	d.Server = hookstest.StartSite(t, d.directives())
	hookstest.AskBeforeStart(func(run *engine.Run) *engine.Question {
		if strings.HasPrefix(run.Message, "choose") {
			return &engine.Question{Text: "Which one?", Choices: []string{"the first one", "the second one", strings.Repeat("a long choice ", 12)}}
		}
		return &engine.Question{Text: "What shall it be called?"}
	})
	id := d.Accept(`{"message":"any"}`)
	d.look(tab, "#/overview")
	tab.Fill("Answer: agent: may this run start.", "Ada")
	d.Accept(`{"message":"choose"}`)
	tab.Wait("heading", "Needs you 2")
	tab.Wait("button", "the second one: agent: may this run start.")
	tab.Look(browsertest.Narrow)
	tab.WantFits()
	tab.WantAccessible()
	tab.Look(browsertest.Light)
	if typed := tab.Value("Answer: agent: may this run start."); typed != "Ada" {
		t.Errorf("the input has %q", typed)
	}
	tab.Click("button", "Answer: agent: may this run start.")
	tab.Within("dialog", "Answer “Ada”.").Click("button", "Answer")
	tab.WaitText("Answered “Ada”.")
	tab.Wait("heading", "Needs you 1")
	d.Ended(id)
	if q := d.AdminRequest("GET", "/hooks/questions/"+engine.QuestionID(id, 0), "").Body; !strings.Contains(q, `"answer":{"text":"Ada","by":"operator","via":"page"`) {
		t.Errorf("the question is %s", q)
	}
	tab.WantNoComplaint()
}

// The editor of a hook takes questions as a list in JSON.
func TestDashboardAsksWhoApproves(t *testing.T) {
	t.Parallel()
	tab := browsertest.NewTab(t)
	d := startDashboard(t, "hooks {\n runner echo\n channel ops log {\n allow_to *\n}\n}", openHouse)
	d.look(tab, "#/settings/hooks")
	tab.Wait("heading", "New hook")
	tab.Until("the part is clicked", `(() => { const part = [...document.querySelectorAll('summary')].find(s => s.innerText.startsWith('Approval')); part?.click(); return !!part })()`)
	tab.Fill("Ask somebody first.*", `{"before":"run"}`)
	tab.WaitText("must be a JSON list")
	tab.Fill("Ask somebody first.*", `[{"before":"run","channel":"ops","to":"team","seconds":3600}]`)
	tab.WaitText("somebody is asked")
	tab.Fill("Name", "deploy")
	tab.WantAccessible()
	tab.Click("button", "Add the hook")
	tab.Wait("heading", "deploy")
	d.AdminRequest("GET", "/hooks/mappings/deploy", "").WantMembers(t, `{"ask":[{"before":"run","channel":"ops","to":"team","seconds":3600}]}`)
	tab.WantNoComplaint()
}
