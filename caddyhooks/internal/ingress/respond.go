package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// noWebhookError says that there is no webhook at a path. Callers are not told why: names of hooks are no business of strangers.
type noWebhookError struct{ reason string }

func (e *noWebhookError) Error() string { return e.reason }

var (
	errUnknownHook = &noWebhookError{"no hook has this name"}
	errHookDeleted = &noWebhookError{"the hook was deleted"}
	errHookLeftOut = &noWebhookError{"the hook is left out: see problems in GET /hooks/settings"}
	errNoRunPath   = &noWebhookError{"a run has no such path"}
)

var (
	errMethod = &api.Error{Status: http.StatusMethodNotAllowed, Header: [2]string{"Allow", http.MethodPost},
		Message: "Webhooks are sent with POST.",
		Reason:  "the method is not POST"}
	errNoRun = &api.Error{Status: http.StatusNotFound, Message: "There is no such run, or it ended so long ago that it was forgotten.",
		Reason: "there is no such run"}
	// What was sent when the store went away may be kept all the same.
	errStoreUnreachable = api.Busy(5*time.Second, "The store cannot be reached right now; try again in a moment. The run may have been "+
		"kept: with an Idempotency-Key it is carried out once.",
		"the store cannot be reached")
	errSlowBody = &api.Error{Status: http.StatusRequestTimeout, AbandonsBody: true, Message: "The body took too long to arrive.",
		Reason: "the body took too long to arrive"}
	errCutBody = &api.Error{Status: http.StatusBadRequest, AbandonsBody: true, Message: "The body broke off before its end.",
		Reason: "the body broke off before its end"}

	errBodiesFull = &api.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, AbandonsBody: true,
		Message: intake.MemoryFull, Reason: intake.MemoryFullReason}
)

// statusCallerGone is the status that Caddy logs for a caller that closed the connection before the answer.
const statusCallerGone = 499

// answerTo returns the answer to an error, nil if the caller is gone. An error of the service itself is its cause, and the caller
// gets no details of it. A panic is logged, with its stack.
func answerTo(err error, log *zap.Logger) *api.Error {
	var answer *api.Error
	var nothing *noWebhookError
	var field *settings.FieldError
	var unreachable *engine.RunnerUnreachableError
	var undecided *settings.UndecidedCredential
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.As(err, &nothing):
		return &api.Error{Status: http.StatusNotFound, Reason: nothing.reason,
			Message: "There is no webhook here. Either webhooks are off, or no hook has this name; the server's log and admin API say which."}
	case errors.As(err, &undecided):
		busy := api.Busy(undecided.Verdict.RetryAfter, "It cannot be checked right now whether the token is good; try again later.",
			string(undecided.Verdict.Reason))
		busy.Cause = undecided.Verdict.Cause
		return busy
	case errors.As(err, &field):
		return &api.Error{Status: http.StatusBadRequest, Reason: "the field " + field.Field + " is missing or wrong",
			Message: "The field " + field.Error() + "."}
	case errors.Is(err, engine.ErrChatFull):
		full := api.Busy(5*time.Second, "The queue of this chat is full; try again later.", "the queue of the chat is full (chat_limit)")
		full.OfChat = true
		return full
	case errors.Is(err, engine.ErrQueueFull):
		return api.Busy(5*time.Second, "Too many runs are waiting; try again later.", "the queue is full (queue_limit)")
	case errors.Is(err, engine.ErrStopping):
		return api.Busy(5*time.Second, "The service is shutting down; try again in a moment.", "Caddy is shutting down")
	case errors.As(err, &unreachable):
		return api.Busy(unreachable.RetryAfter, "The agent is not available right now; try again later.", "the agent is unreachable")
	case errors.Is(err, engine.ErrUnreachable):
		return errStoreUnreachable
	case errors.Is(err, engine.ErrNotFound):
		return errNoRun
	case errors.Is(err, context.Canceled):
		return nil
	}
	var broken *engine.StoreBrokenError
	const message = "The run could not be stored; try again later."
	if errors.As(err, &broken) { // which the engine has logged
		return api.Busy(5*time.Second, message, "the store is broken")
	}
	var panicked *panics.Error
	if errors.As(err, &panicked) {
		log.Error("a run could not be accepted", panics.Field(err))
	}
	failed := api.Busy(5*time.Second, message, "the store failed")
	failed.Cause = err
	return failed
}

// WriteError answers with an error.
func WriteError(w http.ResponseWriter, r *http.Request, a *api.Error) {
	h := w.Header()
	if a.AbandonsBody && r.ProtoMajor == 1 {
		// Otherwise net/http would wait for the rest of the body, without a limit. From HTTP/2 on, the rest of one body is in
		// nobody's way, and HTTP/3 forbids the header.
		h.Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	}
	if a.RetryAfter > 0 {
		h.Set("Retry-After", api.RetryAfterSeconds(a.RetryAfter))
	}
	if a.Header[0] != "" {
		h.Set(a.Header[0], a.Header[1])
	}
	writeBody(w, a.Status, "application/json", api.ErrorBody(a.Message))
	if a.Status == http.StatusRequestEntityTooLarge && r.ProtoMajor == 1 {
		hearOut(w, r)
	}
}

// hearOut reads on for a moment after a body was refused as too large. Many clients read no answer before they have sent the whole
// body: they would see a broken connection instead. One that asked first sends nothing more.
func hearOut(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return
	}
	const most, patience = 16 << 20, 5 * time.Second
	clock, client := startBodyClock(w, min(patience, bodyTime())), http.NewResponseController(w)
	err := client.Flush() // which waits for the rest of the body, or 256 KB of it
	for rest, piece := io.LimitReader(r.Body, most), make([]byte, 32<<10); err == nil && !clock.isLate(); {
		_, err = rest.Read(piece)
	}
	if clock.stop() { // net/http would go on
		_ = client.SetReadDeadline(time.Unix(1, 0))
	}
}

// writeAccepted acknowledges the runs of a request, which are in the background. run is the first of them.
func (q *hookRequest) writeAccepted(w http.ResponseWriter, r *http.Request, run *engine.Run) {
	if q.writeGiven(w) {
		return
	}
	status := http.StatusOK
	if run.Action == engine.Agent {
		status = http.StatusAccepted
	}
	if status = q.successStatus(status); status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	body := append(make([]byte, 0, 128), `{"status":"accepted",`...)
	switch together := q.together(run); {
	case together != nil && run.Action == engine.Agent:
		body = appendList(append(body, `"runs":`...), together, func(body []byte, s engine.Sibling) []byte {
			return append(appendRun(append(body, '{'), s.ID, s.ChatID), '}')
		})
	case together != nil:
		body = appendList(append(body, `"chatIds":`...), together, func(body []byte, s engine.Sibling) []byte {
			return append(body, text.JSONString(s.ChatID)...)
		})
	case run.Action == engine.Agent:
		w.Header()["Location"] = []string{q.publicPath(r) + "runs/" + run.ID}
		body = appendRun(body, run.ID, run.ChatID)
	default:
		body = append(append(body, `"chatId":`...), text.JSONString(run.ChatID)...)
	}
	writeBody(w, status, "application/json", append(body, '}'))
}

// successStatus notes and returns the status of the answer to a request that is accepted or ignored: the usual one, or the one that
// the sender wants.
func (q *hookRequest) successStatus(usual int) int {
	q.answered = usual
	if q.custom != nil {
		q.answered = q.custom.Auth.SuccessStatus(q.incoming.Doc, usual)
	}
	return q.answered
}

// together are the runs that a request became, if it is one that can become several; otherwise it is nil.
func (q *hookRequest) together(first *engine.Run) []engine.Sibling {
	if len(first.Together) == 0 && q.custom != nil && (q.custom.EachMatch != nil || q.incoming.IsBatch) {
		return []engine.Sibling{{ID: first.ID, ChatID: first.ChatID}}
	}
	return first.Together
}

func appendRun(body []byte, id, chatID string) []byte {
	body = append(append(append(body, `"runId":"`...), id...), `","chatId":`...)
	return append(body, text.JSONString(chatID)...)
}

func appendList[T any](body []byte, items []T, add func([]byte, T) []byte) []byte {
	body = append(body, '[')
	for i, item := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = add(body, item)
	}
	return append(body, ']')
}

// writeGiven writes the answer that the mapping gives, if it gives one and the caller does not wait for a reply.
func (q *hookRequest) writeGiven(w http.ResponseWriter) bool {
	if q.custom == nil || q.custom.Answer == nil || callerWaits(q.custom) {
		return false
	}
	given := q.custom.Answer
	q.answered = given.Status
	writeAny(w, given.Status, given.ContentType, given.Body)
	return true
}

// callerWaits reports whether callers of the hook wait for a reply.
func callerWaits(h *settings.Hook) bool { return h.Action == engine.Agent && h.SyncResponse }

var ignoredBody = []byte(`{"status":"ignored"}`)

// ignore answers a request that a condition leaves out, counts it and notes it beside the refused ones.
func (q *hookRequest) ignore(w http.ResponseWriter, r *http.Request, condition string) {
	in := q.in
	status := q.successStatus(http.StatusOK)
	given := q.custom.Answer != nil && !callerWaits(q.custom)
	if given {
		status = q.custom.Answer.Status
	}
	in.Service.Engine.NoteIgnored(q.name)
	noteIgnored(in, q, r, status, condition)
	switch {
	case given:
		q.writeGiven(w)
	case status == http.StatusNoContent:
		w.WriteHeader(status)
	default:
		writeBody(w, status, "application/json", ignoredBody)
	}
}

// writeSchemeAnswer answers the sender that tries out a hook.
func writeSchemeAnswer(a *settings.SchemeAnswer, w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header)
	writeAny(w, a.Status, a.ContentType, []byte(a.Body))
}

// writeAny answers with a body, or without one.
func writeAny(w http.ResponseWriter, status int, contentType string, body []byte) {
	if len(body) == 0 {
		w.WriteHeader(status)
		return
	}
	writeBody(w, status, contentType, body)
}

// publicPath is the path of the hooks as the caller sees it. A handle_path around this handler may have removed its beginning.
func (q *hookRequest) publicPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		if base, ok := strings.CutSuffix(original.URL.Path, q.name); ok {
			base = "/" + strings.TrimLeft(base, "/") // two slashes would begin the name of a host
			return (&url.URL{Path: base}).EscapedPath()
		}
	}
	return q.in.Path + "/"
}

// nameRun sets the headers that tell a waiting caller of its run.
func nameRun(h http.Header, run *engine.Run) {
	h.Set("X-Service-Run-Id", run.ID)
	h.Set("X-Service-Chat-Id", outbound.HeaderValue(run.ChatID))
}

// writeOutcome answers a waiting caller with the end of its run.
func writeOutcome(w http.ResponseWriter, run *engine.Run, outcome engine.Outcome) error {
	nameRun(w.Header(), run)
	if outcome.Checked {
		w.Header().Set("X-Service-Schema-Repair-Attempts", strconv.Itoa(outcome.Repairs))
	}
	if outcome.Status == engine.Completed {
		if outcome.Checked {
			writeBody(w, http.StatusOK, "application/json", outcome.JSON)
		} else {
			writeBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte(outcome.Text))
		}
		return nil
	}
	return outcomeError(outcome)
}

// outcomeError is the answer to a caller whose run did not complete.
func outcomeError(outcome engine.Outcome) *api.Error {
	status := http.StatusBadGateway
	switch {
	case outcome.Status == engine.TimedOut, outcome.Status == engine.Expired:
		status = http.StatusGatewayTimeout
	case outcome.Failure == engine.Replaced:
		status = http.StatusConflict
	case outcome.Failure == engine.SchemaUnmet:
		status = http.StatusUnprocessableEntity
	case outcome.Failure == engine.RunnerUnavailable, outcome.Failure == engine.ShuttingDown:
		status = http.StatusServiceUnavailable
	}
	return &api.Error{Status: status, Message: outcome.Message, RetryAfter: outcome.RetryAfter, OfRun: true}
}

// WriteJSON answers with a value that always encodes.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value)
	writeBody(w, status, "application/json", bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h["Content-Type"] = []string{contentType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	// An answer may have text of a caller in it, which no browser should take for a page.
	h["X-Content-Type-Options"] = []string{"nosniff"}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that is gone cannot be told
}
