// Package httpcall has what the runners with a URL share: the client and its TLS options, headers, how far a request has come, how
// long an agent may be silent, and the body of an answer.
//
// Of the runners it imports answers alone.
package httpcall

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// NewClient returns the client of a runner with a URL.
func NewClient(secure *ServerTLS) (*http.Client, error) {
	tlsConfig, err := secure.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     tlsConfig,
			MaxIdleConnsPerHost: 256,
			// Shorter than the five seconds after which Node closes an idle connection: a turn sent into a connection that
			// is being closed is a turn that failed.
			IdleConnTimeout:     4 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		// A redirect would turn the POST into a GET, or carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// CallError is the error of a turn that has no answer.
func CallError(err error, started bool) error {
	switch {
	case !started: // whatever the reason
		return &engine.UnavailableError{Err: fmt.Errorf("reaching the runner: %w", err)}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return ErrNoAnswer
	default:
		return fmt.Errorf("calling the runner: %w", err)
	}
}

// TooManyWords is the error for a runner that takes one word after its kind and got these.
func TooManyWords(kind, takes string, words []string) string {
	if words[0] == kind {
		return fmt.Sprintf("%s stands twice: a kind of runner cannot be the name of one; leave one out, or choose a name, as in: runner big %s …", kind, kind)
	}
	return fmt.Sprintf("runner %s takes %s, and the rest in its block; a name stands before the kind, as in: runner big %s …", kind, takes, kind)
}

// ErrNoAnswer is the error of a turn whose connection was closed before an answer came.
var ErrNoAnswer = errors.New("the runner closed the connection without an answer")
