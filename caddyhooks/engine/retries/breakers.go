package retries

import (
	"sync"
	"time"
)

// Breakers know to which hosts and chats attempts fail, and throttle them for a while. A host that cannot be reached a few
// times in a row gets a pause, and then one attempt at a time until one succeeds; each that fails makes the next pause
// longer. A chat, or a channel, that asks for a pause gets it, and a longer one if it asks again and again.
//
// A breaker that refuses calls would not do: refused deliveries would have to be put back, however many there are. So the
// store is told not to hand them out. The zero value is ready to use.
type Breakers struct {
	mu    sync.Mutex
	known map[Destination]*breaker
}

// breaker is a host or a chat to which attempts have failed lately.
type breaker struct {
	failures int
	first    time.Time     // when the first of them was
	backoff  time.Duration // the last pause of our own making
	paused   time.Time     // when the last pause began, whoever wanted it …
	until    time.Time     // … and when it is over
	asked    bool          // the other side wanted it
}

const (
	failuresToPause = 5
	firstPause      = 10 * time.Second
	longestPause    = 5 * time.Minute
	// longestAsked caps a receiver's Retry-After.
	longestAsked = time.Hour
	// slowAfterAsked is how long there is one attempt at a time after the other side has asked for a pause.
	slowAfterAsked = time.Minute
	// maxBreakers bounds how many are remembered.
	maxBreakers = 10_000
)

// Failed notes an attempt that failed, and the pause that the other side asked for, 0 if it did not. It returns the
// throttles that follow, with a pause of the destination first, for how long attempts have been failing, and whether this
// one made the pause.
func (b *Breakers) Failed(to Destination, began time.Time, asked time.Duration) (throttles []Throttle, down time.Duration, news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	h := b.known[to]
	var lifted []Throttle
	if h == nil {
		h = &breaker{first: now}
		lifted = b.remember(to, h)
	}
	if !h.paused.IsZero() && !began.After(h.paused) {
		// It was under way when the pause began. The store may not know of the pause yet.
		if rest := h.until.Sub(now); rest > 0 {
			throttles = append(throttles, Throttle{To: to, AtOnce: 1, Pause: rest})
		}
		return throttles, 0, false
	}
	if h.failures == 0 {
		h.first = now
	}
	if h.failures++; h.failures >= failuresToPause {
		h.backoff = min(max(2*h.backoff, firstPause), longestPause)
	}
	if pause := max(min(asked, longestAsked), h.backoff); pause > 0 {
		h.paused, h.until, h.asked, news = now, now.Add(pause), asked > 0, true
		throttles = append(throttles, Throttle{To: to, AtOnce: 1, Pause: pause})
	}
	return append(throttles, lifted...), now.Sub(h.first), news
}

// Succeeded notes an attempt that did not fail. It lifts the throttle, also of a destination that is not known here:
// another node may have paused it.
func (b *Breakers) Succeeded(to Destination) []Throttle {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.known[to]; h != nil {
		if h.failures, h.backoff = 0, 0; h.asked && time.Since(h.paused) < slowAfterAsked {
			return nil
		}
		delete(b.known, to)
	}
	return []Throttle{{To: to}}
}

// Reset forgets all that is known against a host or a chat.
func (b *Breakers) Reset(to Destination) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, to)
}

// remember makes room if need be: it forgets others, whichever, and lifts their throttles.
func (b *Breakers) remember(to Destination, h *breaker) (lifted []Throttle) {
	if b.known == nil {
		b.known = make(map[Destination]*breaker)
	}
	for other, known := range b.known {
		if len(b.known) < maxBreakers {
			break
		}
		if !known.paused.IsZero() {
			lifted = append(lifted, Throttle{To: other})
		}
		delete(b.known, other)
	}
	b.known[to] = h
	return lifted
}
