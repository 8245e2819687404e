package engine

import "time"

// pruneEvery is how often the engine looks for runs that have been kept long enough.
const pruneEvery = time.Minute

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
		}
		pause := pruneEvery
		e.protect("pruning", func() {
			start := time.Now()
			more, err := e.store.Prune(e.base, e.config.Load().Limits)
			if err != nil {
				e.storeFailed("pruning failed", err)
			} else if more {
				pause = max(4*time.Since(start), 5*time.Millisecond)
			}
		})
		timer.Reset(pause)
	}
}
