package outbound

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Callback is one result to be delivered.
type Callback struct {
	URL string
	// Names the delivery: the same for all its attempts, so that receivers can tell a repeat.
	ID     string
	RunID  string
	ChatID string
	// How the run ended: completed, failed, timed_out, cancelled or expired.
	RunStatus string
	// Counts from 1.
	Attempt int
	// Default: text/plain; charset=utf-8.
	ContentType string
	Body        []byte
	// The attempt as a span of a trace, in the form of W3C Trace Context. Default: none is sent.
	TraceParent string
}

// request builds the request of one attempt, signed as of now.
func (cb Callback) request(ctx context.Context, s Signer) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cb.URL, bytes.NewReader(cb.Body))
	if err != nil {
		return nil, err
	}
	contentType := cb.ContentType
	if contentType == "" {
		contentType = "text/plain; charset=utf-8"
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "caddy-hooks")
	req.Header.Set("X-Service-Run-Id", HeaderValue(cb.RunID))
	req.Header.Set("X-Service-Chat-Id", HeaderValue(cb.ChatID))
	req.Header.Set("X-Service-Run-Status", HeaderValue(cb.RunStatus))
	req.Header.Set("X-Service-Attempt", strconv.Itoa(cb.Attempt))
	if cb.TraceParent != "" {
		req.Header.Set("Traceparent", cb.TraceParent)
	}
	s.Sign(req.Header, HeaderValue(cb.ID), time.Now(), cb.Body)
	return req, nil
}

// HeaderValue makes any text fit for a header. Spaces, percent signs and whatever is not visible ASCII are
// percent-encoded, so that percent-decoding always gives the text back, and usual ids stay as they are.
func HeaderValue(s string) string {
	const hexDigits = "0123456789ABCDEF"
	plain := func(c byte) bool { return '!' <= c && c <= '~' && c != '%' }
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:i])
	for ; i < len(s); i++ {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}
