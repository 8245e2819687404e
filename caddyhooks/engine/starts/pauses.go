package starts

import (
	"sync"
	"time"
)

// Pauses knows what is paused. Runs of it are not claimed, or at a pace. All methods may be called by many goroutines.
type Pauses struct {
	mu   sync.Mutex
	list []*paced
}

// Pause keeps runs of something from being started. Turns under way go on.
type Pause struct {
	What   What
	Name   string
	Reason string
	By     string // who paused it, "" if that is not known
	Rate   Rate   // how many of its runs start all the same
}

// Rate is how many runs start in a time, evenly. The zero value is none.
type Rate struct {
	Runs int
	Per  time.Duration
}

// String is why a run waits, for operators.
func (p *Pause) String() string {
	text := "paused"
	if p.Rate.Runs > 0 {
		text = "resumed at a pace"
	}
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// paced is a pause with the starts that its rate allows.
type paced struct {
	Pause
	left  float64   // starts that were not used, without those that are held …
	at    time.Time // … at that time
	held  int       // starts of claims which the store has not answered yet
	short bool      // there may be runs that were not claimed, since others held the starts
}

// burst is the time whose starts may come at once if there were none before, one start at least.
const burst = 100 * time.Millisecond

// refill adds the starts that time has brought.
func (p *paced) refill(now time.Time) {
	most := max(1, float64(p.Rate.Runs)*float64(burst)/float64(p.Rate.Per))
	p.left = min(most, p.left+float64(now.Sub(p.at))/float64(p.each()))
	p.at = now
}

// each is the time between two starts.
func (p *paced) each() time.Duration { return p.Rate.Per / time.Duration(p.Rate.Runs) }

// Set sets all pauses. A pace that was there before goes on as it is.
func (s *Pauses) Set(pauses []Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.list
	s.list = nil
	for _, pause := range pauses {
		next := &paced{Pause: pause, left: 1, at: time.Now()}
		for _, p := range before {
			if p.What == pause.What && p.Name == pause.Name && p.Rate == pause.Rate {
				next = p // claims may hold starts of it
				next.Pause = pause
			}
		}
		s.list = append(s.list, next)
	}
}

// Held are the limits of a claim, with the starts that are held for it.
type Held struct {
	Max    int // of all runs together
	Limits []Limit
	starts []heldStarts
}

type heldStarts struct {
	of *paced
	n  int
}

// Hold returns the limits of a claim of up to n runs, which Settle must be called for.
func (s *Pauses) Hold(n int) Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := Held{Max: n}
	now := time.Now()
	for _, p := range s.list {
		most := 0
		if p.Rate.Runs > 0 {
			p.refill(now)
			most = min(n, max(int(p.left), 0))
			p.short = p.short || most < n && p.held > 0
			p.left -= float64(most)
			p.held += most
			held.starts = append(held.starts, heldStarts{p, most})
		}
		if p.What == All {
			held.Max = min(held.Max, most)
		} else if most < n {
			held.Limits = append(held.Limits, Limit{p.What, p.Name, most})
		}
	}
	return held
}

// Started is what a run is known by.
type Started struct{ Hook, Chat, Runner string }

// isOf reports whether the pause is for a run.
func (p *Pause) isOf(run *Started) bool {
	switch p.What {
	case All:
		return true
	case Hook:
		return p.Name == run.Hook
	case Chat:
		return p.Name == run.Chat
	default:
		return p.Name == run.Runner
	}
}

// Settle gives up the starts that were not used. It reports whether there may be runs to claim that there were no starts for before.
func (s *Pauses) Settle(held Held, claimed []Started) (more bool) {
	if len(held.starts) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range held.starts {
		used := 0
		for i := range claimed {
			if h.of.isOf(&claimed[i]) {
				used++
			}
		}
		h.of.held -= h.n
		if h.of.left += float64(h.n - used); h.of.short && h.of.left >= 1 {
			h.of.short, more = false, true
		}
	}
	return more
}

// Wait is how long until another run of something may start, negative if that is not a question of time.
func (s *Pauses) Wait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := time.Duration(-1)
	now := time.Now()
	for _, p := range s.list {
		if p.Rate.Runs == 0 {
			continue
		}
		p.refill(now)
		if p.left >= 1 {
			continue
		}
		rest := max(time.Duration((1-p.left)*float64(p.each())), time.Millisecond)
		if wait < 0 || rest < wait {
			wait = rest
		}
	}
	return wait
}

// Of is why a run does not start, "" if it may. One that does not start at all is told before a pace.
func (s *Pauses) Of(run Started) (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.list {
		if p.isOf(&run) && (text == "" || p.Rate.Runs == 0) {
			text = p.Pause.String()
			if p.Rate.Runs == 0 {
				return text
			}
		}
	}
	return text
}
