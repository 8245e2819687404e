package httpcall

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

// Sending knows how far the request of a turn has come. Connections of net/http tell it by a trace. Those of FastCGI do not:
// there, a request has arrived if there was a connection and the body was read.
type Sending struct {
	Arrived func() // is called once, when the turn is with the agent; may be nil
	Heard   func() // is called for every sign of the agent

	mu        sync.Mutex
	traced    bool // net/http has the request
	wrote     bool // by the word of net/http
	answered  bool // the answer has started
	dialed    bool
	connected bool
	read      bool // the body, to its end
	announced bool
	ended     bool
	hints     int      // responses with a status of 100 to 199
	conn      net.Conn // the last one of net/http
}

// WithTrace returns a context for the request. A request that net/http gets without detours needs less of a trace, and less still
// if nobody listens for silence.
func (s *Sending) WithTrace(ctx context.Context, routed, listening bool) context.Context {
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
func (s *Sending) gotHint(int, textproto.MIMEHeader) error {
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
func (s *Sending) note(change func()) {
	s.mu.Lock()
	change()
	started, ended := s.mayHaveStarted(), s.ended
	first := started && !s.announced
	s.announced = started || s.announced
	s.mu.Unlock()
	switch {
	case ended: // a handler that was left behind has no turn any more
	case first:
		if s.Arrived != nil {
			s.Arrived()
		}
		s.Heard()
	case started:
		s.Heard()
	}
}

// MayHaveStarted reports whether the agent may have started with the turn.
func (s *Sending) MayHaveStarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayHaveStarted()
}

func (s *Sending) mayHaveStarted() bool {
	return s.wrote || s.answered || !s.traced && s.read && (s.connected || !s.dialed)
}

// HangUp closes the connection.
func (s *Sending) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

// End is called when the turn is over.
func (s *Sending) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// Body is the body of the request, which tells when it was read.
func (s *Sending) Body(r io.Reader) io.ReadCloser { return &sentBody{r, s} }

// sentBody is the body of a request, which tells when it was read. It has no more to read when the turn is over.
type sentBody struct {
	io.Reader
	sending *Sending
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.sending.mu.Lock()
	over := b.sending.ended
	b.sending.mu.Unlock()
	if over {
		return 0, ErrTurnOver
	}
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.sending.note(func() { b.sending.read = true })
	}
	return n, err
}

func (b *sentBody) Close() error { return nil }

var errTooManyHints = errors.New("the runner answered 1xx too often")

var ErrTurnOver = errors.New("the turn is over")
