package sse

import (
	"sync"
)

// StreamEnd ends the streams of an instance, whose configuration is replaced or whose server shuts down.
type StreamEnd struct {
	Over   chan struct{}
	Reason string // once it is over

	mu   sync.Mutex
	tell map[*func()]struct{} // called at the end
}

func NewStreamEnd() *StreamEnd {
	return &StreamEnd{Over: make(chan struct{}), tell: make(map[*func()]struct{})}
}

func (e *StreamEnd) End(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isOver() {
		return
	}
	e.Reason = reason
	close(e.Over)
	for f := range e.tell {
		(*f)()
	}
}

// WhenOver calls f when the streams are to end, at once if that is now. f must not block. It is not called any more when stop
// has returned.
func (e *StreamEnd) WhenOver(f func()) (stop func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isOver() {
		f()
		return func() {}
	}
	e.tell[&f] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.tell, &f)
	}
}

// isOver reports whether the streams are to end.
func (e *StreamEnd) isOver() bool {
	select {
	case <-e.Over:
		return true
	default:
		return false
	}
}
