package engine

import (
	"sync"
	"time"
)

// breakers know which hosts cannot be reached. After a few failures in a row a host gets a pause, and then one attempt at a
// time until one succeeds; each that fails makes the next pause longer. A breaker that refuses calls would not do: what it
// refuses would have to be put back, however much of it there is. These say for how long the store should not hand
// anything out.
type breakers struct {
	mu    sync.Mutex
	hosts map[string]*breaker
}

// breaker is a host that could not be reached lately.
type breaker struct {
	failures int
	first    time.Time     // when it could not be reached for the first time
	pause    time.Duration // the last one, 0 if there was none yet
	since    time.Time     // when that began
}

const (
	failuresToPause = 5
	firstPause      = 10 * time.Second
	longestPause    = 5 * time.Minute
	// maxBreakers bounds how many hosts are remembered.
	maxBreakers = 10_000
)

// failed notes an attempt that did not reach the host, and says for how long to leave it alone, 0 for not at all, and for
// how long it has been down.
func (b *breakers) failed(host string, triedAt, now time.Time) (pause, down time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[host]
	if h == nil {
		if b.hosts == nil || len(b.hosts) >= maxBreakers {
			b.hosts = make(map[string]*breaker)
		}
		h = &breaker{first: now}
		b.hosts[host] = h
	}
	if h.pause > 0 && !triedAt.After(h.since) {
		return 0, 0 // it was under way when the pause began
	}
	if h.failures++; h.failures < failuresToPause {
		return 0, 0
	}
	h.pause = min(max(2*h.pause, firstPause), longestPause)
	h.since = now
	return h.pause, now.Sub(h.first)
}

// succeeded notes that a host was reached, and reports whether it had been given a pause before.
func (b *breakers) succeeded(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[host]
	delete(b.hosts, host)
	return h != nil && h.pause > 0
}
