package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /questions", listQuestions, "limit", "cursor")
	InstanceEndpoints.Handle("GET /questions/{id}", serveQuestion)
	InstanceEndpoints.Handle("POST /questions/{id}", answerQuestion)
}

// listQuestions lists open questions for people, the one that was asked last first.
func listQuestions(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	found, next, err := in.Service.Engine.OpenQuestions(r.Context(), limit, params.Get("cursor"))
	if err != nil {
		return listError(err)
	}
	page := api.QuestionsPage{Questions: []api.Question{}, Cursor: next}
	for _, q := range found {
		shown, err := newQuestion(in, r, q)
		if err != nil {
			return err
		}
		if callerFrom(r).HideTexts {
			shown.Text = "" // it may quote the message
		}
		page.Questions = append(page.Questions, shown)
	}
	return writeJSON(w, http.StatusOK, page)
}

func serveQuestion(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	q, err := in.Service.Engine.Question(r.Context(), r.PathValue("id"))
	if err != nil {
		return questionError(r, nil, err)
	}
	shown, err := newQuestion(in, r, q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}

// newQuestion shows a question with the hook and the chat of its run.
func newQuestion(in *service.Instance, r *http.Request, q *engine.Question) (api.Question, error) {
	shown := api.NewQuestion(q)
	record, err := in.Service.Engine.Find(r.Context(), q.RunID, 0)
	switch {
	case errors.Is(err, engine.ErrNotFound): // it was pruned meanwhile
		return shown, nil
	case err != nil:
		return shown, err
	}
	shown.Hook, shown.ChatID = record.Run.Hook, record.Run.ChatID
	return shown, nil
}

func answerQuestion(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	given, err := parseAnswer(body)
	if err != nil {
		return changeError(err)
	}
	who := callerFrom(r)
	q, err := in.Service.Engine.AnswerQuestion(r.Context(), r.PathValue("id"), engine.Answer{Text: given, By: who.By, Via: who.answersVia()})
	if err != nil {
		return questionError(r, q, err)
	}
	shown, err := newQuestion(in, r, q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}

// answersVia is how a caller answers questions.
func (c Caller) answersVia() string {
	switch {
	case c.usesDashboard():
		return engine.AnsweredByPage
	case c.Via == api.ViaCommand:
		return engine.AnsweredByCommand
	default:
		return engine.AnsweredByAPI
	}
}

var answerFields = strictjson.Members("answer")

// parseAnswer reads the answer to a question.
func parseAnswer(body []byte) (string, error) {
	obj, err := strictjson.ParseObject(body, answerFields)
	if err != nil {
		return "", api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		return "", settings.FieldErrorf(text.Abridge(obj.Other[0]), "is unknown here; use answer")
	}
	f := intake.RequestFields{Members: obj.Members, Selected: answerFields}
	return f.Text("answer"), f.Err
}

// questionError is an error of finding or answering a question. Who comes second is told the first answer.
func questionError(r *http.Request, q *engine.Question, err error) error {
	var refused *engine.AnswerRefusedError
	switch {
	case errors.As(err, &refused):
		return api.Errorf(http.StatusBadRequest, "%s", refused.Reason)
	case errors.Is(err, engine.ErrAnswered) && q != nil && q.Answer != nil:
		return api.Conflictf("%w at %s: %s", err, q.Answer.At.UTC().Format(time.RFC3339), api.NewQuestion(q).Answer)
	case errors.Is(err, engine.ErrNotFound):
		return api.Errorf(http.StatusNotFound, "there is no question %q", text.Abridge(r.PathValue("id")))
	default:
		return err
	}
}

// questionItems tells that questions wait for somebody.
func questionItems(open int) []api.AttentionItem {
	if open == 0 {
		return nil
	}
	return []api.AttentionItem{{Kind: "questions", Severity: api.SeverityLate, Link: "#/overview",
		Text: text.Count(open, "question waits", "questions wait") + " for an answer"}}
}
