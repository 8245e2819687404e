package caddyhooks_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// askingSite is a Caddy whose runs ask before they start: those of "free …" for any text, all others with yes or no, and "plain" ones nothing.
func askingSite(t *testing.T) *hookstest.Server {
	t.Helper()
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("done")), "store memory\n"))
	hookstest.AskBeforeStart(func(run *engine.Run) *engine.Question {
		q := &engine.Question{Text: "May this run start?\n" + run.Message, By: []string{"U012"}}
		switch {
		case strings.HasPrefix(run.Message, "plain"):
			return nil
		case !strings.HasPrefix(run.Message, "free"):
			q.Choices, q.For, q.Else = []string{engine.Yes, engine.No}, time.Hour, engine.No
		}
		return q
	})
	return s
}

// waits accepts a run, and waits until it is put aside.
func waits(s *hookstest.Server, body string) (id string) {
	s.T.Helper()
	id = s.Accept(body)
	hookstest.Eventually(s.T, "the run waits", func() bool { return s.Run(id).Status == "waiting" })
	return id
}

func TestOperatorsAnswerQuestionsByTheAPI(t *testing.T) {
	s := askingSite(t)
	id := waits(s, `{"message":"deploy","chatId":"releases"}`)
	question := engine.QuestionID(id, 0)
	page := adminPage[api.QuestionsPage](s, "/hooks/questions")
	if len(page.Questions) != 1 || page.Questions[0].AskedAt == nil || page.Questions[0].Until.Sub(*page.Questions[0].AskedAt) != time.Hour {
		t.Fatalf("got %+v", page)
	}
	s.AdminRequest("GET", "/hooks/questions/"+question, "").WantMembers(t, `{"id":"`+question+`","runId":"`+id+`","hook":"agent","chatId":"releases",
		"kind":"start","text":"May this run start?\ndeploy","choices":["yes","no"],"by":["U012"],"else":"no"}`)

	s.AdminRequest("POST", "/hooks/questions/"+question, `{"answer":"perhaps"}`).WantAdminError(t, 400, "one of: yes, no")
	s.AdminRequest("POST", "/hooks/questions/"+question, `{"answer":7}`).WantAdminError(t, 400, "answer")
	s.AdminRequest("POST", "/hooks/questions/"+question, `{"answers":"yes"}`).WantAdminError(t, 400, "answers is unknown here")
	s.AdminRequest("POST", "/hooks/questions/"+question, `yes`).WantAdminError(t, 400, "not the JSON")
	s.AdminRequest("POST", "/hooks/questions/q_1", `{"answer":"yes"}`).WantAdminError(t, 404, `no question "q_1"`)
	s.AdminRequest("GET", "/hooks/questions/"+engine.QuestionID(id, 1), "").WantAdminError(t, 404, "no question")
	s.AdminRequest("GET", "/hooks/questions?cursor=x", "").WantAdminError(t, 400, "cursor")

	s.AdminRequest("POST", "/hooks/questions/"+question, `{"answer":"yes"}`, "Hooks-Operator", "ann").WantMembers(t, `{"hook":"agent","kind":"start"}`)
	s.AdminRequest("POST", "/hooks/questions/"+question, `{"answer":"no"}`, "Hooks-Operator", "bob").WantAdminError(t, 409,
		"answered already at ", `"yes" by ann (api)`)
	if run := s.Ended(id); run.Status != "completed" {
		t.Errorf("the run ended as %+v", run)
	}
	if page := adminPage[api.QuestionsPage](s, "/hooks/questions"); len(page.Questions) != 0 {
		t.Errorf("%+v is still open", page)
	}
	details := adminPage[api.RunDetails](s, "/hooks/runs/"+id)
	if len(details.Questions) != 1 || details.Questions[0].Answer == nil {
		t.Fatalf("the run has the questions %+v", details.Questions)
	}
	if a := details.Questions[0].Answer; a.Text != "yes" || a.By != "ann" || a.Via != "api" || a.At == nil {
		t.Errorf("the answer is %+v", a)
	}

	// Any text, but an empty one.
	free := waits(s, `{"message":"free"}`)
	s.AdminRequest("POST", "/hooks/questions/"+engine.QuestionID(free, 0), `{"answer":" "}`).WantAdminError(t, 400, "the answer is empty")
	s.AdminRequest("POST", "/hooks/questions/"+engine.QuestionID(free, 0), `{"answer":"`+strings.Repeat("x", 20<<10)+`"}`).WantAdminError(t, 400, "longer than")
	s.AdminRequest("POST", "/hooks/questions/"+engine.QuestionID(free, 0), `{"answer":"Not today."}`)
	if run := s.Ended(free); run.Status == "completed" {
		t.Errorf("the run ended as %+v", run)
	}
}

func TestListsOfQuestionsHavePages(t *testing.T) {
	s := askingSite(t)
	var ids []string
	for range 3 {
		ids = append(ids, engine.QuestionID(waits(s, `{"message":"deploy"}`), 0))
	}
	first := adminPage[api.QuestionsPage](s, "/hooks/questions?limit=2")
	if len(first.Questions) != 2 || first.Questions[0].ID != ids[2] || first.Cursor == "" {
		t.Fatalf("the first page is %+v", first)
	}
	if second := adminPage[api.QuestionsPage](s, "/hooks/questions?limit=2&cursor="+first.Cursor); len(second.Questions) != 1 || second.Questions[0].ID != ids[0] {
		t.Errorf("the second page is %+v", second)
	}
}

// A run that waits is found, counted, followed and cancelled as such.
func TestWaitingRunsAreSeenEverywhere(t *testing.T) {
	s := askingSite(t)
	id := s.Accept(`{"message":"deploy","chatId":"releases"}`)
	follower := followRun(t, s, id)
	for !slices.Contains(follower.status, "waiting") {
		if event := follower.next(); event.name == "" {
			t.Fatal("the stream of a run that waits has ended")
		}
	}
	if run := s.Run(id); run.Status != "waiting" || run.WaitingFor != "Somebody has to answer a question." || strings.Contains(run.Body, "U012") {
		t.Errorf("the caller is shown %s", run.Body)
	}
	for query, want := range map[string]int{"?status=waiting": 1, "?status=waiting,queued": 1, "?status=queued": 0, "?status=running": 0} {
		if ids, _ := s.Listed(query); len(ids) != want {
			t.Errorf("%s lists %v", query, ids)
		}
	}
	if csv := s.AdminRequest("GET", "/hooks/export?of=runs&status=waiting", "", "Accept", "text/csv").Body; !strings.Contains(csv, "waiting,"+id) {
		t.Errorf("the CSV is %s", csv)
	}
	type figures struct {
		Figures   api.Figures
		Attention []api.AttentionItem
	}
	overview := adminPage[figures](s, "/hooks/overview")
	if overview.Figures.Waiting != 1 || overview.Figures.Questions != 1 || overview.Figures.Queued != 0 || overview.Figures.Running != 0 {
		t.Errorf("the figures are %+v", overview.Figures)
	}
	if items := overview.Attention; len(items) == 0 || items[0].Kind != "questions" || items[0].Text != "1 question waits for an answer" {
		t.Errorf("the attention items are %+v", items)
	}
	hookstest.Eventually(t, "a scrape tells it", func() bool {
		m := scrape(t, s)
		return m[key("waiting_runs")] == 1 && m[key("open_questions")] == 1 && m[key("queue_depth")] == 0
	})
	if ended := s.Bulk("do=cancel&chatId=releases", ""); ended.Field(t, "done") != 1.0 {
		t.Errorf("cancelling all says %s", ended.Body)
	}
	if run := s.Ended(id); run.Status != "cancelled" {
		t.Errorf("the run is %+v", run)
	}
	if a := adminPage[api.RunDetails](s, "/hooks/runs/"+id).Questions[0].Answer; a == nil || a.Via != "end" {
		t.Errorf("its question has the answer %+v", a)
	}
	s.AdminRequest("POST", "/hooks/questions/"+engine.QuestionID(id, 0), `{"answer":"yes"}`).WantAdminError(t, 409, "closed, since the run ended")
	overview = adminPage[figures](s, "/hooks/overview")
	if overview.Figures.Waiting != 0 || overview.Figures.Questions != 0 || len(overview.Attention) > 0 && overview.Attention[0].Kind == "questions" {
		t.Errorf("afterwards the overview is %+v", overview)
	}
}

// What the page sends is an answer of its operator. Those who only look on cannot answer, and lists without texts have no questions' texts.
func TestOperatorsAnswerQuestionsOnThePage(t *testing.T) {
	s := hookstest.StartSite(t, basicAuth+hookstest.Hooks(hookstest.StartRunner(t, nil), "store memory\nhook some {\n action agent\n}")+"\nhooks_dashboard {\nread_only alice\nhide_texts\n}")
	hookstest.AskBeforeStart(func(*engine.Run) *engine.Question {
		return &engine.Question{Text: "secret plan", Choices: []string{engine.Yes, engine.No}}
	})
	id, _ := s.AdminRequest("POST", "/hooks/mappings/some/test", `{}`).Field(t, "runId").(string)
	hookstest.Eventually(t, "the run waits", func() bool {
		ids, _ := s.Listed("?status=waiting")
		return len(ids) == 1
	})
	alice, ops := pageOf(t, s).as("alice"), pageOf(t, s).as("ops")
	path := "questions/" + engine.QuestionID(id, 0)
	if list := alice.api("GET", "questions", ""); strings.Contains(list.Body, "secret plan") || !strings.Contains(list.Body, id) {
		t.Errorf("the list without texts is %s", list.Body)
	}
	alice.api("GET", path, "").WantMembers(t, `{"text":"secret plan"}`)
	alice.api("POST", path, `{"answer":"yes"}`).WantAdminError(t, 403, "read-only")
	if got := ops.api("POST", path, `{"answer":"no"}`); !strings.Contains(got.Body, `"answer":{"text":"no","by":"ops","via":"page"`) {
		t.Errorf("the answer is %d %s", got.Status, got.Body)
	}
}
