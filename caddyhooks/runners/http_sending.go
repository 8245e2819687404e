package runners

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
)

// sending knows how far the request of a turn has come. Connections of net/http tell it by a trace. Those of FastCGI do not:
// there, a request has arrived if there was a connection and the body was read.
type sending struct {
	arrived func() // is called once, when the turn is with the agent
	heard   func() // is called for every sign of the agent

	mu        sync.Mutex
	traced    bool // net/http has the request
	wrote     bool // by the word of net/http
	answered  bool // the answer has begun
	dialed    bool
	connected bool
	read      bool // the body, to its end
	told      bool
	over      bool
	hints     int      // responses with a status of 100 to 199
	conn      net.Conn // the last one of net/http
}

// withTrace returns a context for the request. A request that net/http gets without detours needs less of a trace, and less still
// if nobody listens for silence.
func (s *sending) withTrace(ctx context.Context, routed, listening bool) context.Context {
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			s.note(func() { s.wrote = true })
		}
	}}
	if routed || listening {
		trace.GotFirstResponseByte = func() { s.note(func() { s.answered = true }) }
		trace.Got1xxResponse = s.gotHint
	}
	s.traced = !routed
	if routed {
		trace.GetConn = func(string) { s.note(func() { s.traced = true }) }
		trace.GotConn = func(info httptrace.GotConnInfo) { s.note(func() { s.conn = info.Conn }) }
		trace.ConnectStart = func(network, _ string) { s.note(func() { s.dialed = s.dialed || isStream(network) }) }
		trace.ConnectDone = func(network, _ string, err error) {
			if err == nil && isStream(network) {
				s.note(func() { s.connected = true })
			}
		}
	}
	return httptrace.WithClientTrace(ctx, trace)
}

// gotHint bounds the responses with a status of 100 to 199. If nobody asked for them, net/http would do so.
func (s *sending) gotHint(int, textproto.MIMEHeader) error {
	const most = 1000
	n := 0
	s.note(func() { s.hints++; n = s.hints })
	if n > most {
		return errTooManyHints
	}
	return nil
}

// isStream tells the connections of upstreams from those of name servers.
func isStream(network string) bool {
	return strings.HasPrefix(network, "tcp") || strings.HasPrefix(network, "unix")
}

// note changes the state, and tells who wants to know.
func (s *sending) note(change func()) {
	s.mu.Lock()
	change()
	begun, over := s.hasBegun(), s.over
	first := begun && !s.told
	s.told = begun || s.told
	s.mu.Unlock()
	switch {
	case over: // a handler that was left behind has no turn any more
	case first:
		s.arrived()
		s.heard()
	case begun:
		s.heard()
	}
}

// begun reports whether the agent may have begun with the turn.
func (s *sending) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasBegun()
}

func (s *sending) hasBegun() bool {
	return s.wrote || s.answered || !s.traced && s.read && (s.connected || !s.dialed)
}

// hangUp closes the connection.
func (s *sending) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// end is called when the turn is over.
func (s *sending) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// body is the body of the request, which tells when it was read.
func (s *sending) body(r io.Reader) io.ReadCloser { return &sentBody{r, s} }

// sentBody is the body of a request, which tells when it was read. It has no more to read when the turn is over.
type sentBody struct {
	io.Reader
	sending *sending
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.sending.mu.Lock()
	over := b.sending.over
	b.sending.mu.Unlock()
	if over {
		return 0, errTurnOver
	}
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.sending.note(func() { b.sending.read = true })
	}
	return n, err
}

func (b *sentBody) Close() error { return nil }

var errTooManyHints = errors.New("the runner answered 1xx too often")

var errTurnOver = errors.New("the turn is over")
