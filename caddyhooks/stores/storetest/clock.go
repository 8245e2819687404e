package storetest

import (
	"sync"
	"time"
)

// clock is what the suite knows about the clock of a store: it has gone on since it was first seen by as much as the test
// let it, and by as much time as has passed, unless it stands still.
type clock struct {
	mu        sync.Mutex
	began     time.Time // by our own clock
	firstSeen time.Time // as the store's clock said, some time after that
	advanced  time.Duration
}

// advance lets the store's clock go forward.
func (s *store) advance(d time.Duration) {
	s.t.Helper()
	s.options.Advance(s.t, s.Store, d)
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.advanced += d
}

// slack is how much two clocks may drift apart during a test.
const slack = time.Second

// isNow expects a time that the store has set in the call that was just made.
func (s *store) isNow(name string, at time.Time) {
	s.t.Helper()
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if at.IsZero() {
		s.t.Errorf("%s is not set", name)
		return
	}
	if s.clock.firstSeen.IsZero() {
		s.clock.firstSeen, s.clock.advanced = at, 0
		return
	}
	earliest := s.clock.firstSeen.Add(s.clock.advanced - slack)
	latest := earliest.Add(time.Since(s.clock.began) + 2*slack)
	if at.Before(earliest) || at.After(latest) {
		s.t.Errorf("%s is %v, want now, which is between %v and %v", name, at, earliest, latest)
	}
}

// lasted expects a duration by the store's clock that began when the clock had been advanced by so much less.
func (s *store) lasted(name string, got, want time.Duration) {
	s.t.Helper()
	if got < want-slack || got > want+patience {
		s.t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// tokens are the tokens of all claims of runs and deliveries that were handed out in a check.
type tokens struct {
	mu   sync.Mutex
	used map[string]bool
}

// isNew reports whether a token was never handed out before.
func (k *tokens) isNew(token string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if token == "" || k.used[token] {
		return false
	}
	if k.used == nil {
		k.used = map[string]bool{}
	}
	k.used[token] = true
	return true
}
