package caddyhooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
)

// body is the body of a request. Its bytes are valid until it is released.
type body struct {
	bytes.Buffer
}

var bodies = sync.Pool{New: func() any { return new(body) }}

// maxBodyTime is the longest time for reading a body. Tests shorten it.
var maxBodyTime = 30 * time.Second

// maxPooledBody is the largest buffer that is kept for the next body.
const maxPooledBody = 128 << 10

// readBody reads the body of a request if it is not larger than limit.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) (*body, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	b := bodies.Get().(*body)
	b.Reset()
	// A caller can announce any Content-Length, so it does not decide how much memory is taken.
	b.Grow(int(min(max(r.ContentLength+1, 512), 4<<10)))
	clock := startBodyClock(w)
	err := b.readAll(r.Body, limit, clock)
	if late := clock.stop(); late && err != nil {
		err = errSlowBody
	}
	if err != nil {
		b.release()
		return nil, bodyError(err)
	}
	return b, nil
}

func (b *body) readAll(r io.Reader, limit int64, clock *bodyClock) error {
	for {
		if b.Available() == 0 {
			b.Grow(b.Len())
		}
		free := b.AvailableBuffer()
		n, err := r.Read(free[:cap(free)])
		b.Write(free[:n])
		switch {
		case int64(b.Len()) > limit:
			return tooLarge(limit)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case clock.isLate():
			return errSlowBody // the deadline fell between two reads
		}
	}
}

// bodyClock ends the reading of a body that takes too long. Caddy's idle timeout is longer, and slow bytes reset it.
type bodyClock struct {
	timer *time.Timer
	conn  *http.ResponseController

	mu      sync.Mutex
	stopped bool
	late    bool
}

func startBodyClock(w http.ResponseWriter) *bodyClock {
	c := &bodyClock{conn: http.NewResponseController(w)}
	c.timer = time.AfterFunc(maxBodyTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.stopped {
			c.late = true
			_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // if the connection cannot be interrupted, readAll waits for it
		}
	})
	return c
}

func (c *bodyClock) isLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

// stop reports whether the time was up.
func (c *bodyClock) stop() (late bool) {
	c.timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.late {
		_ = c.conn.SetReadDeadline(time.Time{})
	}
	return c.late
}

// bodyError is the answer to a body that could not be read.
func bodyError(err error) error {
	var a *httpError
	var limited *http.MaxBytesError // by a request_body directive
	switch {
	case errors.As(err, &a):
		return a
	case errors.As(err, &limited):
		return tooLarge(limited.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlowBody
	default:
		return errCutBody
	}
}

func tooLarge(limit int64) error {
	return &httpError{status: http.StatusRequestEntityTooLarge,
		message: fmt.Sprintf("The body is larger than the %s (%d bytes) that this webhook takes.", humanize.IBytes(uint64(limit)), limit)}
}

func (b *body) release() {
	if b.Cap() <= maxPooledBody {
		bodies.Put(b)
	}
}
