package engine

import (
	"errors"
	"sync/atomic"
	"time"
)

// storeWrites knows whether the store could write what it was last asked to.
type storeWrites struct {
	failed atomic.Pointer[failedWrite] // nil if the last one succeeded
}

type failedWrite struct {
	at  time.Time
	err error
}

// note notes how a write went. A store that is away, or broken, is known by other signs.
func (w *storeWrites) note(err error) {
	var broken *StoreBrokenError
	switch {
	case err == nil && w.failed.Load() == nil:
	case err == nil:
		w.failed.Store(nil)
	case errors.Is(err, ErrAway), errors.Is(err, ErrClaimLost), errors.As(err, &broken):
	default:
		w.failed.Store(&failedWrite{time.Now(), err})
	}
}

// failureCounts is how long a failed write counts if none is tried after it. A node that gets no requests because of it would never
// find out that it can write again.
const failureCounts = 30 * time.Second

// StoreFailing is why the store could not write what it was last asked to, lately; nil if it could.
func (e *Engine) StoreFailing() error {
	if failed := e.writes.failed.Load(); failed != nil && time.Since(failed.at) < failureCounts {
		return failed.err
	}
	return nil
}

// IsBroken reports whether the store is broken, which only a restart can mend.
func (e *Engine) IsBroken() bool {
	select {
	case <-e.broken:
		return true
	default:
		return false
	}
}

// IsStopping reports whether the engine takes on nothing more.
func (e *Engine) IsStopping() bool { return e.isStopping() }
