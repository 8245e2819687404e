package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// storeWrites knows whether the store could write what it was last asked to, for each kind of write: one that accepts runs and cannot store
// their ends fails.
type storeWrites struct {
	failed [writeKinds]atomic.Pointer[failedWrite] // nil if the last one succeeded
}

type writeKind int

const (
	writeRun writeKind = iota
	writeClaim
	writeEnd
	writeBack // a run goes back to the queue
	writeDelivery
	writeKinds
)

var writeKindNames = [writeKinds]string{"storing a run", "claiming runs", "storing the end of a run", "putting a run back", "recording a delivery"}

func (k writeKind) String() string { return writeKindNames[k] }

type failedWrite struct {
	at  time.Time
	err error
}

// note notes how a write went. A store that is away, or broken, is known by other signs.
func (w *storeWrites) note(kind writeKind, err error) {
	var broken *StoreBrokenError
	switch failed := &w.failed[kind]; {
	case err == nil && failed.Load() == nil:
	case err == nil:
		failed.Store(nil)
	case errors.Is(err, ErrAway), errors.Is(err, ErrClaimLost), errors.Is(err, context.Canceled), errors.As(err, &broken):
	default:
		failed.Store(&failedWrite{time.Now(), fmt.Errorf("%s: %w", kind, err)})
	}
}

// failureCounts is how long a failed write counts if none of its kind is tried after it. A node that gets no requests because of it would
// never find out that it can write again.
const failureCounts = 30 * time.Second

// StoreFailing is why the store could not write what it was last asked to, lately; nil if it could.
func (e *Engine) StoreFailing() error {
	for kind := range e.writes.failed {
		if failed := e.writes.failed[kind].Load(); failed != nil && time.Since(failed.at) < failureCounts {
			return failed.err
		}
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
