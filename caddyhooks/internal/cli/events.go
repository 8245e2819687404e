package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// heardEvent is an event as a client gets it.
type heardEvent struct {
	name, id string
	data     []byte
}

const (
	// maxEvent bounds an event that a client reads.
	maxEvent = 16 << 20
	// silence is how long a stream may say nothing before it counts as lost.
	silence = 3 * api.PingEvery
	// The pauses between attempts to reach a Caddy that is away.
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 2 * time.Second
	// longReload is a pause after which it is said that Caddy is still away.
	longReload = 500 * time.Millisecond
)

// follow hands over events until the person at the terminal has enough. When Caddy reloads its configuration, restarts or is out of
// reach, it says so and goes on as soon as it can. The first event of each connection is hello.
func (s *session) follow(topics []api.Topic, each func(heardEvent) error) error {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = api.TopicNames[t]
	}
	var stopped error // what each returned
	stream := eventsOf{session: s, topics: strings.Join(names, ",")}
	stream.each = func(event heardEvent) error {
		stopped = each(event)
		return stopped
	}
	toldWaiting := false
	for pause := firstReconnect; ; {
		connected, err := stream.read()
		switch {
		case s.ctx.Err() != nil:
			return nil //nolint:nilerr // somebody does not want to wait any more
		case stopped != nil:
			return stopped
		case !stream.begun && err == nil:
			return s.client.noHooks()
		case !stream.begun:
			return err
		case connected:
			s.screen.Note("%s", stream.farewell(err))
			pause, toldWaiting = firstReconnect, false
		case pause > longReload && !toldWaiting:
			s.screen.Note("Waiting until Caddy is back; Ctrl-C ends this.")
			toldWaiting = true
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, lastReconnect)
		}
	}
}

// eventsOf are the events of an instance, over one connection after the other.
type eventsOf struct {
	*session
	topics string
	each   func(heardEvent) error

	lastID string // of the last event
	begun  bool   // there was a connection
	bye    string // why the last one ended, as Caddy told it
}

// read reads the events of one connection. It reports whether there was one.
func (s *eventsOf) read() (connected bool, err error) {
	call := apiCall{path: s.path("events"), query: url.Values{"topics": {s.topics}}}
	if s.lastID != "" {
		call.header = http.Header{"Last-Event-Id": {s.lastID}}
	}
	resp, err := s.client.download(s.ctx, call, silence)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	s.bye = ""
	err = readEvents(resp.Body, func(event heardEvent) error {
		switch {
		case event.name == "bye":
			var bye struct {
				Reason string `json:"reason"`
			}
			_ = json.Unmarshal(event.data, &bye) // without a reason it is a farewell, too
			s.bye = bye.Reason
			return nil
		case event.name == "hello" && s.begun:
			s.screen.Note("Connected again.")
		}
		s.begun, connected = true, true
		if event.id != "" {
			s.lastID = event.id
		}
		return s.each(event)
	})
	return connected, err
}

// farewell says why a connection ended.
func (s *eventsOf) farewell(err error) string {
	switch s.bye {
	case "reload":
		return "Caddy reloads its configuration."
	case "shutdown":
		return "Caddy shuts down."
	}
	if err == nil {
		return "The connection to Caddy ended."
	}
	return fmt.Sprintf("The connection to Caddy was lost (%v).", err)
}

var errLongEvent = errors.New("an event is too long")

// readEvents reads server-sent events until their end, or until each returns an error.
func readEvents(from io.Reader, each func(heardEvent) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEvent)
	var event heardEvent
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			if event.name != "" {
				if err := each(event); err != nil {
					return err
				}
			}
			event = heardEvent{}
			continue
		}
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			event.name = string(value)
		case "id":
			event.id = string(value)
		case "data":
			if event.data != nil {
				event.data = append(event.data, '\n')
			}
			if event.data = append(event.data, value...); len(event.data) > maxEvent {
				return errLongEvent
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errLongEvent
	}
	return lines.Err()
}

// eventRows are the rows of an event about runs or deliveries. It says how many were left out.
func (s *session) eventRows(event heardEvent) (rows []json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if err := s.decode(event.data, &members); err != nil {
		return nil, err
	}
	var skipped int
	if err := errors.Join(s.decode(members[event.name], &rows), s.decode(members["skipped"], &skipped)); err != nil {
		return nil, err
	}
	if skipped > 0 {
		s.screen.Note("%s at once went by unseen.", counted(skipped, "more event", "more events"))
	}
	return rows, nil
}

// printLine prints a value of JSON on one line.
func (s *session) printLine(value json.RawMessage) {
	fmt.Fprintf(s.screen.Out(), "%s\n", text.CompactJSON(value))
}
