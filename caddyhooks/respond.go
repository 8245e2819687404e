package caddyhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// httpError is an error with its HTTP answer.
type httpError struct {
	status     int
	message    string // for the caller
	cause      error  // for operators: what went wrong inside, if anything
	reason     string // for operators, if it is not the message. Callers must not be able to make many of them.
	retryAfter time.Duration
	header     [2]string // one more header, if it has a name

	abandonsBody bool // the rest of the body is not read
	ofRun        bool // it tells how a run ended
	ofChat       bool // it is about the chat
}

func (a *httpError) Error() string { return a.message }

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
	errMethod = &httpError{status: http.StatusMethodNotAllowed, header: [2]string{"Allow", http.MethodPost}, message: "Webhooks are sent with POST.",
		reason: "the method is not POST"}
	errNoRun = &httpError{status: http.StatusNotFound, message: "There is no such run, or it ended so long ago that it was forgotten.", reason: "there is no such run"}
	// What was sent when the store went away may be kept all the same.
	errStoreAway = busy(5*time.Second, "The store cannot be reached right now; try again in a moment. The run may have been kept: with an Idempotency-Key it is carried out once.",
		"the store cannot be reached")
	errSlowBody = &httpError{status: http.StatusRequestTimeout, abandonsBody: true, message: "The body took too long to arrive.", reason: "the body took too long to arrive"}
	errCutBody  = &httpError{status: http.StatusBadRequest, abandonsBody: true, message: "The body broke off before its end.", reason: "the body broke off before its end"}

	errBodiesFull = &httpError{status: http.StatusServiceUnavailable, retryAfter: time.Second, abandonsBody: true,
		message: memoryFull, reason: memoryFullReason}
)

const (
	memoryFull       = "Too many bytes of other requests are being read; try again in a moment."
	memoryFullReason = "the memory for bodies and messages is full (max_memory)"
)

// statusCallerGone is the status that Caddy logs for a caller that closed the connection before the answer.
const statusCallerGone = 499

// answerTo returns the answer to an error, nil if the caller is gone. An error of the service itself is its cause, and the caller
// gets no details of it. A panic is logged, with its stack.
func answerTo(err error, log *zap.Logger) *httpError {
	var answer *httpError
	var nothing *noWebhookError
	var field *fieldError
	var away *engine.AwayError
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.As(err, &nothing):
		return &httpError{status: http.StatusNotFound, reason: nothing.reason,
			message: "There is no webhook here. Either webhooks are off, or no hook has this name; the server's log and admin API say which."}
	case errors.As(err, &field):
		return &httpError{status: http.StatusBadRequest, reason: "the field " + field.field + " is missing or wrong",
			message: "The field " + field.Error() + "."}
	case errors.Is(err, engine.ErrChatFull):
		full := busy(5*time.Second, "The queue of this chat is full; try again later.", "the queue of the chat is full (chat_limit)")
		full.ofChat = true
		return full
	case errors.Is(err, engine.ErrQueueFull):
		return busy(5*time.Second, "Too many runs are waiting; try again later.", "the queue is full (queue_limit)")
	case errors.Is(err, engine.ErrStopping):
		return busy(5*time.Second, "The service is shutting down; try again in a moment.", "Caddy is shutting down")
	case errors.As(err, &away):
		return busy(away.RetryAfter, "The agent is not available right now; try again later.", "the agent is away")
	case errors.Is(err, engine.ErrAway):
		return errStoreAway
	case errors.Is(err, engine.ErrNotFound):
		return errNoRun
	case errors.Is(err, context.Canceled):
		return nil
	}
	var broken *engine.StoreBrokenError
	const message = "The run could not be stored; try again later."
	if errors.As(err, &broken) { // which the engine has logged
		return busy(5*time.Second, message, "the store is broken")
	}
	var panicked *engine.PanicError
	if errors.As(err, &panicked) {
		log.Error("a run could not be accepted", engine.ErrorField(err))
	}
	failed := busy(5*time.Second, message, "the store failed")
	failed.cause = err
	return failed
}

func busy(retryAfter time.Duration, message, reason string) *httpError {
	return &httpError{status: http.StatusServiceUnavailable, retryAfter: retryAfter, message: message, reason: reason}
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, r *http.Request, a *httpError) {
	h := w.Header()
	if a.abandonsBody && r.ProtoMajor == 1 {
		// Otherwise net/http would wait for the rest of the body, without a limit. From HTTP/2 on, the rest of one body is in
		// nobody's way, and HTTP/3 forbids the header.
		h.Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	}
	if a.retryAfter > 0 {
		h.Set("Retry-After", retryAfterSeconds(a.retryAfter))
	}
	if a.header[0] != "" {
		h.Set(a.header[0], a.header[1])
	}
	writeBody(w, a.status, "application/json", errorBody(a.message))
}

// errorBody is the JSON body of every error, in an answer or in a callback.
func errorBody(message string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	// Strings always encode.
	_ = enc.Encode(struct {
		Status       string `json:"status"`
		ErrorMessage string `json:"errorMessage"`
	}{"error", message})
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// retryAfterSeconds rounds up, so that no caller comes back too early.
func retryAfterSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
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
		q.answered = q.custom.auth.successStatus(q.incoming.doc, usual)
	}
	return q.answered
}

// together are the runs that a request became, if it is one that can become several; otherwise it is nil.
func (q *hookRequest) together(first *engine.Run) []engine.Sibling {
	if len(first.Together) == 0 && q.custom != nil && q.custom.each != nil {
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

// givenAnswer is the answer that a mapping gives to callers that do not wait for a reply.
type givenAnswer struct {
	status      int
	contentType string // "" without a body
	body        []byte
}

// givenAnswer checks the answer of the mapping. It is nil if there is none.
func (m *Mapping) givenAnswer() (*givenAnswer, error) {
	switch {
	case m.RespondStatus == 0 && m.RespondBody == "":
		return nil, nil
	case m.RespondStatus == 0:
		return nil, fieldErrorf("respondBody", "needs respondStatus")
	case m.RespondStatus < 200 || m.RespondStatus > 299:
		return nil, fieldErrorf("respondStatus", "must be from 200 to 299: senders take others for a failure")
	case m.RespondBody != "" && (m.RespondStatus == http.StatusNoContent || m.RespondStatus == http.StatusResetContent):
		return nil, fieldErrorf("respondBody", "%v: an answer with the status %d has none", byWords{"must be empty", "must have no body"}, m.RespondStatus)
	case m.RespondBody == "":
		return &givenAnswer{status: m.RespondStatus}, nil
	}
	contentType := "text/plain; charset=utf-8"
	if json.Valid([]byte(m.RespondBody)) {
		contentType = "application/json"
	}
	return &givenAnswer{m.RespondStatus, contentType, []byte(m.RespondBody)}, nil
}

// writeGiven writes the answer that the mapping gives, if it gives one and the caller does not wait for a reply.
func (q *hookRequest) writeGiven(w http.ResponseWriter) bool {
	if q.custom == nil || q.custom.answer == nil || q.custom.waits() {
		return false
	}
	given := q.custom.answer
	q.answered = given.status
	writeAny(w, given.status, given.contentType, given.body)
	return true
}

// waits reports whether callers of the hook wait for a reply.
func (h *hook) waits() bool { return h.Action == engine.Agent && h.SyncResponse }

var ignoredBody = []byte(`{"status":"ignored"}`)

// ignore answers a request that a condition leaves out, counts it and notes it beside the refused ones.
func (q *hookRequest) ignore(w http.ResponseWriter, condition string) {
	in := q.in
	status := q.successStatus(http.StatusOK)
	given := q.custom.answer != nil && !q.custom.waits()
	if given {
		status = q.custom.answer.status
	}
	in.service.engine.NoteIgnored(q.name)
	in.noteIgnored(q, status, condition)
	switch {
	case given:
		q.writeGiven(w)
	case status == http.StatusNoContent:
		w.WriteHeader(status)
	default:
		writeBody(w, status, "application/json", ignoredBody)
	}
}

// write answers the sender that tries out a hook.
func (a *schemeAnswer) write(w http.ResponseWriter) {
	writeAny(w, a.status, a.contentType, []byte(a.body))
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
	return q.in.path + "/"
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
func outcomeError(outcome engine.Outcome) *httpError {
	status := http.StatusBadGateway
	switch {
	case outcome.Status == engine.TimedOut, outcome.Status == engine.Expired:
		status = http.StatusGatewayTimeout
	case outcome.Failure == engine.SchemaUnmet:
		status = http.StatusUnprocessableEntity
	case outcome.Failure == engine.RunnerUnavailable, outcome.Failure == engine.ShuttingDown:
		status = http.StatusServiceUnavailable
	}
	return &httpError{status: status, message: outcome.Message, retryAfter: outcome.RetryAfter, ofRun: true}
}

// writeJSON answers with a value that always encodes.
func writeJSON(w http.ResponseWriter, status int, value any) {
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
