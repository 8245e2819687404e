package engine

// Remembered is how many things the engine has in mind: turns and callers, deliveries that it has claimed, and streams. An
// engine at rest remembers none.
func (e *Engine) Remembered() int {
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	e.leases.mu.Lock()
	defer e.leases.mu.Unlock()
	return len(e.turns.running) + len(e.turns.callers) + len(e.leases.runs) + len(e.leases.deliveries) + e.pool.hooks.Size() + e.Streams()
}

// CancelWords is how often the store has left word that a run is to be cancelled.
func (e *Engine) CancelWords() uint64 { return e.leases.cancelWords.Load() }

// Streams is how many runs the engine has news of, and to how many other nodes send them.
func (e *Engine) Streams() int {
	runs, bridges := e.streams.Size()
	return runs + bridges
}

// Bridges is how many runs of this engine are followed on other nodes.
func (e *Engine) Bridges() int {
	_, bridges := e.streams.Size()
	return bridges
}

// AgainOf is a run that is started again.
func AgainOf(run *Run) *Run { return run.again(Again{}) }
