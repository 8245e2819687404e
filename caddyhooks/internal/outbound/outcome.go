package outbound

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Outcome says how one attempt went.
type Outcome struct {
	// The receiver answered 2xx.
	Delivered bool
	// The attempt failed, and so would every further one.
	Final bool
	// The status of the answer; 0 if there was none.
	Status int
	// The pause that the receiver asked for before the next attempt, a day at most; 0 if it did not ask.
	RetryAfter time.Duration
	// The pause is for the whole channel, and not only for the chat.
	WholeChannel bool
	// The beginning of the answer's body, as the receiver wrote it: 4 KiB at most.
	Answer []byte
	// There was no connection, or no answer in time. Other deliveries to the same host would probably fail, too.
	Unreachable bool
	// Why nothing was delivered, in our own words: no secret, URL or internal address is in it.
	Reason string
}

const (
	maxAnswer     = 4 << 10
	maxRetryAfter = 24 * time.Hour
)

// NoteIn notes the answer in a delivery, and returns the error that its Sender has to return.
func (o Outcome) NoteIn(d *engine.Delivery) error {
	d.LastStatus, d.LastAnswer = o.Status, string(o.Answer)
	err := errors.New(o.Reason)
	switch {
	case o.Delivered:
		return nil
	case o.Final:
		return &engine.FinalError{Err: err}
	case o.Unreachable:
		return &engine.UnreachableError{Err: err}
	case o.RetryAfter > 0:
		return &engine.RetryLaterError{After: o.RetryAfter, WholeChannel: o.WholeChannel, Err: err}
	default:
		return err
	}
}

// outcomeOfAnswer reads the answer. Its body is bounded in size here, and in time by the context of the request. An error
// while reading it does not change the outcome, which depends on the status.
func outcomeOfAnswer(resp *http.Response, now time.Time) Outcome {
	o := Outcome{Status: resp.StatusCode}
	// After 101 the body is the bare connection, and reading from that does not end with the context.
	if resp.StatusCode != http.StatusSwitchingProtocols {
		o.Answer, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	}
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		o.Delivered = true
		return o
	case resp.StatusCode == http.StatusRequestTimeout,
		resp.StatusCode == http.StatusTooEarly,
		resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode >= 500:
		o.RetryAfter = RetryAfter(resp.Header.Get("Retry-After"), now)
	default:
		o.Final = true
	}
	o.Reason = outcomeReason("the receiver", resp.StatusCode)
	return o
}

// outcomeReason tells about an answer that is no success, and who gave it.
func outcomeReason(who string, status int) string {
	reason := fmt.Sprintf("%s answered %d", who, status)
	if status >= 300 && status <= 399 {
		reason += ", and redirects are not followed"
	}
	return reason
}

// RetryAfter reads a Retry-After value, in seconds or as a date. It is a day at most, and 0 if the value
// makes no sense.
func RetryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		d = time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		d = date.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// outcomeOfError puts the transport's error into words that may be shown to callers. Everything but a refused address
// may be better the next time.
func outcomeOfError(err error) Outcome {
	if refused, ok := errors.AsType[refusal](err); ok {
		return Outcome{Final: true, Reason: refused.Error()}
	}
	if reason := unreachableReason(err); reason != "" {
		return Outcome{Unreachable: true, Reason: reason}
	}
	return Outcome{Reason: "the host gave no proper answer"}
}

// unreachableReason explains why there was no connection; "" if there was one.
func unreachableReason(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "the host does not exist"
		}
		return "the host could not be looked up"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the TLS certificate of the host is not valid"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the host does not speak TLS on this port"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "the host refused the connection"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "connecting to the host took longer than " + connectTimeout.String()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "the host could not be reached"
	}
	return ""
}
