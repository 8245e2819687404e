package runners

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

// maxStream bounds a stream: each token comes with a good deal of JSON around it, and comments count too.
const maxStream = 256 * maxReply

// readEvents reads an answer that comes as server-sent events, up to the one that says [DONE]. A stream that ends before is
// complete if there was a finish reason, which finished is told of.
func (c *completion) readEvents(r io.Reader, finished func()) error {
	bounded := &io.LimitedReader{R: r, N: maxStream}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(make([]byte, 0, 4096), maxDocument)
	lines.Split(new(eventLines).split)
	var name string
	var data []byte // each of its lines with a line break
	for lines.Scan() {
		if line := lines.Bytes(); len(line) > 0 {
			field, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(field) {
			case "event":
				name = string(value[:min(len(value), 64)])
			case "data":
				if len(data)+len(value) > maxDocument {
					return errReplyTooLarge
				}
				data = append(append(slices.Grow(data, len(value)+1), value...), '\n')
			}
			continue
		}
		before := c.finish
		if done, err := c.addEvent(name, data); err != nil || done {
			return err
		}
		if c.finish != before {
			finished()
		}
		name, data = "", data[:0]
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong), err == nil && bounded.N == 0:
		return errReplyTooLarge
	case c.finish != "": // the end of the stream may be broken, the answer is not
		return nil
	case err != nil:
		return err
	}
	if len(data) > 0 { // the blank line after the last event is missing
		if done, err := c.addEvent(name, data); err == nil && (done || c.finish != "") {
			return nil
		}
	}
	return errors.New("the stream ended without [DONE] or a finish reason")
}

// addEvent takes the text out of an event, and reports whether it is the last one.
func (c *completion) addEvent(name string, data []byte) (done bool, err error) {
	data = bytes.TrimSpace(data)
	if name == "error" {
		return false, eventError(data)
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
	return false, &answerError{problem: "an event is not a JSON object: " + err.Error(), answer: string(data[:min(len(data), maxAnswerBeginning)])}
}

// eventError is the error that an event of that name tells of.
func eventError(data []byte) error {
	if document, err := parseDocument(data); err == nil {
		if err := documentError(document); err != nil {
			return err
		}
		return toldError(errorMessage(document), string(data))
	}
	return toldError(string(data), "")
}

// eventLines splits a stream of events into lines, which end with \n, \r\n or \r.
type eventLines struct {
	started bool
	afterCR bool // a \n that follows belongs to the end of the line before
}

func (l *eventLines) split(data []byte, atEOF bool) (advance int, line []byte, err error) {
	skip := 0
	if !l.started {
		bom := []byte("\ufeff")
		if len(data) < len(bom) && bytes.HasPrefix(bom, data) && !atEOF {
			return 0, nil, nil
		}
		l.started = true
		if bytes.HasPrefix(data, bom) {
			skip = len(bom)
		}
	}
	if l.afterCR && len(data) > skip {
		l.afterCR = false
		if data[skip] == '\n' {
			skip++
		}
	}
	rest := data[skip:]
	end := bytes.IndexAny(rest, "\r\n")
	switch {
	case end >= 0:
		// The line is handed out before it is known whether a \n follows a \r: that may take long.
		l.afterCR = rest[end] == '\r'
		return skip + end + 1, rest[:end], nil
	case atEOF: // a line without an end is incomplete, unless the stream ends with it
		if len(rest) == 0 {
			return len(data), nil, nil
		}
		return len(data), rest, nil
	default:
		return skip, nil, nil
	}
}
