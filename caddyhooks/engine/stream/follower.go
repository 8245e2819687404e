package stream

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"
)

// Follower reads the news of a run at its own pace. What it has not read takes no memory of its own.
type Follower struct {
	stream *stream
	closed chan struct{}
	close  sync.Once

	// Of Next.
	after  int64  // a position that is not known to be one of the present turn
	turn   int64  // that is being read
	read   int    // of its text
	clean  bool   // there is no text that a reset would have to take back
	status string // that it got last
	events []Event
	timer  *time.Timer // of NextWithin, nil before its first call
}

// Next waits for news. Deltas that pile up come as one, at a pace that depends on the number of followers. io.EOF says that
// the run has ended and nothing is left; other errors are those of the node, and that of ctx. It is
// for one goroutine, which has the events until it calls Next again.
func (f *Follower) Next(ctx context.Context) ([]Event, error) {
	return f.next(ctx, nil)
}

// NextWithin is Next that returns no events after a time without news.
func (f *Follower) NextWithin(ctx context.Context, patience time.Duration) ([]Event, error) {
	if f.timer == nil {
		f.timer = time.NewTimer(patience)
	} else {
		f.timer.Reset(patience)
	}
	defer f.timer.Stop()
	return f.next(ctx, f.timer.C)
}

func (f *Follower) next(ctx context.Context, late <-chan time.Time) ([]Event, error) {
	s := f.stream
	for {
		s.mu.Lock()
		if f.turn == 0 || s.over != nil {
			s.shown = s.text.Len() // a new follower need not wait
		}
		events := f.take()
		if len(events) > 0 || s.over != nil {
			over := s.over
			s.mu.Unlock()
			if len(events) > 0 {
				return events, nil
			}
			return nil, over
		}
		news := s.wait()
		s.mu.Unlock()
		select {
		case <-news:
		case <-late:
			return nil, nil
		case <-f.closed:
			return nil, errFollowerClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

var errFollowerClosed = errors.New("the follower is closed")

// take returns what the follower does not have yet. It is called under the lock.
func (f *Follower) take() []Event {
	s := f.stream
	events := f.events[:0]
	defer func() { f.events = events }()
	if s.turn == 0 {
		if s.pause != "" && f.status != s.pause {
			f.status = s.pause
			events = append(events, Event{Kind: KindStatus, Status: s.pause})
		}
		return events
	}
	resets := false
	if f.turn != s.turn {
		if s.shown < s.said && s.over == nil {
			return nil // the place at which this follower goes on may be in the rest
		}
		at := f.after - s.turn - 1
		f.turn, f.read, f.after = s.turn, 0, -1
		if at >= 0 && at <= int64(s.shown) && s.splits(int(at)) {
			f.read, f.clean = int(at), at == 0
		} else {
			resets = !f.clean
			status := Event{ID: s.turn, Kind: KindStatus, Status: Running}
			if !resets {
				status.ID++ // who comes back with it needs no reset either
			}
			if at != -1 { // that place is behind the status, and before the reset
				events = append(events, status)
			}
		}
	}
	f.status = Running
	piece := f.piece()
	f.read += len(piece)
	id := s.turn + 1 + int64(f.read)
	switch {
	case resets:
		f.clean = piece == ""
		events = append(events, Event{ID: id, Kind: KindReset, Text: piece})
	case piece != "":
		f.clean = false
		events = append(events, Event{ID: id, Kind: KindDelta, Text: piece})
	}
	return events
}

// piece is the next part of the text, with whole characters.
func (f *Follower) piece() string {
	s := f.stream
	text := s.text.String()[f.read:s.shown]
	if len(text) > maxEventText {
		text = text[:maxEventText]
	} else if s.over != nil {
		return text
	}
	return text[:len(text)-unfinished(text)]
}

// splits reports whether a character begins at a place in the text, or the text ends there.
func (s *stream) splits(at int) bool {
	text := s.text.String()
	return at == len(text) || utf8.RuneStart(text[at])
}

// unfinished is the length of a character at the end of a text of which more bytes are to come.
func unfinished(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if rest := text[len(text)-n:]; utf8.RuneStart(rest[0]) {
			if utf8.FullRuneInString(rest) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Close lets go of the run. It may be called more than once, and while Next waits.
func (f *Follower) Close() {
	f.close.Do(func() {
		close(f.closed)
		h := f.stream.hub
		h.mu.Lock()
		defer h.mu.Unlock()
		h.followers.Add(-1)
		f.stream.followers--
		f.stream.followed = time.Now()
		h.release(f.stream)
	})
}
