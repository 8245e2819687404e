package sse

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener has one connection to accept.
type pipeListener struct {
	conns chan net.Conn
}

func (l *pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (*pipeListener) Close() error   { return nil }
func (*pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// A client that does not read is cut off after a while, and at once when the streams are to end.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		endAfter, want time.Duration
	}{
		"in the end":    {time.Hour, WritePatience},
		"when it stops": {time.Second, time.Second + byePatience},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end, took := NewStreamEnd(), make(chan time.Duration, 1)
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					out := NewEventWriter(w, end)
					defer out.Close()
					start := time.Now()
					for out.Write(make([]byte, 64<<10)) == nil {
					}
					took <- time.Since(start)
				})}
				listener := &pipeListener{make(chan net.Conn, 1)}
				here, there := net.Pipe()
				listener.conns <- there
				go func() { _ = server.Serve(listener) }()
				stop := time.AfterFunc(test.endAfter, func() { end.End("reload") })
				if _, err := here.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
				if got := <-took; got != test.want {
					t.Errorf("it was cut off after %v, want %v", got, test.want)
				}
				stop.Stop()
				close(listener.conns)
				here.Close()
				_ = server.Close()
			})
		})
	}
}
