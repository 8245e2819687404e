package engine

import (
	"sync"
	"time"
)

// breakers know to which hosts and chats attempts fail, and have the store hand out nothing to them for a while. A host that
// cannot be reached a few times in a row gets a pause, and then one attempt at a time until one succeeds; each that fails
// makes the next pause longer. A chat, or a channel, that asks for a pause gets it, and a longer one if it asks again and
// again. A breaker that refuses calls would not do: what it refuses would have to be put back, however much of it there is.
type breakers struct {
	// throttle is called under the lock: a pause must not come after the success that ends it.
	throttle func(to Destination, atOnce int, until time.Time)

	mu    sync.Mutex
	known map[Destination]*breaker
}

// breaker is a host or a chat to which attempts have failed lately.
type breaker struct {
	failures int
	first    time.Time     // when the first of them was
	backoff  time.Duration // the last pause of our own making
	paused   time.Time     // when the last pause began, whoever wanted it
	asked    bool          // it was the other side
}

const (
	failuresToPause = 5
	firstPause      = 10 * time.Second
	longestPause    = 5 * time.Minute
	// longestAsked bounds for how long a chat is left alone because of what was said to one delivery.
	longestAsked = time.Hour
	// easyFor is for how long there is one attempt at a time after the other side has asked for a pause.
	easyFor = time.Minute
	// maxBreakers bounds how many are remembered.
	maxBreakers = 10_000
)

// failed notes an attempt that failed, and the pause that the other side asked for, 0 if it did not. It says what pause
// there is now because of it, 0 for none, and for how long attempts have been failing.
func (b *breakers) failed(to Destination, triedAt time.Time, asked time.Duration) (pause, since time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	h := b.known[to]
	if h == nil {
		h = &breaker{first: now}
		b.remember(to, h)
	}
	if !h.paused.IsZero() && !triedAt.After(h.paused) {
		return 0, 0 // it was under way when the pause began
	}
	if h.failures == 0 {
		h.first = now
	}
	if h.failures++; h.failures >= failuresToPause {
		h.backoff = min(max(2*h.backoff, firstPause), longestPause)
	}
	if pause = max(min(asked, longestAsked), h.backoff); pause > 0 {
		h.paused, h.asked = now, asked > 0
		b.throttle(to, 1, now.Add(pause))
	}
	return pause, now.Sub(h.first)
}

// succeeded notes an attempt that did not fail.
func (b *breakers) succeeded(to Destination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.known[to]
	if h == nil {
		return
	}
	if h.failures, h.backoff = 0, 0; h.asked && time.Since(h.paused) < easyFor {
		return
	}
	b.forget(to)
}

// reset forgets all that is known against a host or a chat.
func (b *breakers) reset(to Destination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[to] != nil {
		b.forget(to)
	}
}

// remember makes room if need be: it forgets another one, whichever.
func (b *breakers) remember(to Destination, h *breaker) {
	if b.known == nil {
		b.known = make(map[Destination]*breaker)
	}
	for other := range b.known {
		if len(b.known) < maxBreakers {
			break
		}
		b.forget(other)
	}
	b.known[to] = h
}

func (b *breakers) forget(to Destination) {
	if !b.known[to].paused.IsZero() {
		b.throttle(to, 0, time.Time{})
	}
	delete(b.known, to)
}
