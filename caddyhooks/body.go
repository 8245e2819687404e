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

// body is the body of a request. Its bytes are good until it is released.
type body struct {
	bytes.Buffer
}

var bodies = sync.Pool{New: func() any { return new(body) }}

const (
	// maxBodyTime bounds how long a body may take in all. One that stalls is ended by Caddy's own idle timeout.
	maxBodyTime = 30 * time.Second
	// maxPooledBody is how much memory a body may leave behind for the next one.
	maxPooledBody = 128 << 10
)

// readBody reads the body of a request if it is not larger than limit.
func readBody(r *http.Request, limit int64) (*body, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	b := bodies.Get().(*body)
	b.Reset()
	// What Content-Length says is not worth much memory before the bytes are here.
	b.Grow(int(min(max(r.ContentLength+1, 512), 4<<10)))
	start := time.Now()
	for {
		if b.Available() == 0 {
			b.Grow(b.Len())
		}
		free := b.AvailableBuffer()
		n, err := r.Body.Read(free[:cap(free)])
		b.Write(free[:n])
		switch {
		case int64(b.Len()) > limit:
			err = tooLarge(limit)
		case err == nil && time.Since(start) > maxBodyTime:
			err = errSlowBody
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return b, nil
			}
			b.release()
			return nil, bodyError(err)
		}
	}
}

// bodyError is the answer to a body that could not be read.
func bodyError(err error) error {
	var a *answer
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
	return &answer{status: http.StatusRequestEntityTooLarge,
		message: fmt.Sprintf("The body is larger than the %s (%d bytes) that this webhook takes.", humanize.IBytes(uint64(limit)), limit)}
}

func (b *body) release() {
	if b.Cap() <= maxPooledBody {
		bodies.Put(b)
	}
}
