package ingress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
)

func TestBodiesAreReadWithinBounds(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for _, tc := range []struct {
		name   string
		body   io.Reader
		length int64
		want   int // status, 0 for a body that is taken
	}{
		{"empty", strings.NewReader(""), 0, 0},
		{"as large as may be", strings.NewReader(strings.Repeat("x", limit)), limit, 0},
		{"of unknown length", strings.NewReader(strings.Repeat("x", limit)), -1, 0},
		{"byte by byte", iotest.OneByteReader(strings.NewReader(strings.Repeat("x", limit))), -1, 0},
		{"announced too large", iotest.ErrReader(errors.New("must not be read")), limit + 1, 413},
		{"too large", strings.NewReader(strings.Repeat("x", limit+1)), -1, 413},
		{"endless", endless{}, -1, 413},
		{"larger than it was announced", strings.NewReader(strings.Repeat("x", limit+1)), 10, 413},
		{"beside others", strings.NewReader(strings.Repeat("x", limit/2+1)), limit/2 + 1, 503},
		{"byte by byte beside others", iotest.OneByteReader(strings.NewReader(strings.Repeat("x", limit/2+1))), -1, 503},
		{"over a limit of Caddy's", iotest.ErrReader(&http.MaxBytesError{Limit: 10}), -1, 413},
		{"stalled", iotest.ErrReader(os.ErrDeadlineExceeded), -1, 408},
		{"cut off", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)), 10, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := &intake.Memory{Limit: limit}
				others := int64(0)
				if strings.HasSuffix(tc.name, "beside others") {
					others = limit / 2
					memory.Used.Store(others)
				}
				b, err := readBody(httptest.NewRecorder(), &http.Request{Body: io.NopCloser(tc.body), ContentLength: tc.length}, limit, memory)
				if used := memory.Used.Load() - others; err != nil && used != 0 || err == nil && used != int64(len(b.bytes)) {
					t.Errorf("%d bytes are counted after %v", used, err)
				}
				var a *api.Error
				if errors.As(err, &a) {
					if a.Status != tc.want {
						t.Errorf("got %d, want %d", a.Status, tc.want)
					}
				} else if err != nil || tc.want != 0 {
					t.Errorf("got %v, want %d", err, tc.want)
				} else if !bytes.Equal(b.bytes, []byte(strings.Repeat("x", len(b.bytes)))) {
					t.Errorf("got %q", b.bytes)
				}
			})
		})
	}
}

// The bytes of a body that cannot be read to its end are given back, whatever happens.
func TestBytesOfABodyAreGivenBackWhenReadingItPanics(t *testing.T) {
	t.Parallel()
	memory := &intake.Memory{Limit: 1000}
	func() {
		defer func() { _ = recover() }()
		_, _ = readBody(httptest.NewRecorder(), &http.Request{Body: io.NopCloser(&panicking{}), ContentLength: 100}, 1000, memory)
	}()
	if used := memory.Used.Load(); used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
}

// panicking gives ten bytes before it panics.
type panicking struct{ read bool }

func (p *panicking) Read(b []byte) (int, error) {
	if p.read {
		panic("no more")
	}
	p.read = true
	return 10, nil
}

// A body takes at most twice the memory of what has come of it, however large it is said to become, and a whole one takes
// no more than its length.
func TestBufferOfABodyGrowsWithWhatHasCome(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{-1, 1 << 20} {
		b := &body{memory: &intake.Memory{Limit: 1 << 30}}
		clock := startBodyClock(httptest.NewRecorder(), bodyTime())
		defer clock.stop()
		source := &watchedBody{Reader: strings.NewReader(strings.Repeat("x", 1<<20)), look: func() {
			if most := max(2*len(b.bytes)+1, 4<<10); cap(b.bytes) > most {
				t.Errorf("%d bytes of memory for %d that have come", cap(b.bytes), len(b.bytes))
			}
		}}
		if err := b.readAll(source, length, 1<<20, clock); err != nil || len(b.bytes) != 1<<20 || cap(b.bytes) > 1<<20+8<<10 {
			t.Errorf("got %d bytes in a buffer of %d, %v", len(b.bytes), cap(b.bytes), err)
		}
	}
}

type watchedBody struct {
	io.Reader
	look func()
}

func (w *watchedBody) Read(p []byte) (int, error) {
	w.look()
	return w.Reader.Read(p[:min(len(p), 1000)])
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
