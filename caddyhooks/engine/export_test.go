package engine

// Remembered is how many things the engine has in mind: turns and callers, and deliveries that it has claimed. An engine
// at rest remembers none.
func (e *Engine) Remembered() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running) + len(e.callers) + len(e.sending)
}

// CancelWords is how often the store has left word that a run is to be cancelled.
func (e *Engine) CancelWords() uint64 { return e.leases.cancelWords.Load() }
