package ingress

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
)

var errEventsWithSchema = &api.Error{Status: http.StatusNotAcceptable,
	Message: "An answer with responseJsonSchema cannot be streamed: it is checked, and may be repaired, before it is sent. Add " +
		"application/json to Accept, or leave out the schema.",
	Reason: "an answer with a schema cannot be streamed"}

// wantsStream reports whether the caller of a run gets server-sent events. A checked answer comes whole, to all who take JSON.
func wantsStream(r *http.Request, run *engine.Run) (bool, error) {
	switch accept := r.Header["Accept"]; {
	case !run.Sync, !api.WantsEvents(accept), run.Schema != nil && api.AcceptsJSON(accept):
		return false, nil
	case run.Schema != nil:
		return false, errEventsWithSchema
	default:
		return true, nil
	}
}

// submitStreaming gives a run to the engine, and answers a waiting caller with server-sent events: all that the run says, and
// then its result, or an error where a plain answer would have another status. The stream begins when the run is stored; until
// then errors are ordinary answers. Unlike other streams it outlives a reload, as plain answers do.
func (q *hookRequest) submitStreaming(w http.ResponseWriter, r *http.Request, run *engine.Run, revision int64) error {
	e := q.in.Service.Engine
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	following, unfollow := context.WithCancel(ctx)
	defer unfollow()
	var stream *runStream
	var follower sync.WaitGroup
	said := make(chan struct{}) // closed when the caller has all that the run says
	outcome, err := e.Do(ctx, run, revision, func() {
		q.noteStored(r, run)
		stream = newRunStream(w, sse.NewStreamEnd())
		follower.Go(func() {
			defer close(said)
			var gone *clientGoneError
			if err := stream.tell(following, e, run); errors.As(err, &gone) {
				cancel() // a caller that does not read has gone away
			}
		})
	})
	var duplicate *engine.DuplicateError
	var closed *gate.ClosedError
	switch {
	case errors.As(err, &duplicate):
		return q.replay(w, r, duplicate)
	case errors.As(err, &closed):
		return q.answerClosed(w, r, closed)
	case stream == nil:
		return err
	}
	defer stream.close()
	// The worker tells the outcome a moment before the end of the run is known to all who follow it.
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-said:
	case <-timer.C:
	case <-ctx.Done():
	}
	unfollow()
	follower.Wait()
	switch q.sentStatus = stream.end(r.Context(), q.in, run, outcome, err); {
	case q.sentStatus == statusCallerGone:
		observe.NoteStatus(r, observe.RequestGone)
	case err == nil:
		observe.NoteStatus(r, observe.RequestStatus(outcome.Status))
	}
	return nil
}

// lastWords is how long the end of a run may take to reach those who follow it.
const lastWords = 2 * time.Second

// tell begins a stream for a waiting caller, and follows the run.
func (s *runStream) tell(ctx context.Context, e *engine.Engine, run *engine.Run) error {
	nameRun(s.out.W.Header(), run)
	if err := s.begin(); err != nil {
		return &clientGoneError{err}
	}
	return s.follow(ctx, e, run.ID, 0)
}

// end sends the last event: how the run ended, or why that is not known. It returns the status that a plain answer would have
// if that is an error, otherwise 0.
func (s *runStream) end(ctx context.Context, in *service.Instance, run *engine.Run, outcome engine.Outcome, err error) (status int) {
	if err == nil && outcome.Status == engine.Completed {
		record, err := in.Service.Engine.Find(ctx, run.ID, 0)
		if err != nil || record.Status != engine.Completed { // its end could not be stored
			record = &engine.Record{Run: run, Status: outcome.Status, Attempts: 1, FinishedAt: time.Now(), Outcome: outcome}
		}
		_ = s.out.Write(resultFrame(record))
		return 0
	}
	if err == nil {
		err = outcomeError(outcome)
	}
	answer := answerTo(err, in.Log)
	if answer == nil || ctx.Err() != nil {
		return statusCallerGone
	}
	var frame bytes.Buffer
	service.WriteEvent(&frame, "error", resultID, struct {
		Status       int    `json:"status"`
		ErrorMessage string `json:"errorMessage"`
	}{answer.Status, answer.Message})
	_ = s.out.Write(frame.Bytes())
	return answer.Status
}

// replayStreaming tells a caller who repeats a request how the first run with its key goes, or went.
func (q *hookRequest) replayStreaming(w http.ResponseWriter, r *http.Request, first *engine.Record) {
	in := q.in
	stream := newRunStream(w, sse.NewStreamEnd())
	defer stream.close()
	q.stored = true
	q.release()
	err := stream.tell(r.Context(), in.Service.Engine, first.Run)
	outcome := first.Outcome
	if err == nil && !first.Status.Ended() {
		var ended *engine.Record
		if ended, err = in.Service.Engine.Find(r.Context(), first.Run.ID, 0); err == nil {
			outcome = ended.Outcome
		}
	}
	q.sentStatus = stream.end(r.Context(), in, first.Run, outcome, err)
}
