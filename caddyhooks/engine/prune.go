package engine

import "time"

// pruneEvery is how often the engine looks for runs that have been kept long enough.
const pruneEvery = time.Minute

// Prune has the engine look for what was kept long enough now, and not in its time. It does not wait for that.
func (e *Engine) Prune() { signal(e.pruneNow) }

// pruneLimits are the limits with the History that is in force now.
func (c *Config) pruneLimits() Limits {
	limits := c.Limits
	if c.History != nil {
		limits.History = c.History()
	}
	return limits
}

// noteTold has the engine prune before its time when so much was added to the history that it may exceed its limit by far.
func (e *Engine) noteTold(run *Run) {
	limit := e.config.Load().Limits.HistoryBytes
	if run.History <= 0 || limit <= 0 {
		return
	}
	told := run.Told()
	if e.toldSince.Add(int64(told.Size())) > max(limit/16, 1<<20) {
		e.toldSince.Store(0)
		e.Prune()
	}
}

// prune forgets old runs and keys, in steps that are small and leave the store to others most of the time.
func (e *Engine) prune() {
	defer e.loops.Done()
	timer := time.NewTimer(pruneEvery)
	defer timer.Stop()
	for {
		select {
		case <-e.stopping:
			return
		case <-timer.C:
		case <-e.pruneNow:
		}
		pause := pruneEvery
		e.protect("pruning", func() {
			start := time.Now()
			more, err := e.store.Prune(e.base, e.config.Load().pruneLimits())
			if err != nil {
				e.storeFailed("pruning failed", err)
			} else if more {
				pause = max(4*time.Since(start), 5*time.Millisecond)
			}
		})
		timer.Reset(pause)
	}
}
