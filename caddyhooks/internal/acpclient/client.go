// Package acpclient speaks the Agent Client Protocol with an agent over its standard input and output. What the agent writes is
// bounded: the length of a line, what is held in memory, and what is dropped. It imports
// packages for text, and knows nothing of runners.
package acpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/coder/acp-go-sdk"
)

// Client is the connection to an agent. Its methods may be called at the same time.
type Client struct {
	conn   *acp.Connection
	in     *lineReader
	out    *outbox
	closed chan struct{}
	once   sync.Once
	cause  error // why it was closed, set before closed is

	mu        sync.Mutex
	listeners map[string]Listener // by session
}

// A Listener gets what happens in a session. Its methods must not block.
type Listener interface {
	// Update is called for each update of the session, one after the other. size is the number of bytes that it had.
	Update(update Update, size int)

	// Permission answers the agent's request to use a tool with the id of one of its options, or "" to break the request off. If that has to
	// be decided elsewhere, it returns a function that waits for the answer. Its context is done when the agent does not wait any more.
	Permission(request PermissionRequest) (option string, decide func(context.Context) string)
}

// ErrClosed says that the agent has ended, or that the connection was closed.
var ErrClosed = errors.New("the agent has ended")

// Connect starts to speak with an agent. A program that is not known to speak the protocol is left at the first line that is not a
// message, until it has answered Initialize. A known one may write such lines.
func Connect(stdin io.WriteCloser, stdout io.Reader, known bool) *Client {
	c := &Client{closed: make(chan struct{}), listeners: make(map[string]Listener)}
	c.out = newOutbox(stdin, c.Close)
	c.in = newLineReader(stdout, c.closed)
	c.in.strict = !known
	c.conn = acp.NewConnection(c.handle, c.out, c.in)
	c.conn.SetLogger(slog.New(slog.DiscardHandler)) // it would log whole messages
	c.in.begin()
	go func() {
		<-c.conn.Done()
		c.Close(c.in.problem())
	}()
	return c
}

// Done is closed when the agent has hung up, or broke the protocol, or when the client was closed.
func (c *Client) Done() <-chan struct{} { return c.closed }

// Err is why the client was closed. It is called after Done.
func (c *Client) Err() error { return c.cause }

// Close ends the connection. The agent's standard input is closed, too.
func (c *Client) Close(cause error) {
	c.once.Do(func() {
		if cause == nil {
			cause = ErrClosed
		}
		c.cause = cause
		close(c.closed)
		c.out.close()
	})
}

// Rejected is an error with which the agent answered a request.
type Rejected struct {
	Code    int
	Message string
}

func (e *Rejected) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// call sends a request and waits for the answer. The error is a *Rejected, ErrClosed or one that says why the connection was
// closed, or that of ctx.
func call[T any](ctx context.Context, c *Client, method string, params any) (result T, err error) {
	c.in.allowance()
	raw, err := acp.SendRequest[json.RawMessage](c.conn, ctx, method, params)
	var refused *acp.RequestError
	switch {
	case err == nil:
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &result); err != nil {
				return result, fmt.Errorf("the answer to %s is not as it should be: %w", method, err)
			}
		}
		return result, nil
	case ctx.Err() != nil:
		return result, context.Cause(ctx)
	case c.gone():
		<-c.closed
		return result, c.cause
	case errors.As(err, &refused):
		return result, &Rejected{refused.Code, describe(refused)}
	}
	return result, err
}

// gone reports whether the connection has ended. If the SDK knows of it, the client soon does too.
func (c *Client) gone() bool {
	select {
	case <-c.closed:
		return true
	case <-c.conn.Done():
		return true
	default:
		return false
	}
}

// describe is the message of an error, and the text in its data: many agents say there what is the matter.
func describe(err *acp.RequestError) string {
	data, ok := err.Data.(map[string]any)
	if !ok {
		if text, ok := err.Data.(string); ok && text != err.Message {
			return err.Message + ": " + text
		}
		return err.Message
	}
	for _, key := range []string{"details", "message", "error"} {
		if text, ok := data[key].(string); ok && text != "" && text != err.Message {
			return err.Message + ": " + text
		}
	}
	return err.Message
}

// handle takes what the agent sends of its own accord.
func (c *Client) handle(ctx context.Context, method string, params json.RawMessage) (any, *acp.RequestError) {
	waits := false
	defer func() {
		if !waits {
			c.in.handled()
		}
	}()
	switch method {
	case acp.ClientMethodSessionUpdate:
		var note struct {
			SessionID string `json:"sessionId"`
			Update    Update `json:"update"`
		}
		if json.Unmarshal(params, &note) != nil {
			return nil, nil // an update of a kind that is not known here may look like anything
		}
		if l := c.listener(note.SessionID); l != nil {
			l.Update(note.Update, len(params))
		}
		return nil, nil
	case acp.ClientMethodSessionRequestPermission:
		var request PermissionRequest
		if err := json.Unmarshal(params, &request); err != nil {
			return nil, acp.NewInvalidParams(nil)
		}
		option := ""
		if l := c.listener(request.SessionID); l != nil {
			var decide func(context.Context) string
			if option, decide = l.Permission(request); decide != nil {
				waits = true
				c.in.handled() // nothing that the agent says meanwhile waits for the decision
				option = decide(ctx)
			}
		}
		if option == "" {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
		}
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(acp.PermissionOptionId(option))}, nil
	}
	return nil, acp.NewMethodNotFound(method)
}

func (c *Client) listener(session string) Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listeners[session]
}

// Listen passes what happens in a session to a listener until stop is called. A session has one at most.
func (c *Client) Listen(session string, l Listener) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[session] = l
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.listeners[session] == l {
			delete(c.listeners, session)
		}
	}
}
