package runners

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// newClient returns the client of a runner with a URL.
func newClient(secure *ServerTLS) (*http.Client, error) {
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

// post sends the request of a turn to the URL.
func (h *HTTP) post(req *http.Request, way *sending) (*http.Response, error) {
	// Redirects are not followed and there are no cookies, so a client would add nothing but work.
	resp, err := h.client.Transport.RoundTrip(req)
	if err != nil {
		return nil, callError(err, way.begun())
	}
	return resp, nil
}

// callError is the error of a turn that has no answer.
func callError(err error, begun bool) error {
	switch {
	case !begun: // whatever the reason
		return &engine.UnavailableError{Err: fmt.Errorf("reaching the runner: %w", err)}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errNoAnswer
	default:
		return fmt.Errorf("calling the runner: %w", err)
	}
}
