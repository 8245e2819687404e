package codec

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func FuzzMinutes(f *testing.F) {
	f.Add([]byte("{}"))
	f.Add([]byte(`{"accepted":1,"durations":{"0":1,"99":2,"-1":3},"hooks":{"a\\\\00":{"last":"2026-01-01T00:00:00Z","durations":{"11":4}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var minute, again engine.Minute
		if DecodeMinute(data, &minute) != nil {
			return
		}
		text, err := EncodeMinute(&minute)
		if err != nil {
			return // a year that JSON has no form for
		}
		if err := DecodeMinute([]byte(text), &again); err != nil {
			t.Fatal(err)
		}
		if twice, err := EncodeMinute(&again); err != nil || twice != text {
			t.Fatalf("%s was read as %s, %v", text, twice, err)
		}
	})
}
