// Package sse reads server-sent events, with bounds, and writes them to clients that may be slow or gone. It ends all streams when a
// server stops. It imports the standard library alone.
package sse

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// EventWriter writes to a stream. A client that does not read is cut off, at once when the streams are to end: a server that
// shuts down waits for it.
type EventWriter struct {
	W          http.ResponseWriter
	controller *http.ResponseController
	end        *StreamEnd
	unwatch    func()

	mu      sync.Mutex
	timer   *time.Timer // cuts off a write that takes too long; nil before the first one
	writing bool
	cut     bool
}

// WritePatience is how long a client may take to read a frame. Tests shorten it.
var WritePatience = 5 * time.Second

// byePatience is the same when the streams are to end.
const byePatience = 500 * time.Millisecond

func NewEventWriter(w http.ResponseWriter, end *StreamEnd) *EventWriter {
	out := &EventWriter{W: w, controller: http.NewResponseController(w), end: end}
	// A server with a read timeout would take the stream for a request that does not arrive.
	_ = out.controller.SetReadDeadline(time.Time{})
	out.unwatch = end.WhenOver(out.hurry)
	return out
}

// Begin sends the headers of a stream, and those that were set before.
func (out *EventWriter) Begin() {
	h := out.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // a proxy in between must not keep events
	out.W.WriteHeader(http.StatusOK)
}

// Close ends the use of the writer.
func (out *EventWriter) Close() { out.unwatch() }

func (out *EventWriter) patience() time.Duration {
	if out.end.isOver() {
		return byePatience
	}
	return WritePatience
}

// hurry gives a write that is under way less time.
func (out *EventWriter) hurry() {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.writing {
		out.timer.Reset(out.patience())
	}
}

// cutOff ends a write that takes too long. A deadline that is set before the write would not do: Caddy has one of its own for
// each part of a write, of a minute.
func (out *EventWriter) cutOff() {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.writing {
		out.cut = true
		_ = out.controller.SetWriteDeadline(time.Now()) // all servers of Caddy can
		out.timer.Reset(out.patience())                 // if Caddy has just begun with the next part
	}
}

var errCutOff = errors.New("the client does not read")

func (out *EventWriter) Write(text []byte) error {
	out.mu.Lock()
	out.writing = true
	if out.timer == nil {
		out.timer = time.AfterFunc(out.patience(), out.cutOff)
	} else {
		out.timer.Reset(out.patience())
	}
	out.mu.Unlock()
	_, err := out.W.Write(text) //nolint:gosec // a stream of events is not markup
	if err == nil {
		err = out.controller.Flush()
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	out.writing = false
	out.timer.Stop()
	if out.cut {
		return errCutOff
	}
	return err
}
