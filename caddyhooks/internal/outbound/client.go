package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Client sends callbacks. It follows no redirect, uses no proxy, and never sends anything twice by itself. It is safe
// for concurrent use.
type Client struct {
	guard     *Guard
	timeout   time.Duration
	signer    Signer
	transport *http.Transport
}

const (
	defaultTimeout = 15 * time.Second
	connectTimeout = 5 * time.Second
	drainTimeout   = time.Second
)

// NewClient returns a client whose attempts take the given time at most, or 15 seconds if that is 0. Each secret, in
// the form whsec_<base64>, adds a signature; without secrets callbacks are not signed.
func NewClient(guard *Guard, timeout time.Duration, secrets []string) (*Client, error) {
	signer, err := NewSigner(secrets)
	if err != nil {
		return nil, err
	}
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &Client{
		guard:   guard,
		timeout: timeout,
		signer:  signer,
		transport: &http.Transport{
			Proxy:                  nil, // a proxy would dial in our place, past the guard
			DialContext:            guard.dial,
			TLSHandshakeTimeout:    connectTimeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // a few KiB of the answer are kept: nothing to gain from inflating them
			MaxResponseHeaderBytes: 64 << 10,
			// Callbacks go to many hosts, in bursts to a few of them.
			MaxIdleConns:        256,
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     30 * time.Second,
		},
	}, nil
}

// dial connects to an address that is allowed.
func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: g.Control}
	conn, err := dialer.DialContext(ctx, network, address)
	if errors.Is(err, errNotPublic) && isLocalhost(address) {
		err = errLocalhost
	}
	return conn, err
}

// Close drops the connections kept for further callbacks. Attempts under way are not disturbed.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Post makes one attempt at delivering the callback, and returns the outcome. The body must not be changed afterwards: an
// attempt that was given up may still be reading it.
func (c *Client) Post(ctx context.Context, cb Callback) Outcome {
	// Checked again, because the allowance may have changed since the callback was accepted.
	if err := c.guard.CheckURL(cb.URL); err != nil {
		return Outcome{Final: true, Reason: err.Error()}
	}
	req, err := cb.request(ctx, c.signer)
	if err != nil {
		return Outcome{Final: true, Reason: "the callback URL is not a valid URL"}
	}
	return SendOnce(c.transport, req, c.timeout)
}

// SendOnce sends a request and returns the outcome. It follows no redirect, does not repeat the request, and reads no more of
// the answer than an Outcome holds.
func SendOnce(transport http.RoundTripper, req *http.Request, timeout time.Duration) Outcome {
	ctx := req.Context()
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req = req.WithContext(attempt)
	// With a GetBody the transport might send the body a second time when a connection breaks.
	req.GetBody = nil
	// The transport is used without an http.Client around it, which would only add redirects and cookies.
	resp, err := transport.RoundTrip(req)
	switch {
	case err == nil:
		defer resp.Body.Close()
		if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
			// The callback has arrived. The rest is read for a short time, so that the connection can be used again.
			defer time.AfterFunc(drainTimeout, cancel).Stop()
		}
		return outcomeOfAnswer(resp, time.Now())
	case ctx.Err() != nil:
		return Outcome{Reason: "the attempt was stopped before the answer came"}
	case attempt.Err() != nil:
		return Outcome{Unreachable: true, Reason: "no answer within " + timeout.String()}
	default:
		return outcomeOfError(err)
	}
}
