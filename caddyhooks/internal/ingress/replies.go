package ingress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/questions"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// serveQuestion serves what agents and people send who answer a question. While webhooks are off it does so for runs that were accepted
// before, and strangers find nothing here.
func (q *hookRequest) serveQuestion(w http.ResponseWriter, r *http.Request, active *settings.Active) (served bool, err error) {
	var serve func(http.ResponseWriter, *http.Request, string) error
	id, ok := strings.CutPrefix(q.name, "replies/")
	if ok {
		serve = q.serveReply
	} else if id, ok = strings.CutPrefix(q.name, "answers/"); ok {
		serve = q.serveAnswer
	} else {
		return false, nil
	}
	observe.NoteStatus(r, observe.RequestRunAPI)
	if !active.On && r.Method != http.MethodPost { // which have no token
		if _, err := q.in.Service.Engine.Question(r.Context(), id); errors.Is(err, engine.ErrNotFound) {
			return true, whyOff(active)
		}
	}
	err = serve(w, r, id)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Status < http.StatusInternalServerError && !active.On && !q.isKnown {
		err = whyOff(active)
	}
	return true, err
}

const (
	// maxReplyBody bounds what an agent sends, as JSON, and maxReplyText the answer in it, as that of a runner is bounded.
	maxReplyBody = 8 << 20
	maxReplyText = 1 << 20
	// maxReplyError bounds why an agent has no answer.
	maxReplyError = 4 << 10
)

// pushToken is the token of an agent that speaks A2A, which says that there is news of a task, "" of another one.
func pushToken(r *http.Request) string {
	for _, name := range settings.PushTokenHeaders {
		if token := r.Header.Get(name); token != "" {
			return token
		}
	}
	return ""
}

// serveReply takes the answer of an agent that has taken a turn on: POST replies/<question>.
func (q *hookRequest) serveReply(w http.ResponseWriter, r *http.Request, id string) error {
	if r.Method != http.MethodPost {
		return &api.Error{Status: http.StatusMethodNotAllowed, Header: [2]string{"Allow", http.MethodPost},
			Message: "An agent answers with POST."}
	}
	if err := q.checkQuestionToken(r, questions.Agent, id); err != nil {
		return err
	}
	if err := q.readBody(w, r, maxReplyBody); err != nil {
		return err
	}
	answer, progress, err := parseReply(q.incoming.Body, pushToken(r) != "")
	if err != nil {
		return err
	}
	e := q.in.Service.Engine
	runID, _, _ := engine.ParseQuestionID(id) // which its token has vouched for
	if progress != "" {
		if err := e.NoteProgress(r.Context(), runID, progress); err != nil {
			return runError(q.in, err)
		}
		return q.writeReplied(w, runID)
	}
	if answer == nil {
		return q.writeReplied(w, runID) // news that nobody has to act on
	}
	if answer.Via == engine.AnsweredByPush {
		id, err = q.pushedQuestion(r, runID, id)
		if err != nil {
			return err
		}
	}
	question, err := e.AnswerForAgent(r.Context(), id, *answer)
	switch {
	case errors.Is(err, engine.ErrAnswered) && answer.Via == engine.AnsweredByPush: // the run is looked at already
	case errors.Is(err, engine.ErrAnswered):
		return answeredError(question)
	case errors.Is(err, engine.ErrNotFound):
		return &api.Error{Status: http.StatusNotFound, Message: "There is no such run any more, or it waits for no answer."}
	case err != nil:
		return runError(q.in, err)
	}
	return q.writeReplied(w, runID)
}

func (q *hookRequest) writeReplied(w http.ResponseWriter, runID string) error {
	WriteJSON(w, http.StatusOK, api.Replied{Status: "ok", RunID: runID})
	return nil
}

// pushedQuestion is the question that the run is put aside for now: an agent that says that there is news knows the one of before.
func (q *hookRequest) pushedQuestion(r *http.Request, runID, id string) (string, error) {
	record, err := q.in.Service.Engine.Find(r.Context(), runID, 0)
	if err != nil {
		return "", runError(q.in, err)
	}
	for _, question := range record.Questions {
		if question.Answer == nil {
			return question.ID(), nil
		}
	}
	return id, nil
}

// answeredError says that there is an answer already, and which, without what only the one who gave it may know.
func answeredError(question *engine.Question) *api.Error {
	message := "There is an answer already."
	if question.Answer != nil {
		message = fmt.Sprintf("There is an answer already, of %s.", question.Answer.At.UTC().Format(time.RFC3339))
		if question.Answer.Via == engine.AnsweredByEnd || question.Answer.Via == engine.AnsweredByDeadline {
			message = fmt.Sprintf("The run needs no answer any more, since %s.", question.Answer.At.UTC().Format(time.RFC3339))
		}
	}
	return &api.Error{Status: http.StatusConflict, Message: message}
}

// checkQuestionToken checks the token of whoever answers a question.
func (q *hookRequest) checkQuestionToken(r *http.Request, who questions.Who, id string) error {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "" && who == questions.Agent {
		token = pushToken(r)
	}
	if _, _, ok := engine.ParseQuestionID(id); !ok {
		return &noWebhookError{"there is no question of this name"}
	}
	fits, err := q.in.Service.Tokens.Fits(r.Context(), who, id, strings.TrimSpace(token))
	if err != nil {
		return runError(q.in, err)
	}
	if fits {
		q.isKnown = true
		return nil
	}
	addr, _ := netip.ParseAddr(intake.ClientAddress(r))
	if after, throttled := q.in.Service.Throttle().Fail(addr, time.Now()); throttled {
		return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: after,
			Message: "Too many requests with a bad token came from this address.",
			Reason:  "too many bad tokens of questions came from one address"}
	}
	return &api.Error{Status: http.StatusUnauthorized, Header: [2]string{"WWW-Authenticate", "Bearer"},
		Message: "The token is not the one of this question.", Reason: "the token of a question is wrong"}
}

var replyMembers = strictjson.Members("text", "error", "progress", "usage")

// parseReply reads what an agent sends: a text, an error, or how far it has come. With pushed it is news of a task as A2A has it; the
// answer is nil if the agent is still at work.
func parseReply(body []byte, pushed bool) (answer *engine.Answer, progress string, err error) {
	obj, err := strictjson.ParseObject(body, replyMembers)
	if err != nil {
		return nil, "", &api.Error{Status: http.StatusBadRequest, Message: "The body must be a JSON object: " + err.Error()}
	}
	found := valuesOf(obj)
	if pushed {
		var task pushedTask
		_ = json.Unmarshal(body, &task) // what is not as A2A has it may be news
		if atWork[task.state()] {
			return nil, "", nil
		}
		return &engine.Answer{Via: engine.AnsweredByPush, By: "the agent"}, "", nil
	}
	members := make(map[string]string)
	for _, name := range []string{"text", "error", "progress"} {
		if found[name] == nil {
			continue
		}
		text, ok := found[name].(string)
		if !ok {
			return nil, "", &api.Error{Status: http.StatusBadRequest, Message: name + " must be a string."}
		}
		members[name] = text
	}
	if len(members) != 1 {
		return nil, "", &api.Error{Status: http.StatusBadRequest, Message: "The body must have one of text, error and progress."}
	}
	if progress, there := members["progress"]; there {
		if len(progress) > maxReplyError {
			return nil, "", &api.Error{Status: http.StatusRequestEntityTooLarge, Message: "progress must not be longer than 4 KiB."}
		}
		return nil, progress, nil
	}
	answer = &engine.Answer{Text: members["text"], Error: members["error"], Via: engine.AnsweredByAgent, By: "the agent"}
	if found["usage"] != nil {
		var used struct{ Usage usage.Reports }
		_ = json.Unmarshal(body, &used) // which takes any usage, and the rest was read before
		answer.Usage, _ = json.Marshal(used.Usage)
	}
	if _, failed := members["error"]; failed && answer.Error == "" {
		answer.Error = "it did not say why"
	}
	if len(answer.Text) > maxReplyText || len(answer.Error) > maxReplyError {
		return nil, "", &api.Error{Status: http.StatusRequestEntityTooLarge,
			Message: "text must not be longer than 1 MiB, and error not than 4 KiB."}
	}
	return answer, "", nil
}

// valuesOf are the members of an object by their names.
func valuesOf(obj strictjson.Object) map[string]any {
	values := make(map[string]any, len(obj.Members))
	for _, member := range obj.Members {
		values[member.Key] = member.Value
	}
	return values
}

// atWork are the states of a task, in all spellings of A2A, in which its agent needs nothing.
var atWork = map[string]bool{"submitted": true, "working": true, "TASK_STATE_SUBMITTED": true, "TASK_STATE_WORKING": true}

// pushedTask is a push notification: it is a task, or an update of its status, possibly in an envelope.
type pushedTask struct {
	Status                     struct{ State string }
	Result, StatusUpdate, Task *pushedTask
}

// state is the state of the task, "" if it is not known.
func (p *pushedTask) state() string {
	for _, inner := range []*pushedTask{p.Result, p.StatusUpdate, p.Task} {
		if inner != nil {
			return inner.state()
		}
	}
	return p.Status.State
}

// serveAnswer lets a person answer a question: GET answers/<question> shows a page, which asks for the question and sends the answer with
// POST. The page knows the token from its own address, behind the #: it is in no request line.
func (q *hookRequest) serveAnswer(w http.ResponseWriter, r *http.Request, id string) error {
	if _, _, ok := engine.ParseQuestionID(id); !ok {
		return &noWebhookError{"there is no question of this name"}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		writeAnswerPage(w)
		return nil
	case http.MethodPost:
	default:
		return &api.Error{Status: http.StatusMethodNotAllowed, Header: [2]string{"Allow", "GET, POST"},
			Message: "A question is answered with POST."}
	}
	if err := q.checkQuestionToken(r, questions.Person, id); err != nil {
		return err
	}
	if err := q.readBody(w, r, maxAnswerBody); err != nil {
		return err
	}
	given, err := parseAnswer(q.incoming.Body)
	if err != nil {
		return err
	}
	e := q.in.Service.Engine
	question, err := e.Question(r.Context(), id)
	if err == nil && len(question.By) > 0 {
		return &api.Error{Status: http.StatusForbidden, Message: "Only some people may answer this question, in the chat where it was asked."}
	}
	if err == nil && given != "" {
		question, err = e.AnswerQuestion(r.Context(), id, engine.Answer{Text: given, Via: engine.AnsweredByLink,
			By: service.CallerOf("a link", intake.ClientAddress(r))})
	}
	var refused *engine.AnswerRefusedError
	switch {
	case errors.As(err, &refused):
		return &api.Error{Status: http.StatusBadRequest, Message: refused.Error() + "."}
	case errors.Is(err, engine.ErrNotFound):
		return &api.Error{Status: http.StatusNotFound, Message: "There is no such question any more."}
	case errors.Is(err, engine.ErrAnswered):
		WriteJSON(w, http.StatusConflict, api.NewLinkedQuestion(question))
		q.answered = http.StatusConflict
	case err != nil:
		return runError(q.in, err)
	default:
		WriteJSON(w, http.StatusOK, api.NewLinkedQuestion(question))
	}
	return nil
}

// maxAnswerBody bounds what a person sends, as JSON.
const maxAnswerBody = 128 << 10

var answerMembers = strictjson.Members("answer")

// parseAnswer reads the answer of a person, "" for somebody who only looks.
func parseAnswer(body []byte) (string, error) {
	obj, err := strictjson.ParseObject(body, answerMembers)
	if err != nil {
		return "", &api.Error{Status: http.StatusBadRequest, Message: "The body must be a JSON object: " + err.Error()}
	}
	value := valuesOf(obj)["answer"]
	answer, ok := value.(string)
	if value != nil && !ok {
		return "", &api.Error{Status: http.StatusBadRequest, Message: "answer must be a string."}
	}
	return answer, nil
}
