package hookstest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
)

// RunEvent is an event of a run.
type RunEvent struct {
	Name string
	Data map[string]any
}

// Follow asks for events and returns them as they come. The channel is closed at their end.
func (s *Server) Follow(method, path, body string) <-chan RunEvent {
	t := s.T
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+Token)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("got %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	events := make(chan RunEvent, 10_000)
	go func() {
		defer close(events)
		var event RunEvent
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
			case "event":
				event.Name = value
			case "data":
				if err := json.Unmarshal([]byte(value), &event.Data); err != nil {
					t.Errorf("an event has the data %q", value)
				}
			case "":
				if event.Name != "" {
					events <- event
				}
				event = RunEvent{}
			}
		}
	}()
	return events
}
