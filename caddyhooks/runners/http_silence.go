package runners

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// silence ends a turn of which nothing was heard for too long. It begins when heard is called first.
type silence struct {
	limit time.Duration // 0: none
	end   context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// heard lets the time begin anew.
func (s *silence) heard() {
	if s.limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.limit, func() { s.end(&silentError{s.limit}) })
	default:
		s.timer.Reset(s.limit)
	}
}

// stop is called when the turn is over.
func (s *silence) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// listen is a reader that tells of every byte.
func (s *silence) listen(r io.Reader) io.Reader {
	if s.limit <= 0 {
		return r
	}
	return &listener{r, s}
}

type listener struct {
	io.Reader
	silence *silence
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 {
		l.silence.heard()
	}
	return n, err
}

// silentError says that a runner was not heard for so long.
type silentError struct{ limit time.Duration }

func (e *silentError) Error() string { return fmt.Sprintf("the runner was silent for %v", e.limit) }

// wasSilent is the silentError that ended a turn, nil if the turn ended otherwise.
func wasSilent(ctx context.Context) error {
	var silent *silentError
	if errors.As(context.Cause(ctx), &silent) {
		return silent
	}
	return nil
}
