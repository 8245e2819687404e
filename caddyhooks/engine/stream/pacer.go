package stream

import (
	"sync"
	"time"
)

// pacer wakes the followers of streams that have news, all at the same time and not too often.
type pacer struct {
	mu    sync.Mutex
	noted []*stream
	last  time.Time // when they were last woken
}

// note has the followers of a stream woken, at once if that was not done lately.
func (p *pacer) note(s *stream, followers int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted = append(p.noted, s)
	if len(p.noted) > 1 {
		return // it is planned
	}
	pause := min(max(shortestBeat, time.Duration(followers)*beatPerFollower), longestBeat)
	time.AfterFunc(max(0, pause-time.Since(p.last)), p.beat)
}

func (p *pacer) beat() {
	p.mu.Lock()
	noted := p.noted
	p.noted, p.last = nil, time.Now()
	p.mu.Unlock()
	for _, s := range noted {
		s.mu.Lock()
		s.publish()
		s.mu.Unlock()
	}
}

// Pauses between two times that followers are woken. They grow with the number of followers, since each has to be woken.
const (
	shortestBeat    = 20 * time.Millisecond
	beatPerFollower = time.Millisecond
	longestBeat     = time.Second
)
