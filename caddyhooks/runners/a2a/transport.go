package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
)

// callTransport is the way out for the requests of the A2A client. It adds what every request has, and bounds the answers, which the
// client reads as far as they go. It notes in the agentCall what goes wrong.
type callTransport struct {
	next   *http.Transport
	runner *A2A
}

const (
	// maxDocument bounds an answer in JSON, and an event of a stream. Escapes can make JSON a good deal longer than its text.
	maxDocument = 8 * answers.MaxReply

	// maxStream bounds a stream: each piece of text comes with a good deal of JSON around it.
	maxStream = answers.MaxStream
)

// agentCall is one request, and why it failed.
type agentCall struct {
	way    *httpcall.Sending
	quiet  *httpcall.Silence
	trace  string // the traceparent
	limit  int64  // of a document
	err    error
	status int // other than 200
}

// newAgentCall makes a call. Without a silence, nobody listens; without a function, nobody learns that the request is with the agent.
func newAgentCall(quiet *httpcall.Silence, arrived func()) *agentCall {
	if quiet == nil {
		quiet = new(httpcall.Silence)
	}
	return &agentCall{way: &httpcall.Sending{Arrived: arrived, Heard: quiet.Heard}, quiet: quiet, limit: maxDocument}
}

type agentCallKey struct{}

// with is the context of the request.
func (c *agentCall) with(ctx context.Context) context.Context {
	return context.WithValue(c.way.WithTrace(ctx, false, c.quiet.Limit > 0), agentCallKey{}, c)
}

// problem is the error of the call, which the client may have wrapped in words of its own.
func (c *agentCall) problem(err error) error {
	if c.err != nil {
		return c.err
	}
	var urlErr *url.Error // its text would show the URL, which may hold a secret
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

func (c *agentCall) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	return err
}

// RoundTrip sends a request. An answer with a status other than 200 is returned with the beginning of its body.
func (d *callTransport) RoundTrip(given *http.Request) (*http.Response, error) {
	call, ok := given.Context().Value(agentCallKey{}).(*agentCall)
	if !ok {
		return nil, errors.New("a request outside of a turn")
	}
	if !slices.Contains(d.runner.origins, httpcall.Origin(given.URL)) {
		return nil, call.fail(errors.New("the agent's URL is at another place than its card")) // choose sees to that
	}
	req := given.Clone(given.Context())
	// Whether a turn is carried out a second time is for the engine to say, not for net/http.
	req.GetBody = nil
	d.dress(req, call)
	resp, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, call.fail(httpcall.CallError(err, call.way.MayHaveStarted()))
	}
	form := httpcall.MediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		call.status = resp.StatusCode
		refused := &answers.Error{
			Problem: "the runner answered " + resp.Status[:min(len(resp.Status), 3)], Text: httpcall.Beginning(resp), Hint: d.hint(resp.StatusCode),
		}
		_ = resp.Body.Close()
		_ = call.fail(answers.AgentRefusal(resp.StatusCode, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), refused))
		resp.Body = io.NopCloser(strings.NewReader(refused.Text))
		return resp, nil
	case httpcall.IsPage(form):
		defer resp.Body.Close()
		page := &answers.Error{Problem: "the runner answered 200 with " + form, Text: httpcall.Beginning(resp), Hint: hintCard}
		return nil, call.fail(page)
	case httpcall.IsEncoded(resp.Header):
		_ = resp.Body.Close()
		return nil, call.fail(httpcall.ErrEncoded)
	}
	body := call.quiet.Listen(resp.Body)
	wantsEvents := req.Header.Get("Accept") == sse.MediaType
	switch {
	case form == sse.MediaType && wantsEvents:
		resp.Body = &answerBody{call, &eventBound{from: &io.LimitedReader{R: body, N: maxStream}}, resp.Body}
	case wantsEvents:
		// A document instead of a stream, which is how errors are often sent. The client reads events only.
		defer resp.Body.Close()
		if resp.Body, err = asEvent(body, resp.ContentLength); err != nil {
			return nil, call.fail(httpcall.ReadingError(err))
		}
	default:
		resp.Body = &answerBody{call, &io.LimitedReader{R: body, N: call.limit + 1}, resp.Body}
	}
	return resp, nil
}

// CloseIdleConnections closes connections that no turn uses.
func (d *callTransport) CloseIdleConnections() { d.next.CloseIdleConnections() }

// dress sets the headers that every request has.
func (d *callTransport) dress(req *http.Request, call *agentCall) {
	req.Header.Set("User-Agent", "caddyhooks")
	for name, value := range d.runner.headers {
		req.Header.Set(name, value)
	}
	if call.trace != "" {
		req.Header.Set("Traceparent", call.trace)
	}
	switch user := d.runner.user; {
	case d.runner.token != "":
		req.Header.Set("Authorization", "Bearer "+d.runner.token)
	case user != nil && d.runner.headers["Authorization"] == "":
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
}

const hintCard = "the URL must be that of an agent card, or have one below /.well-known/agent-card.json"

func (d *callTransport) hint(status int) string {
	switch {
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return httpcall.StatusHint(status)
	case d.runner.token != "":
		return "check the line token: the agent does not accept it"
	default:
		return "token is not set"
	}
}

// asEvent makes a stream of one event of a JSON document.
func asEvent(body io.Reader, length int64) (io.ReadCloser, error) {
	data, err := httpcall.ReadBounded(body, length, maxDocument)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	line.WriteString("data: ")
	if err := json.Compact(&line, data); err != nil {
		return nil, &answers.Error{Problem: "neither a stream of events nor JSON", Text: answers.Beginning(data)}
	}
	line.WriteString("\n\n")
	return io.NopCloser(&line), nil
}

// answerBody is the body of an answer. Errors of reading it are those of the call.
type answerBody struct {
	call    *agentCall
	bounded io.Reader
	io.Closer
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.bounded.Read(p)
	switch limited, ok := b.bounded.(*io.LimitedReader); {
	case ok && limited.N == 0:
		return n, b.call.fail(httpcall.ReadingError(answers.ErrTooLarge))
	case err != nil && !errors.Is(err, io.EOF):
		_ = b.call.fail(httpcall.ReadingError(err))
	}
	return n, err
}

// eventBound bounds a stream, and each event in it: the client collects the lines of an event however many there are.
type eventBound struct {
	from  *io.LimitedReader
	event int  // bytes of the event so far
	blank bool // whether the line has no byte yet but \r
}

func (e *eventBound) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	for _, c := range p[:n] {
		e.event++
		switch {
		case c == '\n' && e.blank:
			e.event = 0
		case c == '\n':
			e.blank = true
		case c != '\r':
			e.blank = false
		}
		if e.event > maxDocument {
			return 0, answers.ErrTooLarge
		}
	}
	if e.from.N == 0 {
		return n, answers.ErrTooLarge
	}
	return n, err
}
