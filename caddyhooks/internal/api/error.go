package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func Errorf(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

func Conflictf(format string, args ...any) error {
	return Errorf(http.StatusConflict, format, args...)
}

// Error is an error with its HTTP answer.
type Error struct {
	Status     int
	Message    string // for the caller
	Cause      error  // for operators: what went wrong inside, if anything
	Reason     string // for operators, if it is not the message. Callers must not be able to make many of them.
	RetryAfter time.Duration
	Header     [2]string // one more header, if it has a name

	AbandonsBody bool // the rest of the body is not read
	OfRun        bool // it tells how a run ended
	OfChat       bool // it is about the chat
}

func (a *Error) Error() string { return a.Message }

func Busy(retryAfter time.Duration, message, reason string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, RetryAfter: retryAfter, Message: message, Reason: reason}
}

// ErrorBody is the JSON body of every error, in an answer or in a callback.
func ErrorBody(message string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	// Strings always encode.
	_ = enc.Encode(struct {
		Status       string `json:"status"`
		ErrorMessage string `json:"errorMessage"`
	}{"error", message})
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// RetryAfterSeconds rounds up, so that no caller comes back too early.
func RetryAfterSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}
