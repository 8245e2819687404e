package cli

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
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// client calls the admin endpoint of a running Caddy.
type client struct {
	address   string // as the operator names it
	host      string // for the Host header
	origin    string // "" if none is sent, to a Unix socket
	operator  string
	via       string        // what the operator uses
	maxAnswer int64         // bytes of an answer that is read as a whole
	silence   time.Duration // that a download may have before it counts as broken off
	transport *http.Transport
}

// newClient reads --address.
func newClient(cmd *cobra.Command) (*client, error) {
	address := cmp.Or(flagText(cmd, "address"), caddy.DefaultAdminListen)
	if rest, ok := strings.CutPrefix(address, "http://"); ok {
		address = strings.TrimSuffix(rest, "/")
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return nil, usagef("the address %q begins with %s://, and the admin endpoint speaks plain HTTP: use host:port or unix//path", address, scheme)
	}
	if strings.HasPrefix(address, "/") {
		return nil, usagef("the address %q is a path: a socket is written unix/%s", address, address)
	}
	const defaultPort = 2019
	parsed, err := caddy.ParseNetworkAddressWithDefaults(address, "tcp", defaultPort)
	// What stands before a slash would be taken for a network.
	isNetwork := parsed.IsUnixNetwork() || strings.HasPrefix(parsed.Network, "tcp")
	if err != nil || !isNetwork || parsed.PortRangeSize() > 1 || parsed.IsFdNetwork() || address == "off" {
		return nil, usagef("the address %q is no admin endpoint: use host:port or unix//path", address)
	}
	c := &client{address: address, operator: operatorName(), via: api.ViaCommand, maxAnswer: maxAdminAnswer, silence: downloadPatience}
	network, target := parsed.Network, parsed.JoinHostPort(0)
	if parsed.IsUnixNetwork() {
		// Caddy checks neither Host nor Origin there, and refuses any Origin. Permissions may stand behind the path.
		target, _, _ = strings.Cut(parsed.Host, "|")
		c.host = "127.0.0.1"
	} else {
		if parsed.Host == "" {
			target = net.JoinHostPort("localhost", fmt.Sprint(parsed.StartPort))
		}
		c.host, c.origin = target, "http://"+target
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	c.transport = &http.Transport{
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

// sign adds the headers that the admin endpoint wants, the operator and what the operator uses.
func (c *client) sign(r *http.Request) {
	r.URL.Scheme, r.URL.Host, r.Host = "http", c.host, c.host
	if c.origin != "" {
		r.Header.Set("Origin", c.origin)
	}
	r.Header.Set(api.OperatorHeader, c.operator)
	r.Header.Set(api.ViaHeader, c.via)
}

// instances asks for the names of the instances.
func (c *client) instances(ctx context.Context) (names []string, err error) {
	body, err := c.call(ctx, apiCall{path: "/hooks/instances"})
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(body, &names) != nil {
		return nil, c.noHooks()
	}
	return names, nil
}

// apiCall is a request to the admin endpoint.
type apiCall struct {
	method      string // default: GET
	path        string // escaped
	query       url.Values
	body        []byte
	contentType string // default: application/json
	header      http.Header
	answer      int     // a status that is an answer, too, and no refusal; 0 is none
	isLong      bool    // it takes as long as it takes
	etag        *string // gets the ETag of the answer, unless it is nil
}

// call reads an answer as a whole. An answer that is no success is a *refusedError.
func (c *client) call(ctx context.Context, call apiCall) ([]byte, error) {
	if !call.isLong {
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.unreachable(err)
	case int64(len(body)) > c.maxAnswer:
		return nil, fmt.Errorf("the answer of the admin endpoint %s is longer than %s: ask for less, for example by --limit, "+
			"or look whether it is Caddy that answers there", c.address, terminal.ByteSize(c.maxAnswer))
	}
	if call.etag != nil {
		*call.etag = resp.Header.Get("ETag")
	}
	return body, nil
}

// maxAdminAnswer bounds an answer that is read as a whole. A page of runs with long messages has its place in it; a server that is no
// Caddy, and never stops talking, does not fill the memory.
const maxAdminAnswer = 256 << 20

// open begins to read an answer, which the caller closes. An answer that is no success is a *refusedError.
func (c *client) open(ctx context.Context, call apiCall) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, cmp.Or(call.method, http.MethodGet), call.path, bytes.NewReader(call.body))
	if err != nil {
		return nil, err
	}
	if call.header != nil {
		r.Header = call.header.Clone()
	}
	r.URL.RawQuery = call.query.Encode()
	if len(call.body) > 0 {
		r.Header.Set("Content-Type", cmp.Or(call.contentType, "application/json"))
	}
	c.sign(r)
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode == call.answer {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, api.MaxBody))
	if err != nil {
		return nil, c.unreachable(err)
	}
	var refused struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &refused) != nil || refused.Error == "" {
		if resp.StatusCode == http.StatusNotFound {
			return nil, c.noHooks()
		}
		refused.Error = fmt.Sprintf("the admin endpoint %s answers %s", c.address, resp.Status)
	}
	const maxLines, maxLine = 40, 2000
	lines := strings.SplitN(refused.Error, "\n", maxLines)
	for i, line := range lines {
		lines[i] = oneline.Of(line, maxLine)
	}
	return nil, &refusedError{resp.StatusCode, strings.Join(lines, "\n")}
}

// refusedError is what the admin endpoint says about a request that it refuses.
type refusedError struct {
	status   int
	sentence string
}

func (e *refusedError) Error() string { return e.sentence }

// isRefusedAs reports whether the admin endpoint refused a request with a status.
func isRefusedAs(err error, status int) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.status == status
}

func (c *client) noHooks() error {
	return fmt.Errorf("the server at %s has no hooks: it is no Caddy, or one without this module, or this is the address of a site and not of the admin endpoint", c.address)
}

// unreachable says that the admin endpoint does not answer.
func (c *client) unreachable(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("the admin endpoint %s of Caddy cannot be reached (%w): is Caddy running? If its admin endpoint has another address, name it by --address; "+
		"if it is off in the Caddyfile, use hooks_dashboard on a site instead", c.address, err)
}

// downloadPatience is how long Caddy may send nothing of a long answer.
const downloadPatience = time.Minute

var errSilent = errors.New("the admin endpoint says nothing any more")

// brokeOffError says that an answer ended before it was whole.
type brokeOffError struct{ err error }

func (e *brokeOffError) Error() string { return e.err.Error() }
func (e *brokeOffError) Unwrap() error { return e.err }

// download is open for an answer that is long or comes bit by bit. It fails with errSilent if Caddy sends nothing for so long, at the
// beginning or later. Errors of reading are *brokeOffErrors.
func (c *client) download(ctx context.Context, call apiCall, silence time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	resp, err := c.open(ctx, call)
	watchdog.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = errSilent
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
	if errors.Is(context.Cause(b.ctx), errSilent) {
		err = errSilent
	}
	return n, &brokeOffError{err}
}

func (b *downloadBody) Close() error {
	b.cancel(nil)
	return b.body.Close()
}
