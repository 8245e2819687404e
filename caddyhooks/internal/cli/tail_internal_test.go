package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEventsAreReadAsTheyAreSent(t *testing.T) {
	t.Parallel()
	const stream = ": ping\n\nevent: hello\nid: a-1\ndata: {}\n\nevent:runs\r\ndata:one\r\ndata: two\r\n\r\ndata: nameless\n\nretry: 5\nevent: bye\ndata: x\n\nevent: half\ndata: of it"
	want := []string{"hello a-1 {}", "runs  one\ntwo", "bye  x"}
	for _, from := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
		var got []string
		err := readEvents(from, func(event streamEvent) error {
			got = append(got, event.name+" "+event.id+" "+string(event.data))
			return nil
		})
		if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%v, got %q, want %q", err, got, want)
		}
	}
	enough := errors.New("enough")
	if err := readEvents(strings.NewReader(stream), func(streamEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	long := io.MultiReader(strings.NewReader("event: runs\ndata: "), io.LimitReader(oneLongLine{}, 2*maxEvent))
	if err := readEvents(long, func(streamEvent) error { return nil }); !errors.Is(err, errLongEvent) {
		t.Errorf("of a long line: %v", err)
	}
}

// oneLongLine is a line without an end.
type oneLongLine struct{}

func (oneLongLine) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func FuzzEvents(f *testing.F) {
	f.Add("event: runs\nid: a-1\ndata: {\"runs\":[],\"skipped\":0}\n\n")
	f.Add(": ping\n\ndata:\n\nevent\n\n")
	f.Add("event: bye\r\ndata: {}\r\n\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		events := 0
		err := readEvents(strings.NewReader(stream), func(event streamEvent) error {
			events++
			if event.name == "" || strings.ContainsAny(event.name+event.id, "\n") || len(event.data) > len(stream) {
				t.Errorf("an event is %+v", event)
			}
			return nil
		})
		if err != nil || events > strings.Count(stream, "\n") {
			t.Errorf("%d events, %v", events, err)
		}
	})
}
