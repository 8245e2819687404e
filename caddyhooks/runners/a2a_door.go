package runners

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
)

// a2aDoor is the way out for the requests of the A2A client. It adds what every request has, and bounds the answers, which the
// client reads as far as they go. What goes wrong is told to the a2aCall.
type a2aDoor struct {
	next   *http.Transport
	runner *A2A
}

const (
	// maxA2ADocument bounds an answer in JSON, and an event of a stream. Escapes can make JSON a good deal longer than its text.
	maxA2ADocument = 8 * maxReply

	// maxA2AStream bounds a stream: each piece of text comes with a good deal of JSON around it.
	maxA2AStream = maxStream
)

// a2aCall is one request, and why it failed.
type a2aCall struct {
	way    *sending
	quiet  *silence
	trace  string // the traceparent
	limit  int64  // of a document
	err    error
	status int // other than 200
}

// newA2ACall makes a call. Without a silence, nobody listens; without a function, nobody is told that the request is with the agent.
func newA2ACall(quiet *silence, arrived func()) *a2aCall {
	if quiet == nil {
		quiet = new(silence)
	}
	if arrived == nil {
		arrived = func() {}
	}
	return &a2aCall{way: &sending{arrived: arrived, heard: quiet.heard}, quiet: quiet, limit: maxA2ADocument}
}

type a2aCallKey struct{}

// with is the context of the request.
func (c *a2aCall) with(ctx context.Context) context.Context {
	return context.WithValue(c.way.withTrace(ctx, false, c.quiet.limit > 0), a2aCallKey{}, c)
}

// problem is the error of the call, which the client may have wrapped in words of its own.
func (c *a2aCall) problem(err error) error {
	if c.err != nil {
		return c.err
	}
	var urlErr *url.Error // its text would show the URL, which may hold a secret
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

func (c *a2aCall) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	return err
}

// RoundTrip sends a request. An answer with a status other than 200 is returned with the beginning of its body.
func (d *a2aDoor) RoundTrip(given *http.Request) (*http.Response, error) {
	call, ok := given.Context().Value(a2aCallKey{}).(*a2aCall)
	if !ok {
		return nil, errors.New("a request that belongs to no turn")
	}
	if !slices.Contains(d.runner.origins, origin(given.URL)) {
		return nil, call.fail(errors.New("the agent's URL is at another place than its card")) // choose sees to that
	}
	req := given.Clone(given.Context())
	// Whether a turn is carried out a second time is for the engine to say, not for net/http.
	req.GetBody = nil
	d.dress(req, call)
	resp, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, call.fail(callError(err, call.way.begun()))
	}
	form := mediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		call.status = resp.StatusCode
		refused := &answerError{problem: "the runner answered " + resp.Status[:min(len(resp.Status), 3)], answer: beginningOf(resp), hint: d.hint(resp.StatusCode)}
		_ = resp.Body.Close()
		_ = call.fail(agentRefusal(resp.StatusCode, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), refused))
		resp.Body = io.NopCloser(strings.NewReader(refused.answer))
		return resp, nil
	case isPage(form):
		defer resp.Body.Close()
		return nil, call.fail(&answerError{problem: "the runner answered 200 with " + form, answer: beginningOf(resp), hint: hintCard})
	case isEncoded(resp.Header):
		_ = resp.Body.Close()
		return nil, call.fail(errEncoded)
	}
	body := call.quiet.listen(resp.Body)
	wantsEvents := req.Header.Get("Accept") == eventStream
	switch {
	case form == eventStream && wantsEvents:
		resp.Body = &a2aBody{call, &eventBound{from: &io.LimitedReader{R: body, N: maxA2AStream}}, resp.Body}
	case wantsEvents:
		// A document instead of a stream, which is how errors are often told. The client reads events only.
		defer resp.Body.Close()
		if resp.Body, err = asEvent(body, resp.ContentLength); err != nil {
			return nil, call.fail(readingError(err))
		}
	default:
		resp.Body = &a2aBody{call, &io.LimitedReader{R: body, N: call.limit + 1}, resp.Body}
	}
	return resp, nil
}

// CloseIdleConnections closes connections that no turn uses.
func (d *a2aDoor) CloseIdleConnections() { d.next.CloseIdleConnections() }

// dress sets the headers that every request has.
func (d *a2aDoor) dress(req *http.Request, call *a2aCall) {
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

func (d *a2aDoor) hint(status int) string {
	switch {
	case status != http.StatusUnauthorized && status != http.StatusForbidden:
		return statusHint(status)
	case d.runner.token != "":
		return "check the line token: the agent does not accept it"
	default:
		return "token is not set"
	}
}

// asEvent makes a stream of one event of a JSON document.
func asEvent(body io.Reader, length int64) (io.ReadCloser, error) {
	data, err := readBounded(body, length, maxA2ADocument)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	line.WriteString("data: ")
	if err := json.Compact(&line, data); err != nil {
		return nil, &answerError{problem: "neither a stream of events nor JSON", answer: beginningOfText(data)}
	}
	line.WriteString("\n\n")
	return io.NopCloser(&line), nil
}

// a2aBody is the body of an answer. Errors of reading it are those of the call.
type a2aBody struct {
	call    *a2aCall
	bounded io.Reader
	io.Closer
}

func (b *a2aBody) Read(p []byte) (int, error) {
	n, err := b.bounded.Read(p)
	switch limited, ok := b.bounded.(*io.LimitedReader); {
	case ok && limited.N == 0:
		return n, b.call.fail(readingError(errReplyTooLarge))
	case err != nil && !errors.Is(err, io.EOF):
		_ = b.call.fail(readingError(err))
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
		if e.event > maxA2ADocument {
			return 0, errReplyTooLarge
		}
	}
	if e.from.N == 0 {
		return n, errReplyTooLarge
	}
	return n, err
}
