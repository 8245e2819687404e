package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// readEvents reads an answer that comes as server-sent events, up to the one that says [DONE]. A stream that ends before is
// complete if there was a finish reason, for which finished is called.
func (c *completion) readEvents(r io.Reader, finished func()) error {
	events := sse.NewReader(r, answers.MaxStream, maxDocument, answers.ErrTooLarge)
	for events.Next() {
		before := c.finish
		if done, err := c.addEvent(events.Name, events.Data); err != nil || done {
			return err
		}
		if c.finish != before {
			finished()
		}
	}
	switch err := events.Err(); {
	case errors.Is(err, answers.ErrTooLarge):
		return err
	case c.finish != "": // the end of the stream may be broken, the answer is not
		return nil
	case err != nil:
		return err
	}
	if len(events.Data) > 0 { // the blank line after the last event is missing
		if done, err := c.addEvent(events.Name, events.Data); err == nil && (done || c.finish != "") {
			return nil
		}
	}
	return errors.New("the stream ended without [DONE] or a finish reason")
}

// addEvent takes the text out of an event, and reports whether it is the last one.
func (c *completion) addEvent(name string, data []byte) (done bool, err error) {
	data = bytes.TrimSpace(data)
	if name == "error" {
		return false, c.reported(eventError(data))
	}
	if len(data) == 0 {
		return false, nil
	}
	if string(data) == "[DONE]" {
		return true, nil
	}
	document, err := c.parse(data)
	own := name == "" || name == "message"
	switch {
	case err == nil && (own || document["choices"] != nil):
		return false, c.add(document)
	case !own: // of a kind of the server's own, such as the progress of a tool
		return false, nil
	case bytes.IndexByte(data, '\n') >= 0: // some servers leave out the blank lines between events
		for line := range bytes.Lines(data) {
			if done, err := c.addEvent("", line); err != nil || done {
				return done, err
			}
		}
		return false, nil
	}
	return false, &answers.Error{Problem: "an event is not a JSON object: " + err.Error(), Text: answers.Beginning(data)}
}

// eventError is the error that an event of that name tells of.
func eventError(data []byte) *answers.Error {
	if document, err := parseDocument(data); err == nil {
		if err := documentError(document); err != nil {
			return err
		}
		return reportedError(errorMessage(document), string(data), statusMember(document["code"]))
	}
	return reportedError(string(data), "", 0)
}
