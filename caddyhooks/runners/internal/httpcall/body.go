package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// Beginning reads as much of an answer as an Error needs. That is also enough of a short one for its connection to be
// used again.
func Beginning(resp *http.Response) string {
	// After 101 the body is the bare connection, and reading from that does not end with the context.
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return ""
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, answers.MaxBeginning)) // what has come is shown, though the rest may not come
	return string(data)
}

// MediaType is the type in a Content-Type header, whatever its parameters are like.
func MediaType(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// IsPage reports whether a type is that of pages for people: of a login, or of a proxy that has no better answer.
func IsPage(mediaType string) bool {
	return mediaType == "text/html" || mediaType == "application/xhtml+xml"
}

// Drain reads what follows an answer, so that its connection can be used again. An agent that has sent its result and not ended
// its stream is not waited for.
func Drain(body io.Reader, end context.CancelCauseFunc) {
	const patience, most = 100 * time.Millisecond, 4 << 10
	timer := time.AfterFunc(patience, func() { end(ErrTurnOver) })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, most)
}

// IsEncoded reports whether an answer is compressed, though nobody asked for it: net/http undoes what it asked for.
func IsEncoded(header http.Header) bool {
	encoding := header.Get("Content-Encoding")
	return encoding != "" && !strings.EqualFold(encoding, "identity")
}

// ErrEncoded is the error of a turn whose answer is compressed.
var ErrEncoded = errors.New("the runner's answer has a Content-Encoding; it must have none")

// ReadingError is an error of reading an answer, with the step in its text.
func ReadingError(err error) error {
	const step = "reading the runner's answer: "
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutAnswer
	}
	var answer *answers.Error
	if errors.As(err, &answer) { // which is redacted later, and must not be part of another text before
		answer.Problem = step + answer.Problem
		return answer
	}
	return fmt.Errorf(step+"%w", err)
}

var errCutAnswer = errors.New("the runner's answer broke off")

// ReadBounded reads an answer into memory that is at most twice what has arrived, or 2 KiB, which is enough for most. length is
// how long the answer says it is, if positive.
func ReadBounded(r io.Reader, length int64, limit int) ([]byte, error) {
	first := int64(2047)
	if length > 0 {
		first = min(length, first)
	}
	data := make([]byte, 0, first+1) // one more, to see the end
	for {
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(2*cap(data), limit+1)), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > limit:
			return nil, answers.ErrTooLarge
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

// StatusHint says what is wrong with a status that is not an error by itself.
func StatusHint(status int) string {
	switch status / 100 {
	case 1, 2:
		return "it must answer 200"
	case 3:
		return "it must answer 200, and redirects are not followed"
	default:
		return ""
	}
}
