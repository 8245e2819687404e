package caddyhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
)

// serveRunEvents answers GET runs/<id>/events with server-sent events: all that the run says, and its result in the end.
//
// The stream ends early when the configuration is replaced, or when the token is not valid any more. Clients come back by
// themselves, with the id of the last event, and miss nothing.
func (q *hookRequest) serveRunEvents(w http.ResponseWriter, r *http.Request, active *settings.Active, id string) error {
	in := q.in
	record, err := in.service.engine.Find(r.Context(), id, 0)
	if err != nil {
		return in.runError(err)
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
	readers := in.service.runStreams.open(id)
	if readers == nil {
		return errTooManyStreams
	}
	defer in.service.runStreams.close(readers)
	stream := newRunStream(w, in.streamEnd)
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
	defer in.streamEnd.WhenOver(cancel)()
	stream.check = func() error {
		now := in.active.Load()
		if now == active {
			return nil
		}
		active = now
		if !active.On {
			return errUnknownHook
		}
		return active.Bearer.Authenticate(&auth.Request{Header: r.Header, Now: time.Now()})
	}
	err = stream.follow(ctx, in.service.engine, id, after)
	var result []byte
	if err == nil {
		result, err = readers.result(func() ([]byte, error) { return in.endedRun(ctx, id) })
	}
	if err != nil {
		_ = stream.comment("reconnect")
		return nil
	}
	_ = stream.out.Write(result)
	return nil
}

// endedRun is the last frame of a run that has ended.
func (in *instance) endedRun(ctx context.Context, id string) ([]byte, error) {
	record, err := in.service.engine.Find(ctx, id, 0)
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

var errTooManyStreams = api.Busy(5*time.Second, "Too many event streams are open; try again later.", "too many event streams of runs are open")

// maxRunStreams bounds the open event streams of the runs of an instance.
const maxRunStreams = 4096

// runStreams counts the open event streams of runs. They are clients of an instance, of its old and its new configuration.
type runStreams struct {
	mu      sync.Mutex
	count   int
	readers map[string]*runReaders // by the id of the run
}

// runReaders are the streams of one run. They share its result: a thousand of them would have a thousand copies of it.
type runReaders struct {
	id    string
	count atomic.Int32 // changed under the lock of runStreams

	mu   sync.Mutex
	last []byte // their last frame, nil until one of them needs it

	framing sync.Mutex
	frames  [2]sharedFrame // those that were made last
	oldest  int            // of them
}

// sharedFrame is a frame that is sent to many.
type sharedFrame struct {
	name frameName
	text []byte
}

// frameName tells apart the frames of a run: an event is known by its kind, its place, and the length of its text.
type frameName struct {
	events      int
	first, last struct {
		id     int64
		kind   engine.EventKind
		status string
		length int
	}
}

func nameFrame(events []engine.Event) (name frameName) {
	name.events = len(events)
	first, last := &events[0], &events[len(events)-1]
	name.first.id, name.first.kind, name.first.status, name.first.length = first.ID, first.Kind, first.Status, len(first.Text)
	name.last.id, name.last.kind, name.last.status, name.last.length = last.ID, last.Kind, last.Status, len(last.Text)
	return name
}

// frame returns events as they are sent. Readers that are at the same place share it.
func (r *runReaders) frame(events []engine.Event) []byte {
	name := nameFrame(events)
	r.framing.Lock()
	defer r.framing.Unlock()
	for i := range r.frames {
		if shared := &r.frames[i]; shared.name == name {
			return shared.text
		}
	}
	var text bytes.Buffer
	writeEvents(&text, events)
	r.frames[r.oldest] = sharedFrame{name, text.Bytes()}
	r.oldest = (r.oldest + 1) % len(r.frames)
	return text.Bytes()
}

// open counts one more stream of a run. It returns nil if there are too many.
func (s *runStreams) open(id string) *runReaders {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == maxRunStreams {
		return nil
	}
	s.count++
	readers := s.readers[id]
	if readers == nil {
		readers = &runReaders{id: id}
		if s.readers == nil {
			s.readers = make(map[string]*runReaders)
		}
		s.readers[id] = readers
	}
	readers.count.Add(1)
	return readers
}

// streamCount is how many are open.
func (s *runStreams) streamCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *runStreams) close(readers *runReaders) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if readers.count.Add(-1) == 0 {
		delete(s.readers, readers.id)
	}
}

// result returns the last frame, which is made once.
func (r *runReaders) result(show func() ([]byte, error)) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		return r.last, nil
	}
	last, err := show()
	r.last = last
	return last, err
}

// runStream writes the events of a run to a client.
type runStream struct {
	out *sse.EventWriter

	// readers are all streams of the run. It is nil for a caller of its own.
	readers *runReaders

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
	if s.readers != nil && s.readers.count.Load() > 1 {
		return s.out.Write(s.readers.frame(events))
	}
	frames := framePool.Get().(*bytes.Buffer)
	defer func() {
		frames.Reset()
		framePool.Put(frames)
	}()
	writeEvents(frames, events)
	return s.out.Write(frames.Bytes())
}

// framePool has buffers for frames. The engine bounds the text of an event.
var framePool = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeEvents adds events of a run.
func writeEvents(to *bytes.Buffer, events []engine.Event) {
	for i := range events {
		event := &events[i]
		if event.Kind == engine.EventStatus {
			writeEvent(to, string(event.Kind), event.ID, struct {
				Status string `json:"status"`
			}{event.Status})
		} else {
			writeEvent(to, string(event.Kind), event.ID, struct {
				Text string `json:"text"`
			}{event.Text})
		}
	}
}

// writeEvent adds an event whose data always encodes. It has no id if that is 0.
func writeEvent(to *bytes.Buffer, name string, id int64, data any) {
	to.WriteString("event: " + name + "\n")
	if id != 0 {
		to.WriteString("id: " + strconv.FormatInt(id, 10) + "\n")
	}
	to.WriteString("data: ")
	enc := json.NewEncoder(to) // which ends the line
	enc.SetEscapeHTML(false)
	_ = enc.Encode(data)
	to.WriteByte('\n')
}

func (s *runStream) comment(text string) error {
	return s.out.Write([]byte(": " + text + "\n\n"))
}

// resultFrame is the last event of a run that has ended: the run, as the run API shows it.
func resultFrame(record *engine.Record) []byte {
	var frame bytes.Buffer
	writeEvent(&frame, "result", resultID, api.NewRun(record))
	return frame.Bytes()
}
