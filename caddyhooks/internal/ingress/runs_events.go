package ingress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
)

// serveRunEvents answers GET runs/<id>/events with server-sent events: all that the run says, and its result in the end.
//
// The stream ends early when the configuration is replaced, or when the token is not valid any more. Clients come back by
// themselves, with the id of the last event, and miss nothing.
func (q *hookRequest) serveRunEvents(w http.ResponseWriter, r *http.Request, active *settings.Active, id string) error {
	in := q.in
	record, err := in.Service.Engine.Find(r.Context(), id, 0)
	if err != nil {
		return runError(in, err)
	}
	after := lastEventID(r.Header["Last-Event-Id"])
	if after == resultID {
		if record.Status.Ended() {
			q.answered = http.StatusNoContent
			w.WriteHeader(q.answered) // browsers do not come back after that
			return nil
		}
		after = 0
	}
	readers := in.Service.RunStreams.Open(id)
	if readers == nil {
		return errTooManyStreams
	}
	defer in.Service.RunStreams.Close(readers)
	stream := newRunStream(w, in.StreamEnd)
	defer stream.close()
	stream.readers = readers
	if r.ProtoMajor == 1 {
		// Without chunks, which would take three writes for a long frame. The connection is closed after the last event.
		w.Header().Set("Transfer-Encoding", "identity")
	}
	if stream.begin() != nil {
		return nil // the client is gone, and cannot be told
	}
	if record.Status.Ended() && after == 0 {
		_ = stream.out.Write(resultFrame(record))
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer in.StreamEnd.WhenOver(cancel)()
	stream.check = func() error {
		now := in.Active.Load()
		if now == active {
			return nil
		}
		active = now
		if !active.On {
			return errUnknownHook
		}
		return active.Bearer.Authenticate(&auth.Request{Header: r.Header, Now: time.Now()})
	}
	err = stream.follow(ctx, in.Service.Engine, id, after)
	var result []byte
	if err == nil {
		result, err = readers.Result(func() ([]byte, error) { return endedRun(ctx, in, id) })
	}
	if err != nil {
		_ = stream.comment("reconnect")
		return nil
	}
	_ = stream.out.Write(result)
	return nil
}

// endedRun is the last frame of a run that has ended.
func endedRun(ctx context.Context, in *service.Instance, id string) ([]byte, error) {
	record, err := in.Service.Engine.Find(ctx, id, 0)
	if err == nil && !record.Status.Ended() {
		err = errors.New("the run has not ended")
	}
	if err != nil {
		return nil, err
	}
	return resultFrame(record), nil
}

// resultID is the id of the last event of every run. It is the largest number that is exact in JavaScript.
const resultID = 1<<53 - 1

// lastEventID reads the id of the last event that a client got. It is 0 if there is none, or one that was never sent.
func lastEventID(values []string) int64 {
	if len(values) != 1 || len(values[0]) > len("9007199254740991") {
		return 0
	}
	id, err := strconv.ParseUint(values[0], 10, 53)
	if err != nil {
		return 0
	}
	return int64(id)
}

var errTooManyStreams = api.Busy(5*time.Second, "Too many event streams are open; try again later.", "too many event streams of runs "+
	"are open")

// runStream writes the events of a run to a client.
type runStream struct {
	out *sse.EventWriter

	// readers are all streams of the run. It is nil for a caller of its own.
	readers *service.RunReaders

	// check is asked before anything is written whether the client may still have it. It may be nil.
	check func() error
}

// newRunStream makes a stream that has to be closed. A client that does not read is cut off, at once when end is over.
func newRunStream(w http.ResponseWriter, end *sse.StreamEnd) *runStream {
	return &runStream{out: sse.NewEventWriter(w, end)}
}

func (s *runStream) close() { s.out.Close() }

// begin sends the headers, and how soon clients should come back.
func (s *runStream) begin() error {
	s.out.Begin()
	return s.out.Write([]byte("retry: 1000\n\n"))
}

// clientGoneError says that a stream has no client any more.
type clientGoneError struct{ error }

// follow sends what a run says until it has ended, with a sign of life while it says nothing. A *clientGoneError says that
// the client did not take it.
func (s *runStream) follow(ctx context.Context, e *engine.Engine, id string, after int64) error {
	events := e.Follow(id, after)
	defer events.Close()
	for {
		news, err := events.NextWithin(ctx, api.PingEvery)
		switch {
		case errors.Is(err, io.EOF):
			return s.allow()
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
		if err := s.allow(); err != nil {
			return err
		}
		if err := s.send(news); err != nil {
			return &clientGoneError{err}
		}
	}
}

// allow asks whether the client may have more.
func (s *runStream) allow() error {
	if s.check == nil {
		return nil
	}
	return s.check()
}

// send sends events, or a sign of life if there are none.
func (s *runStream) send(events []engine.Event) error {
	if len(events) == 0 {
		return s.comment("ping")
	}
	if s.readers != nil && s.readers.Count.Load() > 1 {
		return s.out.Write(s.readers.Frame(events))
	}
	frames := framePool.Get().(*bytes.Buffer)
	defer func() {
		frames.Reset()
		framePool.Put(frames)
	}()
	service.WriteEvents(frames, events)
	return s.out.Write(frames.Bytes())
}

// framePool has buffers for frames. The engine bounds the text of an event.
var framePool = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (s *runStream) comment(text string) error {
	return s.out.Write([]byte(": " + text + "\n\n"))
}

// resultFrame is the last event of a run that has ended: the run, as the run API shows it.
func resultFrame(record *engine.Record) []byte {
	var frame bytes.Buffer
	service.WriteEvent(&frame, "result", resultID, api.NewRun(record))
	return frame.Bytes()
}
