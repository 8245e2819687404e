package engine

// Remembered is how many runs the engine has something in mind about: that they are carried out, waited for or to be
// cancelled. An engine at rest remembers none.
func (e *Engine) Remembered() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running) + len(e.waiting) + len(e.doomed)
}
