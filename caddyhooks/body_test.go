package caddyhooks

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
		{"over a limit of Caddy's", iotest.ErrReader(&http.MaxBytesError{Limit: 10}), -1, 413},
		{"stalled", iotest.ErrReader(os.ErrDeadlineExceeded), -1, 408},
		{"cut off", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)), 10, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := readBody(httptest.NewRecorder(), &http.Request{Body: io.NopCloser(tc.body), ContentLength: tc.length}, limit)
				var a *httpError
				if errors.As(err, &a) {
					if a.status != tc.want {
						t.Errorf("got %d, want %d", a.status, tc.want)
					}
				} else if err != nil || tc.want != 0 {
					t.Errorf("got %v, want %d", err, tc.want)
				} else if !bytes.Equal(b.Bytes(), []byte(strings.Repeat("x", max(0, b.Len())))) {
					t.Errorf("got %q", b.Bytes())
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
