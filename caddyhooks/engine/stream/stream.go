// Package stream lets callers follow what agents say while their runs are carried out, on whatever node. It knows runs by their
// ids alone, and imports nothing of the project.
//
// A Writer takes what is said in a turn. A Follower reads it at its own pace. A bridge passes it on to other nodes.
package stream

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Event is a piece of news of a run that has not ended.
type Event struct {
	// ID is a position in what the run says: whoever comes back with it goes on from there. Ids count up over all turns of the
	// run, on whatever node. It is 0 for the statuses Queued and Waiting, which have no position: the one before them still counts.
	ID     int64
	Kind   Kind
	Text   string // of a delta: more of the answer. Of a reset: what the answer begins with now.
	Status string // of a status: Queued, Running or Waiting
}

// Where a run is that has not ended.
const (
	Queued  = "queued"
	Running = "running"
	Waiting = "waiting" // put aside for a question
)

// Kind tells events apart.
type Kind string

const (
	KindStatus Kind = "status"
	KindDelta  Kind = "delta"
	KindReset  Kind = "reset" // the text so far does not count any more
)

const (
	// maxStreamText is how much of what a turn says can be followed. A runner that says more fails.
	maxStreamText = 1 << 20
	// maxEventText bounds the text of one event. More comes as several.
	maxEventText = 32 << 10
)

// stream is the news of one run. There is one while the run is carried out here, or is followed, or was a moment ago.
//
// A turn begins at a position. The status at its beginning counts one, that earlier texts do not count any more counts one,
// and each byte of its text. Turns begin at the time since the acceptance of the run, by the clock of the store, so that
// positions count up wherever the run is carried out.
type stream struct {
	hub *Hub
	id  string

	// Under the lock of the hub.
	followers int
	writers   int                // turns that are carried out here
	unwatch   context.CancelFunc // while somebody follows
	followed  time.Time          // when the last follower went, zero if there was none
	keptUntil time.Time          // zero if it is not kept

	look chan struct{} // the run has to be looked at again

	mu     sync.Mutex
	pause  string  // Queued or Waiting if it is not carried out, "" if it is or nobody knows
	writer *Writer // whose turn it is, if the run is carried out here
	turn   int64   // where the present turn began, 0 if that is not known
	last   int64   // the last position of all turns
	text   strings.Builder
	full   bool
	said   int           // how long the text was on another node, of which the rest is on its way
	shown  int           // how much of the text followers may have by now
	over   error         // why there is nothing more: io.EOF after the end of the run
	news   chan struct{} // closed when there is news; nil if nobody waits
	noted  bool          // the pacer knows that there is news
}

func (s *stream) isHere() bool { return s.currentWriter() != nil }

// currentWriter is that of the turn that is carried out here, if there is one.
func (s *stream) currentWriter() *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writer
}

func (s *stream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over != nil
}

// begin is called under the lock.
func (s *stream) begin(turn int64) {
	s.forgetTurn()
	s.turn, s.last = turn, turn+1
	s.changed()
}

// forgetTurn is called under the lock.
func (s *stream) forgetTurn() {
	s.turn, s.shown, s.said, s.full, s.pause = 0, 0, 0, false, ""
	s.text.Reset()
}

// add is called under the lock.
func (s *stream) add(text string) {
	if s.over != nil || s.full || text == "" {
		return
	}
	if room := maxStreamText - s.text.Len(); len(text) > room {
		text, s.full = text[:room], true
	}
	s.text.WriteString(text)
	s.last = s.turn + 1 + int64(s.text.Len())
	s.changed()
}

// end says that there will be no more news, and why.
func (s *stream) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = why
		s.publish()
	}
}

// changed has those who wait woken in time. It is called under the lock.
func (s *stream) changed() {
	if s.news != nil && !s.noted {
		s.noted = true
		s.hub.pace.note(s, s.hub.followers.Load())
	}
}

// publish lets followers have all there is. It is called under the lock.
func (s *stream) publish() {
	s.shown, s.noted = s.text.Len(), false
	s.wake()
}

// wake has those who wait look again. It is called under the lock.
func (s *stream) wake() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// wait returns what is closed when there is news. It is called under the lock.
func (s *stream) wait() <-chan struct{} {
	if s.news == nil {
		s.news = make(chan struct{})
	}
	if s.shown < s.text.Len() {
		s.changed()
	}
	return s.news
}

// signal leaves word in a channel of capacity 1 if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
