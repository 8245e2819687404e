package api

import (
	"strings"
	"testing"
)

func TestAcceptAsksForEvents(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                                                          false,
		"*/*":                                                       false,
		"text/*":                                                    false,
		"text/plain":                                                false,
		"application/json":                                          false,
		"text/event-stream":                                         true,
		"Text/Event-Stream":                                         true,
		" text/event-stream ;charset=utf-8":                         true,
		"text/event-stream;q=1.000":                                 true,
		"text/event-stream;q=0.001":                                 true,
		"text/event-stream; Q=0":                                    false,
		"text/event-stream;q=0.000":                                 false,
		"text/event-stream;q=1.001":                                 false,
		"text/event-stream;q=0.0001":                                false,
		"text/event-stream;q=high":                                  false,
		"text/event-stream;q=":                                      false,
		"text/event-stream;q":                                       false,
		"text/event-streams":                                        false,
		"text/event-stream, */*":                                    true,
		"*/*, text/event-stream":                                    true,
		"*/*, text/event-stream;q=0.9":                              false,
		"*/*;q=0.9, text/event-stream":                              true,
		"text/event-stream, text/plain":                             true,
		"text/plain, text/event-stream":                             true,
		"text/plain, text/event-stream;q=0.5":                       false,
		"text/plain;q=0.4, text/event-stream;q=0.5":                 true,
		"text/*, text/event-stream;q=0.5":                           false,
		"*/*, text/*;q=0.1, text/event-stream;q=0.5":                true,
		"*/*, text/plain;q=0, text/event-stream;q=0.5":              true,
		"application/json, text/event-stream;q=0.1":                 true,
		`text/html;a="x,text/event-stream,y"`:                       false,
		`text/html;a="x\",text/event-stream", text/event-stream`:    true,
		`text/html;a="x;q=0", text/event-stream`:                    true,
		`text/html;a="never closed, text/event-stream`:              false,
		",,;;, text/event-stream,,":                                 true,
		"text/event-stream;q=0, text/event-stream":                  true,
		strings.Repeat("a/b;q=0.5, ", 1000) + "text/event-stream":   true,
		strings.Repeat("text/event-stream;q=0,", 1000) + "\x00\xff": false,
	} {
		if got := WantsEvents([]string{accept}); got != want {
			t.Errorf("Accept: %.80q asks for events: %v, want %v", accept, got, want)
		}
	}
	if !WantsEvents([]string{"text/plain;q=0.5", "text/event-stream"}) || WantsEvents([]string{"text/event-stream;q=0.5", "text/plain"}) || WantsEvents(nil) {
		t.Error("several headers are one list")
	}
}

func FuzzWantsEvents(f *testing.F) {
	f.Add("text/event-stream;q=0.5, text/plain;q=0.4")
	f.Add(`a/b;c="d\",e";q=1, text/event-stream`)
	f.Add("*/*;q=1.0.0,,;=,\"")
	f.Fuzz(func(t *testing.T, accept string) {
		wants := WantsEvents([]string{accept})
		if wants && !strings.Contains(strings.ToLower(accept), "text/event-stream") {
			t.Errorf("%q does not list text/event-stream", accept)
		}
		if !WantsEvents([]string{accept, "text/event-stream"}) {
			t.Errorf("%q makes a welcome type unwelcome", accept)
		}
		for rest := accept; rest != ""; {
			var r mediaRange
			before := len(rest)
			if r, rest = nextRange(rest); len(rest) >= before || r.Quality < 0 || r.Quality > 1000 {
				t.Fatalf("reading %q: %+v, %q", accept, r, rest)
			}
		}
	})
}
