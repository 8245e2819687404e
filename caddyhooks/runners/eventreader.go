package runners

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

// eventReader reads server-sent events one after the other.
type eventReader struct {
	name string // of the event, "" if it has none
	data []byte // each of its lines with a line break; valid until the next call of next

	lines   *bufio.Scanner
	bounded *io.LimitedReader
	maxData int
	tooMuch bool
	told    bool // the event above was returned
}

// newEventReader bounds the whole stream, and the data of one event.
func newEventReader(r io.Reader, maxStream int64, maxData int) *eventReader {
	e := &eventReader{bounded: &io.LimitedReader{R: r, N: maxStream}, maxData: maxData}
	e.lines = bufio.NewScanner(e.bounded)
	e.lines.Buffer(make([]byte, 0, 4096), maxData)
	e.lines.Split(new(eventLines).split)
	return e
}

// next reads up to the end of an event, and reports whether there is one. After the last one, name and data are those of an
// event whose end is missing, if the stream ended with one.
func (e *eventReader) next() bool {
	if e.told {
		e.name, e.data, e.told = "", e.data[:0], false
	}
	for !e.tooMuch && e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			e.told = true
			return true
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value[:min(len(value), maxEventName)])
		case "data":
			if e.tooMuch = len(e.data)+len(value) > e.maxData; !e.tooMuch {
				e.data = append(append(slices.Grow(e.data, len(value)+1), value...), '\n')
			}
		}
	}
	return false
}

// maxEventName is longer than any name that means something.
const maxEventName = 64

// err is why there are no more events, nil at the end of the stream.
func (e *eventReader) err() error {
	err := e.lines.Err()
	if e.tooMuch || errors.Is(err, bufio.ErrTooLong) || err == nil && e.bounded.N == 0 {
		return errReplyTooLarge
	}
	return err
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
