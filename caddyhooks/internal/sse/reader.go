package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
)

// Reader reads server-sent events one after the other.
type Reader struct {
	Name string // of the event, "" if it has none
	ID   string // the same
	Data []byte // each of its lines with a line break; valid until the next call of Next

	lines    *bufio.Scanner
	bounded  *io.LimitedReader
	maxData  int
	tooLarge error
	tooMuch  bool
	returned bool // the event above was returned
}

// NewReader bounds the whole stream, and the data of one event. What is larger ends with the error tooLarge.
func NewReader(r io.Reader, maxStream int64, maxData int, tooLarge error) *Reader {
	e := &Reader{bounded: &io.LimitedReader{R: r, N: maxStream}, maxData: maxData, tooLarge: tooLarge}
	e.lines = bufio.NewScanner(e.bounded)
	e.lines.Buffer(make([]byte, 0, 4096), maxData)
	e.lines.Split(new(eventLines).split)
	return e
}

// Next reads up to the end of an event, and reports whether there is one. After the last one, name and data are those of an
// event whose end is missing, if the stream ended with one.
func (e *Reader) Next() bool {
	if e.returned {
		e.Name, e.ID, e.Data, e.returned = "", "", e.Data[:0], false
	}
	for !e.tooMuch && e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			e.returned = true
			return true
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.Name = string(value[:min(len(value), maxEventName)])
		case "id":
			e.ID = string(value)
		case "data":
			if e.tooMuch = len(e.Data)+len(value) > e.maxData; !e.tooMuch {
				e.Data = append(append(slices.Grow(e.Data, len(value)+1), value...), '\n')
			}
		}
	}
	return false
}

// maxEventName is longer than any name that means something.
const maxEventName = 64

// Err is why there are no more events, nil at the end of the stream.
func (e *Reader) Err() error {
	err := e.lines.Err()
	if e.tooMuch || errors.Is(err, bufio.ErrTooLong) || err == nil && e.bounded.N == 0 {
		return e.tooLarge
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

const MediaType = "text/event-stream"
