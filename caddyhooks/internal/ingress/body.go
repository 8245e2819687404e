package ingress

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// body is the body of a request. Its bytes are valid until it is released.
type body struct {
	bytes  []byte
	memory *intake.Memory // where they are counted
}

var bodies = sync.Pool{New: func() any { return new(body) }}

// maxBodyTime is the longest time for reading a body.
const maxBodyTime = 30 * time.Second

// ShorterBodyTime is set by tests, while connections of HTTP/3 may still be served. 0 is none.
var ShorterBodyTime atomic.Int64

func bodyTime() time.Duration { return cmp.Or(time.Duration(ShorterBodyTime.Load()), maxBodyTime) }

// maxPooledBody is the largest buffer that is kept for the next body.
const maxPooledBody = 128 << 10

// readBody reads the body of a request if it is not encoded and not larger than limit, and if memory has room for it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, memory *intake.Memory) (*body, error) {
	if err := checkEncoding(r.Header["Content-Encoding"]); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	b := bodies.Get().(*body)
	b.memory = memory
	complete := false
	defer func() {
		if !complete {
			b.release()
		}
	}()
	clock := startBodyClock(w, bodyTime())
	err := b.readAll(r.Body, r.ContentLength, limit, clock)
	if late := clock.stop(); late && err != nil {
		err = errSlowBody
	}
	if err != nil {
		return nil, bodyError(err)
	}
	complete = true
	return b, nil
}

// checkEncoding refuses a body that is compressed, or encoded in another way. A small one could become a large one.
func checkEncoding(values []string) error {
	for _, value := range values {
		for encoding := range strings.SplitSeq(value, ",") {
			encoding = strings.Trim(encoding, " \t")
			if encoding != "" && !strings.EqualFold(encoding, "identity") {
				return &api.Error{Status: http.StatusUnsupportedMediaType, Header: [2]string{"Accept-Encoding", "identity"},
					Message: fmt.Sprintf("The Content-Encoding %q is not accepted: send the body as it is, not compressed.", text.Abridge(encoding)),
					Reason:  "the body has a Content-Encoding, such as gzip"}
			}
		}
	}
	return nil
}

// readAll reads a body whose length was announced, or is -1.
func (b *body) readAll(r io.Reader, length, limit int64, clock *bodyClock) error {
	expected := int(limit)
	if length >= 0 {
		expected = int(length)
	}
	for {
		if len(b.bytes) == cap(b.bytes) {
			b.grow(expected)
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		fits := b.memory.Add(n)
		switch {
		case int64(len(b.bytes)) > limit:
			return tooLarge(limit)
		case n > 0 && !fits:
			return errBodiesFull
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case clock.isLate():
			return errSlowBody // the deadline fell between two reads
		}
	}
}

// grow doubles the buffer, but not beyond the expected length, which leaves room to find the end. A caller can announce any
// length, so it does not decide how much memory is taken.
func (b *body) grow(expected int) {
	size := max(2*cap(b.bytes), 4<<10)
	if len(b.bytes) <= expected {
		size = min(size, max(expected+1, 512))
	}
	b.bytes = append(make([]byte, 0, size), b.bytes...)
}

// bodyClock ends the reading of a body that takes too long. Caddy's idle timeout is longer, and slow bytes reset it.
type bodyClock struct {
	timer *time.Timer
	conn  *http.ResponseController

	mu      sync.Mutex
	stopped bool
	late    bool
}

func startBodyClock(w http.ResponseWriter, patience time.Duration) *bodyClock {
	c := &bodyClock{conn: http.NewResponseController(w)}
	c.timer = time.AfterFunc(patience, func() {
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
	var a *api.Error
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
	return &api.Error{Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("The body is larger than the %s (%d bytes) that this webhook takes.", humanize.IBytes(uint64(limit)), limit),
		Reason:  fmt.Sprintf("the body is larger than %d bytes (max_request for wake and agent, max_payload for custom hooks)", limit)}
}

func (b *body) release() {
	b.memory.Remove(len(b.bytes))
	b.bytes, b.memory = b.bytes[:0], nil
	if cap(b.bytes) <= maxPooledBody {
		bodies.Put(b)
	}
}
