package hookstest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Receiver is a web server that keeps the callbacks it gets.
type Receiver struct {
	*httptest.Server
	t   testing.TB
	Got chan Received
}

// Received is a callback as a receiver sees it.
type Received struct {
	Path   string
	Header http.Header
	Body   string
}

// StartReceiver starts a receiver that takes every callback.
func StartReceiver(t testing.TB) *Receiver {
	t.Helper()
	rc := &Receiver{t: t, Got: make(chan Received, 1000)}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rc.Got <- Received{r.URL.RequestURI(), r.Header.Clone(), string(body)}
	}))
	t.Cleanup(rc.Server.Close)
	return rc
}

// Next waits for the next callback.
func (rc *Receiver) Next() Received {
	rc.t.Helper()
	select {
	case got := <-rc.Got:
		return got
	case <-time.After(patience):
		rc.t.Fatal("no callback came")
		return Received{}
	}
}
