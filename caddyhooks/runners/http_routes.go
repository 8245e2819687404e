package runners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
)

// routes are Caddy's own handlers as the way to an agent.
type routes struct {
	handler caddyhttp.Handler
	server  *caddyhttp.Server // the one that the hooks belong to
}

// newRoutes provisions the routes of a runner.
func newRoutes(ctx caddy.Context, list caddyhttp.RouteList) (*routes, error) {
	if err := list.Provision(ctx); err != nil {
		return nil, err
	}
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		server = new(caddyhttp.Server)
	}
	// A request that no route answers ends here, and its answer stays unwritten.
	end := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	return &routes{list.Compile(end), server}, nil
}

// leaveAfter is how long a handler has to return when its turn is over. One that does not heed its context is left behind, and
// can neither read nor write any more: FastCGI waits until the program at its other end writes something.
const leaveAfter = time.Second

// do has the handlers answer a request. The answer streams: its body must be closed.
func (r *routes) do(req *http.Request, way *httpcall.Sending) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	reader, writer := io.Pipe()
	w := &answerWriter{header: make(http.Header), body: writer, started: make(chan *http.Response, 1), announced: -1, heard: way.Heard}
	done := make(chan struct{})
	var failure error // of handlers that have written nothing
	go func() {
		defer close(done)
		failure = w.finish(r.serve(ctx, w, req), way)
	}()
	end := func() {
		cancel()
		_ = reader.CloseWithError(httpcall.ErrTurnOver)
		timer := time.NewTimer(leaveAfter)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
	}
	var resp *http.Response
	select {
	case resp = <-w.started:
	case <-done:
		select {
		case resp = <-w.started:
		default:
			end()
			return nil, failure
		}
	case <-ctx.Done():
		end()
		return nil, httpcall.CallError(context.Cause(ctx), way.MayHaveStarted())
	}
	resp.Body = &answerBody{reader, end}
	return resp, nil
}

// answerBody is the body of an answer that the handlers are writing.
type answerBody struct {
	io.Reader
	end func()
}

func (b *answerBody) Close() error {
	b.end()
	return nil
}

// serve runs the handlers. A panic is an error.
func (r *routes) serve(ctx context.Context, w http.ResponseWriter, req *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if cause, ok := p.(error); ok && errors.Is(cause, http.ErrAbortHandler) {
				err = http.ErrAbortHandler
				return
			}
			err = fmt.Errorf("a directive of the runner panicked: %v", p)
		}
	}()
	// What a server's connection would say: {http.request.local} panics without it.
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	req = req.WithContext(ctx)
	repl := caddy.NewReplacer()
	err = r.handler.ServeHTTP(w, caddyhttp.PrepareRequest(req, repl, w, r.server))
	if status, _ := repl.Get("http.reverse_proxy.status_code"); err == nil && status == http.StatusSwitchingProtocols {
		return errSwitched
	}
	return err
}

var errSwitched = errors.New("the runner answered 101; it must answer 200")

// answerWriter is the ResponseWriter of the handlers: what they write is read at the other end of a pipe as it comes.
type answerWriter struct {
	header  http.Header
	body    *io.PipeWriter
	started chan *http.Response // gets the answer, without its body, when its header is written
	heard   func()

	mu        sync.Mutex // Flush comes from another goroutine
	status    int        // 0: nothing is written
	announced int64      // the length of the body, -1 if it is not known
	written   int64
}

func (w *answerWriter) Header() http.Header { return w.header }

func (w *answerWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		w.heard()
		return
	}
	w.begin(status)
}

func (w *answerWriter) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	header := w.header.Clone()
	if n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.announced = n
	}
	w.started <- &http.Response{StatusCode: status, Header: header}
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.begin(http.StatusOK)
	w.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	n, err := w.body.Write(p)
	w.mu.Lock()
	w.written += int64(n)
	w.mu.Unlock()
	return n, err
}

// Flush sends the header. The body needs no flush.
func (w *answerWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin(http.StatusOK)
}

// finish ends the answer when the handlers have returned. It returns the error of a turn without an answer.
func (w *answerWriter) finish(err error, way *httpcall.Sending) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, errSwitched) {
		way.HangUp() // reverse_proxy leaves the connection open
	}
	if w.status == 0 {
		return w.noAnswer(err, way)
	}
	if err != nil || w.written < w.announced {
		return w.body.CloseWithError(io.ErrUnexpectedEOF)
	}
	return w.body.Close()
}

// noAnswer says why the handlers wrote nothing.
func (w *answerWriter) noAnswer(err error, way *httpcall.Sending) error {
	var handler caddyhttp.HandlerError
	switch {
	case errors.Is(err, errSwitched):
		return err
	case err == nil:
		return errors.New("no directive of the runner answered; it needs one such as reverse_proxy for POST requests to its path")
	case errors.Is(err, http.ErrAbortHandler):
		return httpcall.ErrNoAnswer
	case !errors.As(err, &handler):
		return err
	}
	reason := handler.Err
	if reason == nil {
		reason = errors.New(http.StatusText(handler.StatusCode))
	}
	switch handler.StatusCode {
	case http.StatusTooManyRequests: // of a rate limit
		after := outbound.RetryAfter(w.header.Get("Retry-After"), time.Now())
		return answers.AgentRefusal(handler.StatusCode, after, fmt.Errorf("reaching the runner: %w", reason))
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 499:
		return httpcall.CallError(reason, way.MayHaveStarted())
	}
	if way.MayHaveStarted() {
		return httpcall.CallError(reason, true)
	}
	return fmt.Errorf("the directives of the runner failed with %d: %w", handler.StatusCode, reason)
}

// checkPath checks the path of a runner that goes through Caddy's handlers.
func checkPath(path string) error {
	if u, err := url.ParseRequestURI(path); err != nil || u.Path == "" || u.Path[0] != '/' {
		return errors.New("the path of runner http must begin with / and be one that a request can have")
	}
	return nil
}

// Interface guards
var (
	_ http.ResponseWriter = (*answerWriter)(nil)
	_ http.Flusher        = (*answerWriter)(nil)
)

// routeSecrets are the HeaderSecrets of headers that routes set in requests: in JSON, `set` and `add` in `request`.
func routeSecrets(routes caddyhttp.RouteList) (secrets []string) {
	data, err := json.Marshal(routes)
	if err != nil {
		return nil
	}
	var all any
	if json.Unmarshal(data, &all) != nil {
		return nil
	}
	repl := caddy.NewReplacer()
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if operations, ok := value["request"].(map[string]any); ok {
				for _, kind := range []string{"set", "add"} {
					headers, _ := operations[kind].(map[string]any)
					secrets = append(secrets, httpcall.HeaderSecrets(fixedHeaders(headers, repl))...)
				}
			}
			for _, member := range value {
				walk(member)
			}
		case []any:
			for _, element := range value {
				walk(element)
			}
		}
	}
	walk(all)
	return secrets
}

// fixedHeaders are the headers of an operation whose values are the same for all requests.
func fixedHeaders(headers map[string]any, repl *caddy.Replacer) map[string]string {
	fixed := make(map[string]string)
	for name, values := range headers {
		list, _ := values.([]any)
		for _, value := range list {
			if text, ok := value.(string); ok {
				if text = repl.ReplaceKnown(text, ""); !caddyconf.HasPlaceholder(text) {
					fixed[http.CanonicalHeaderKey(name)] = text
				}
			}
		}
	}
	return fixed
}
