package text

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
)

// PlainJSON writes <, > and & as they are.
func PlainJSON(value any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(value) != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(buf.Bytes())
}

// CompactJSON leaves out spaces between tokens. Text that is not JSON stays as it is.
func CompactJSON(raw []byte) []byte {
	var buf bytes.Buffer
	if json.Compact(&buf, raw) != nil {
		return raw
	}
	return buf.Bytes()
}

// JSONString is text as JSON. It is fast for texts that need no escapes, as most ids.
func JSONString(text string) []byte {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			encoded, _ := json.Marshal(text) // strings always encode
			return encoded
		}
	}
	return append(append([]byte{'"'}, text...), '"')
}

// JSONTime is a time in UTC, to the millisecond. A time that is not set is null.
func JSONTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// JSONSeconds is a duration in seconds, to the millisecond.
// JSONSeconds is a duration in seconds, to the millisecond.
func JSONSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// RoundedSeconds rounds to milliseconds.
func RoundedSeconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
