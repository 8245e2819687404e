// Package adminclient calls the admin endpoint of a running Caddy, for the command line and the page that it serves. It imports api,
// dashboard, terminal and oneline.
package adminclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// Client calls the admin endpoint of a running Caddy.
type Client struct {
	Address   string // as the operator names it
	host      string // for the Host header
	Origin    string // "" if none is sent, to a Unix socket
	Operator  string
	Via       string        // what the operator uses
	MaxAnswer int64         // bytes of an answer that is read as a whole
	Silence   time.Duration // that a download may have before it counts as broken off
	Transport *http.Transport
}

// New is a client of the endpoint at an address, "" for Caddy's default. An address that cannot be one is an error.
func New(address string) (*Client, error) {
	address = cmp.Or(address, caddy.DefaultAdminListen)
	if rest, ok := strings.CutPrefix(address, "http://"); ok {
		address = strings.TrimSuffix(rest, "/")
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return nil, fmt.Errorf("the address %q begins with %s://, and the admin endpoint speaks plain HTTP: use host:port or unix//path", address,
			scheme)
	}
	if strings.HasPrefix(address, "/") {
		return nil, fmt.Errorf("the address %q is a path: a socket is written unix/%s", address, address)
	}
	const defaultPort = 2019
	parsed, err := caddy.ParseNetworkAddressWithDefaults(address, "tcp", defaultPort)
	// What stands before a slash would be taken for a network.
	isNetwork := parsed.IsUnixNetwork() || strings.HasPrefix(parsed.Network, "tcp")
	if err != nil || !isNetwork || parsed.PortRangeSize() > 1 || parsed.IsFdNetwork() || address == "off" {
		return nil, fmt.Errorf("the address %q is not an admin endpoint: use host:port or unix//path", address)
	}
	c := &Client{Address: address, Operator: operatorName(), Via: api.ViaCommand, MaxAnswer: MaxAnswer, Silence: downloadPatience}
	network, target := parsed.Network, parsed.JoinHostPort(0)
	if parsed.IsUnixNetwork() {
		// Caddy checks neither Host nor Origin there, and refuses any Origin. Permissions may stand behind the path.
		target, _, _ = strings.Cut(parsed.Host, "|")
		c.host = "127.0.0.1"
	} else {
		if parsed.Host == "" {
			target = net.JoinHostPort("localhost", fmt.Sprint(parsed.StartPort))
		}
		c.host, c.Origin = target, "http://"+target
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	c.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, target)
		},
		// Caddy restarts its admin endpoint at every reload, and drops connections that clients keep.
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
	return c, nil
}

// operatorName is the name of the user who runs this process.
func operatorName() string {
	name := os.Getenv("USER")
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	return cmp.Or(oneline.First(name, api.MaxOperator), "unknown")
}

// Sign adds the headers that the admin endpoint wants, the operator and what the operator uses.
func (c *Client) Sign(r *http.Request) {
	r.URL.Scheme, r.URL.Host, r.Host = "http", c.host, c.host
	if c.Origin != "" {
		r.Header.Set("Origin", c.Origin)
	}
	r.Header.Set(api.OperatorHeader, c.Operator)
	r.Header.Set(api.ViaHeader, c.Via)
}

// Instances asks for the names of the instances.
func (c *Client) Instances(ctx context.Context) (names []string, err error) {
	body, err := c.Call(ctx, Call{Path: "/hooks/instances"})
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(body, &names) != nil {
		return nil, c.NoHooks()
	}
	return names, nil
}

// Call is a request to the admin endpoint.
type Call struct {
	Method      string // default: GET
	Path        string // escaped
	Query       url.Values
	Body        []byte
	ContentType string // default: application/json
	Header      http.Header
	Answer      int     // a status that is an answer, too, and no refusal; 0 is none
	IsLong      bool    // it takes as long as it takes
	ETag        *string // gets the ETag of the answer, unless it is nil
}

// Call reads an answer as a whole. An answer that is no success is a *RefusedError.
func (c *Client) Call(ctx context.Context, call Call) ([]byte, error) {
	if !call.IsLong {
		const patience = 60 * time.Second
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	resp, err := c.open(ctx, call)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, c.Unreachable(err)
	case int64(len(body)) > c.MaxAnswer:
		return nil, fmt.Errorf("the answer of the admin endpoint %s is longer than %s: ask for less, for example by --limit, "+
			"or look whether it is Caddy that answers there", c.Address, terminal.ByteSize(c.MaxAnswer))
	}
	if call.ETag != nil {
		*call.ETag = resp.Header.Get("ETag")
	}
	return body, nil
}

// MaxAnswer bounds an answer that is read as a whole. A page of runs with long messages has its place in it; a server that is no
// Caddy, and never stops talking, does not fill the memory.
const MaxAnswer = 256 << 20

// open begins to read an answer, which the caller closes. An answer that is no success is a *RefusedError.
func (c *Client) open(ctx context.Context, call Call) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, cmp.Or(call.Method, http.MethodGet), call.Path, bytes.NewReader(call.Body))
	if err != nil {
		return nil, err
	}
	if call.Header != nil {
		r.Header = call.Header.Clone()
	}
	r.URL.RawQuery = call.Query.Encode()
	if len(call.Body) > 0 {
		r.Header.Set("Content-Type", cmp.Or(call.ContentType, "application/json"))
	}
	c.Sign(r)
	resp, err := c.Transport.RoundTrip(r)
	if err != nil {
		return nil, c.Unreachable(err)
	}
	if resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode == call.Answer {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, api.MaxBody))
	if err != nil {
		return nil, c.Unreachable(err)
	}
	var refused struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &refused) != nil || refused.Error == "" {
		if resp.StatusCode == http.StatusNotFound {
			return nil, c.NoHooks()
		}
		refused.Error = fmt.Sprintf("the admin endpoint %s answers %s", c.Address, resp.Status)
	}
	const maxLines, maxLine = 40, 2000
	lines := strings.SplitN(refused.Error, "\n", maxLines)
	for i, line := range lines {
		lines[i] = oneline.Of(line, maxLine)
	}
	return nil, &RefusedError{resp.StatusCode, strings.Join(lines, "\n")}
}

// RefusedError is what the admin endpoint says about a request that it refuses.
type RefusedError struct {
	Status   int
	Sentence string
}

func (e *RefusedError) Error() string { return e.Sentence }

// IsRefused reports whether the admin endpoint refused a request with a status.
func IsRefused(err error, status int) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == status
}

func (c *Client) NoHooks() error {
	return fmt.Errorf("the server at %s has no hooks: it is not a Caddy, or a Caddy without this module, or this is the address of a site "+
		"and not of the admin endpoint", c.Address)
}

// Unreachable says that the admin endpoint does not answer.
func (c *Client) Unreachable(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("the admin endpoint %s of Caddy cannot be reached (%w): is Caddy running? If its admin endpoint has another address, "+
		"set it with --address; "+
		"if it is off in the Caddyfile, use hooks_dashboard on a site instead", c.Address, err)
}

// downloadPatience is how long Caddy may send nothing of a long answer.
const downloadPatience = time.Minute

var ErrSilent = errors.New("the admin endpoint stopped responding")

// BrokeOffError says that an answer ended before it was whole.
type BrokeOffError struct{ err error }

func (e *BrokeOffError) Error() string { return e.err.Error() }
func (e *BrokeOffError) Unwrap() error { return e.err }

// Download is open for an answer that is long or comes bit by bit. It fails with ErrSilent if Caddy sends nothing for so long, at the
// beginning or later. Errors of reading are *BrokeOffErrors.
func (c *Client) Download(ctx context.Context, call Call, silence time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(silence, func() { cancel(ErrSilent) })
	resp, err := c.open(ctx, call)
	watchdog.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrSilent) {
			err = ErrSilent
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &downloadBody{ctx: ctx, cancel: cancel, body: resp.Body, watchdog: watchdog, silence: silence}
	return resp, nil
}

// downloadBody is a body that does not wait for ever.
type downloadBody struct {
	ctx      context.Context // of the request
	cancel   context.CancelCauseFunc
	body     io.ReadCloser
	watchdog *time.Timer
	silence  time.Duration
}

func (b *downloadBody) Read(p []byte) (int, error) {
	b.watchdog.Reset(b.silence)
	n, err := b.body.Read(p)
	b.watchdog.Stop()
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return n, err
	}
	if errors.Is(context.Cause(b.ctx), ErrSilent) {
		err = ErrSilent
	}
	return n, &BrokeOffError{err}
}

func (b *downloadBody) Close() error {
	b.cancel(nil)
	return b.body.Close()
}
