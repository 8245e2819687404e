package service

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// MaxRunStreams bounds the open event streams of the runs of an instance.
const MaxRunStreams = 4096

// RunStreams counts the open event streams of runs. They are clients of an instance, of its old and its new configuration.
type RunStreams struct {
	mu      sync.Mutex
	Count   int
	Readers map[string]*RunReaders // by the id of the run
}

// RunReaders are the streams of one run. They share its result: a thousand of them would have a thousand copies of it.
type RunReaders struct {
	id    string
	Count atomic.Int32 // changed under the lock of runStreams

	mu   sync.Mutex
	last []byte // their last frame, nil until one of them needs it

	framing sync.Mutex
	frames  [2]sharedFrame // those that were made last
	oldest  int            // of them
}

// sharedFrame is a frame that is sent to many.
type sharedFrame struct {
	name frameName
	text []byte
}

// frameName tells apart the frames of a run: an event is known by its kind, its place, and the length of its text.
type frameName struct {
	events      int
	first, last struct {
		id     int64
		kind   engine.EventKind
		status string
		length int
	}
}

func nameFrame(events []engine.Event) (name frameName) {
	name.events = len(events)
	first, last := &events[0], &events[len(events)-1]
	name.first.id, name.first.kind, name.first.status, name.first.length = first.ID, first.Kind, first.Status, len(first.Text)
	name.last.id, name.last.kind, name.last.status, name.last.length = last.ID, last.Kind, last.Status, len(last.Text)
	return name
}

// Frame returns events as they are sent. Readers that are at the same place share it.
func (r *RunReaders) Frame(events []engine.Event) []byte {
	name := nameFrame(events)
	r.framing.Lock()
	defer r.framing.Unlock()
	for i := range r.frames {
		if shared := &r.frames[i]; shared.name == name {
			return shared.text
		}
	}
	var text bytes.Buffer
	WriteEvents(&text, events)
	r.frames[r.oldest] = sharedFrame{name, text.Bytes()}
	r.oldest = (r.oldest + 1) % len(r.frames)
	return text.Bytes()
}

// Open counts one more stream of a run. It returns nil if there are too many.
func (s *RunStreams) Open(id string) *RunReaders {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Count == MaxRunStreams {
		return nil
	}
	s.Count++
	readers := s.Readers[id]
	if readers == nil {
		readers = &RunReaders{id: id}
		if s.Readers == nil {
			s.Readers = make(map[string]*RunReaders)
		}
		s.Readers[id] = readers
	}
	readers.Count.Add(1)
	return readers
}

// streamCount is how many are open.
func (s *RunStreams) streamCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Count
}

func (s *RunStreams) Close(readers *RunReaders) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Count--
	if readers.Count.Add(-1) == 0 {
		delete(s.Readers, readers.id)
	}
}

// Result returns the last frame, which is made once.
func (r *RunReaders) Result(show func() ([]byte, error)) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		return r.last, nil
	}
	last, err := show()
	r.last = last
	return last, err
}

// WriteEvents adds events of a run.
func WriteEvents(to *bytes.Buffer, events []engine.Event) {
	for i := range events {
		event := &events[i]
		if event.Kind == engine.EventStatus {
			WriteEvent(to, string(event.Kind), event.ID, struct {
				Status string `json:"status"`
			}{event.Status})
		} else {
			WriteEvent(to, string(event.Kind), event.ID, struct {
				Text string `json:"text"`
			}{event.Text})
		}
	}
}

// WriteEvent adds an event whose data always encodes. It has no id if that is 0.
func WriteEvent(to *bytes.Buffer, name string, id int64, data any) {
	to.WriteString("event: " + name + "\n")
	if id != 0 {
		to.WriteString("id: " + strconv.FormatInt(id, 10) + "\n")
	}
	to.WriteString("data: ")
	enc := json.NewEncoder(to) // which ends the line
	enc.SetEscapeHTML(false)
	_ = enc.Encode(data)
	to.WriteByte('\n')
}
