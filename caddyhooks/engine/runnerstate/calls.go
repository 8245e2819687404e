package runnerstate

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Calls are notes on the calls of runners. They outlive reloads, by the name of the runner. The zero value is ready to use.
type Calls struct {
	mu    sync.Mutex
	known map[string]*callNotes
}

type callNotes struct {
	inFlight    int
	trying      bool
	lastError   string
	lastErrorAt time.Time
	lastOK      time.Time
}

// get returns the notes on a runner. It is called under the lock.
func (c *Calls) get(name string) *callNotes {
	notes := c.known[name]
	if notes == nil {
		if c.known == nil {
			c.known = make(map[string]*callNotes)
		}
		notes = new(callNotes)
		c.known[name] = notes
	}
	return notes
}

// Begin notes that a call begins.
func (c *Calls) Begin(name string) {
	c.mu.Lock()
	c.get(name).inFlight++
	c.mu.Unlock()
}

// Answered notes that a call is over and was answered.
func (c *Calls) Answered(name string) {
	now := time.Now()
	c.mu.Lock()
	notes := c.get(name)
	notes.inFlight--
	notes.lastOK = now
	c.mu.Unlock()
}

// Failed notes that a call is over without an answer. The text is "" if that is not the runner's fault.
func (c *Calls) Failed(name, text string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.get(name)
	notes.inFlight--
	if text != "" {
		notes.lastError, notes.lastErrorAt = text, now
	}
}

// BeginTry reports false if a try is under way.
func (c *Calls) BeginTry(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.get(name)
	if notes.trying {
		return false
	}
	notes.trying = true
	return true
}

func (c *Calls) EndTry(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get(name).trying = false
}

// Forget drops the notes on runners that are gone and have no calls under way. It looks at all of them: there are few.
func (c *Calls) Forget(isConfigured func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(name string, notes *callNotes) bool {
		return !isConfigured(name) && notes.inFlight == 0 && !notes.trying
	})
}

// States tells how the calls went of the runners that are configured, and of those that have notes, sorted by name. How the runners take on
// turns is left out.
func (c *Calls) States(configured []string) []State {
	c.mu.Lock()
	notes := make(map[string]callNotes)
	for _, name := range configured {
		notes[name] = callNotes{}
	}
	for name, known := range c.known {
		notes[name] = *known
	}
	c.mu.Unlock()
	states := make([]State, 0, len(notes))
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		n := notes[name]
		states = append(states, State{Name: name, InFlight: n.inFlight, LastError: n.lastError, LastErrorAt: n.lastErrorAt, LastOK: n.lastOK})
	}
	return states
}
