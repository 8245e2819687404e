package acpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/coder/acp-go-sdk"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

const (
	maxLine      = 8 << 20   // bytes of one message; the SDK takes 10 MiB
	maxGarbage   = 1 << 20   // bytes in a row that are no messages
	maxAllowance = 256 << 20 // bytes from one request of ours to the next
	maxUnhandled = 256       // messages that were read and are not dealt with yet; the SDK gives up at 1,024
)

var (
	errLine    = fmt.Errorf("the agent wrote a line of more than %d bytes", maxLine)
	errGarbage = fmt.Errorf("the agent wrote %d bytes that are no messages of its protocol", maxGarbage)
	errFlood   = fmt.Errorf("the agent wrote %d bytes that nobody had asked for", maxAllowance)
)

// NotSpokenError says that a program does not speak the protocol.
type NotSpokenError struct{ Line string } // that it wrote instead of a message

func (e *NotSpokenError) Error() string {
	return "the program does not speak the Agent Client Protocol; it wrote: " + e.Line
}

// maxQuoted bounds the beginning of a line that is quoted.
const maxQuoted = 256

// lineReader hands on the lines of an agent that are messages, as fast as they are dealt with.
type lineReader struct {
	from   *bufio.Reader
	closed <-chan struct{}
	start  chan struct{}
	rest   []byte // of the line that is being read

	mu      sync.Mutex
	less    sync.Cond // unhandled is less than before, or the client was closed
	pending int       // messages that are not handled yet
	err     error     // why there are no more lines, if there is a reason
	since   int       // bytes since the last request
	garbage int
	strict  bool // a line that is not a message ends the reading
}

func newLineReader(from io.Reader, closed <-chan struct{}) *lineReader {
	const usualLine = 64 << 10
	r := &lineReader{from: bufio.NewReaderSize(from, usualLine), closed: closed, start: make(chan struct{})}
	r.less.L = &r.mu
	go func() {
		<-closed
		r.mu.Lock()
		defer r.mu.Unlock()
		r.less.Broadcast()
	}()
	return r
}

// begin lets the first line through.
func (r *lineReader) begin() { close(r.start) }

// allowance lets the agent write as much as it may between two requests.
func (r *lineReader) allowance() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = 0
}

// trust lets the agent write lines that are not messages.
func (r *lineReader) trust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strict = false
}

// handled is called when a message has been dealt with.
func (r *lineReader) handled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending--
	r.less.Broadcast()
}

// wait returns when there is room for another message. The SDK deals with requests at once, and with notifications in their order.
// A request waits here for all that came before it, so that it is understood.
func (r *lineReader) wait(kind lineKind) error {
	most := maxUnhandled
	if kind == aRequest {
		most = 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.pending >= most {
		select {
		case <-r.closed:
			return io.EOF
		default:
			r.less.Wait()
		}
	}
	r.pending++
	return nil
}

// problem is why reading ended, nil if the agent hung up.
func (r *lineReader) problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *lineReader) Read(p []byte) (int, error) {
	<-r.start
	for len(r.rest) == 0 {
		line, err := r.next()
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.err == nil && !errors.Is(err, io.EOF) {
				r.err = err
			}
			return 0, io.EOF
		}
		r.rest = line
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next reads a line, and returns nil if it is no message.
func (r *lineReader) next() ([]byte, error) {
	line, err := readLine(r.from)
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, err
	}
	kind := kindOf(line)
	if err := r.count(line, kind); err != nil {
		return nil, err
	}
	if err != nil { // the rest after the last line is not a message
		return nil, err
	}
	switch kind {
	case noMessage:
		return nil, nil
	case aRequest, aNotification:
		if err := r.wait(kind); err != nil {
			return nil, err
		}
	}
	return line, nil
}

// count reports whether an agent writes more than it may.
func (r *lineReader) count(line []byte, kind lineKind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since += len(line); r.since > maxAllowance {
		return errFlood
	}
	if kind != noMessage {
		r.garbage = 0
		return nil
	}
	if r.strict && len(bytes.TrimSpace(line)) > 0 {
		return &NotSpokenError{Line: oneline.First(string(line[:min(len(line), 4*maxQuoted)]), maxQuoted)}
	}
	if r.garbage += len(line); r.garbage > maxGarbage {
		return errGarbage
	}
	return nil
}

// readLine reads a line with its end. What comes after the last one is none.
func readLine(from *bufio.Reader) (line []byte, err error) {
	for {
		part, err := from.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errLine
		}
		line = append(line, part...)
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// lineKind is what a line is to the SDK.
type lineKind int

const (
	noMessage     lineKind = iota
	aRequest               // Client.handle is called for it
	aNotification          // Client.handle is called for it
	otherMessage
)

// kindOf decides as the SDK does, down to the types of members.
func kindOf(line []byte) lineKind {
	if len(bytes.TrimSpace(line)) == 0 {
		return noMessage
	}
	var message struct {
		JSONRPC string            `json:"jsonrpc"`
		ID      *json.RawMessage  `json:"id,omitempty"`
		Method  string            `json:"method,omitempty"`
		Params  json.RawMessage   `json:"params,omitempty"`
		Result  json.RawMessage   `json:"result,omitempty"`
		Error   *acp.RequestError `json:"error,omitempty"`
	}
	const cancelOfARequest = "$/cancel_request"
	switch {
	case json.Unmarshal(line, &message) != nil:
		return noMessage
	case message.Method == cancelOfARequest && message.ID == nil:
		return otherMessage
	case message.Method != "" && message.ID != nil:
		return aRequest
	case message.Method != "":
		return aNotification
	case message.ID != nil:
		return otherMessage
	}
	return noMessage
}
