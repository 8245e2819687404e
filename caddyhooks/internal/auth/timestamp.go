package auth

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// Timestamp says where the time of a signature is: in a header, in an entry of the signature's header, or in the body. At most
// one of these is set.
type Timestamp struct {
	Header string // in canonical form
	Entry  string // the beginning of the entry, such as "t="
	Member string // of the body; in milliseconds

	// How it is written in headers. Default: Seconds.
	Format TimeFormat

	// How old a signature may be, and how far its time may lie ahead.
	Tolerance time.Duration
}

// TimeFormat is a way to write a time. It is never guessed: where nothing separates the time from the rest of what is signed, digits that
// follow it could be counted to it.
type TimeFormat string

// The formats. The first two are numbers since 1970.
const (
	Seconds      TimeFormat = "seconds"
	Milliseconds TimeFormat = "milliseconds"
	RFC3339      TimeFormat = "rfc3339"
)

// read reads a time.
func (f TimeFormat) read(text string) (time.Time, bool) {
	if f == RFC3339 {
		at, err := time.Parse(time.RFC3339, text)
		return at, err == nil
	}
	number, ok := wholeNumber(text)
	if f == Milliseconds {
		return time.UnixMilli(number), ok
	}
	return time.Unix(number, 0), ok
}

// write is the opposite of read.
func (f TimeFormat) write(at time.Time) string {
	switch f {
	case RFC3339:
		return at.UTC().Format(time.RFC3339)
	case Milliseconds:
		return strconv.FormatInt(at.UnixMilli(), 10)
	default:
		return strconv.FormatInt(at.Unix(), 10)
	}
}

func (t *Timestamp) isSet() bool { return t.Header != "" || t.Entry != "" || t.Member != "" }

// isEntry reports whether an entry of the signature's header has the timestamp.
func (t *Timestamp) isEntry(entry string) bool {
	return t.Entry != "" && strings.HasPrefix(entry, t.Entry)
}

// text returns the timestamp as it was sent in the headers.
func (t *Timestamp) text(req *Request, signatures string) (timestamp string, n int) {
	switch {
	case t.Header != "":
		for _, line := range req.Header[t.Header] {
			if n++; n == 1 {
				timestamp = strings.Trim(line, " \t")
			}
		}
	case t.Entry != "":
		for i, line := range req.Header[signatures] {
			if i == maxSignatures {
				break
			}
			for entry := range strings.SplitSeq(line, ",") {
				if text, ok := strings.CutPrefix(strings.Trim(entry, " \t"), t.Entry); ok {
					if n++; n > 1 {
						return timestamp, n
					}
					timestamp = text
				}
			}
		}
	}
	return timestamp, n
}

// checkHeaders returns the timestamp in the headers, "" if it is not there that it belongs.
func (t *Timestamp) checkHeaders(req *Request, signatures string) (string, Verdict) {
	if t.Header == "" && t.Entry == "" {
		return "", Accept()
	}
	text, n := t.text(req, signatures)
	switch {
	case text == "" && t.Header != "":
		return "", RefuseMissing(SignedMissing(t.Header))
	case text == "":
		return "", RefuseMissing(TimestampMissing)
	case n > 1:
		return "", Refuse(TimestampRepeated)
	}
	at, ok := t.Format.read(text)
	if !ok || t.isOff(at, req.Now) {
		for _, other := range []TimeFormat{Seconds, Milliseconds, RFC3339} {
			if meant, ok := other.read(text); ok && !t.isOff(meant, req.Now) {
				return "", Refuse(TimestampIn(other, t.Format))
			}
		}
	}
	if !ok {
		return "", Refuse(TimestampMalformed)
	}
	return text, t.check(at, req.Now)
}

// checkBody checks a timestamp in the body, which is known to be signed.
func (t *Timestamp) checkBody(req *Request) Verdict {
	if t.Member == "" {
		return Accept()
	}
	doc, err := strictjson.ParseSelected(req.Body, strictjson.Members(t.Member))
	object, ok := doc.(map[string]any)
	if err != nil || !ok || object[t.Member] == nil {
		return Refuse(Reason(fmt.Sprintf("the body has no timestamp: %s is missing", t.Member)))
	}
	number, _ := object[t.Member].(json.Number)
	milliseconds, ok := wholeNumber(number.String())
	if !ok {
		return Refuse(TimestampMalformed)
	}
	return t.check(time.UnixMilli(milliseconds), req.Now)
}

func (t *Timestamp) check(at, now time.Time) Verdict {
	switch {
	case !t.isOff(at, now):
		return Accept()
	case at.Before(now):
		return Refuse(Reason(fmt.Sprintf("the timestamp is older than %s", t.Tolerance)))
	default:
		return Refuse(Reason(fmt.Sprintf("the timestamp is more than %s ahead of the clock here", t.Tolerance)))
	}
}

// isOff compares seconds, as the timestamps in headers have no fractions.
func (t *Timestamp) isOff(at, now time.Time) bool {
	age := now.Sub(at) // which is bounded by the longest durations
	return age >= t.Tolerance+time.Second || age < -t.Tolerance
}

// wholeNumber reads digits, and nothing else.
func wholeNumber(text string) (int64, bool) {
	if text == "" || len(text) > 15 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil
}
