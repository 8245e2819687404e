package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Silence ends a turn of which nothing was heard for too long. It begins when Heard is called first.
type Silence struct {
	Limit time.Duration // 0: none
	End   context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// DefaultIdle is the usual limit of a silence.
const DefaultIdle = 2 * time.Minute

// Heard lets the time begin anew.
func (s *Silence) Heard() {
	if s.Limit <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.Limit, func() { s.End(&silentError{s.Limit}) })
	default:
		s.timer.Reset(s.Limit)
	}
}

// Stop is called when the turn is over.
func (s *Silence) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// Listen is a reader that tells of every byte.
func (s *Silence) Listen(r io.Reader) io.Reader {
	if s.Limit <= 0 {
		return r
	}
	return &listener{r, s}
}

type listener struct {
	io.Reader
	silence *Silence
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 {
		l.silence.Heard()
	}
	return n, err
}

// silentError says that a runner was not heard for so long.
type silentError struct{ limit time.Duration }

func (e *silentError) Error() string { return fmt.Sprintf("the runner was silent for %v", e.limit) }

// WasSilent is the silentError that ended a turn, nil if the turn ended otherwise.
func WasSilent(ctx context.Context) error {
	var silent *silentError
	if errors.As(context.Cause(ctx), &silent) {
		return silent
	}
	return nil
}
