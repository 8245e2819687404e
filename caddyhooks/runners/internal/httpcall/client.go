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
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// Client is the part that runners with a URL embed. It sends their requests, and hides their secrets in texts and errors.
type Client struct {
	answers.Redactor

	client *http.Client
}

// Connect makes the client. wrap may change its transport, and returns what sends the requests.
func (c *Client) Connect(secure *ServerTLS, wrap func(*http.Transport) http.RoundTripper) error {
	tlsConfig, err := secure.tlsConfig()
	if err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	c.client = &http.Client{
		Transport: wrap(&http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     tlsConfig,
			MaxIdleConnsPerHost: 256,
			// Shorter than the five seconds after which Node closes an idle connection: a turn sent into a connection that
			// is being closed is a turn that failed.
			IdleConnTimeout:     4 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
		}),
		// A redirect would turn the POST into a GET, or carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

// HTTPClient is the client that Connect has made, nil before.
func (c *Client) HTTPClient() *http.Client { return c.client }

// Cleanup closes connections that no turn uses. Turns that are under way go on.
func (c *Client) Cleanup() error {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	return nil
}

// ParseURL parses a URL that starts with http:// or https:// and names a host. It returns nil for others.
func ParseURL(raw string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil
	}
	return u
}

// Address is the scheme and the host of a URL, for logs. The rest of it may be secret.
func Address(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// OriginOf is the scheme, the host and the port of a URL, "" if it is none.
func OriginOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return Origin(u)
}

// Origin is the scheme, the host and the port of a URL. Two URLs of one place have the same.
func Origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return scheme + "://" + host
	}
	return scheme + "://" + host + ":" + port
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

// ErrNoAnswer is the error of a turn whose connection was closed before an answer came.
var ErrNoAnswer = errors.New("the runner closed the connection without an answer")
