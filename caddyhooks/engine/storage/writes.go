package storage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Writes knows whether the store could write what it was last asked to, for each kind of write: one that accepts runs and cannot store
// their ends fails.
type Writes struct {
	failed [writeKinds]atomic.Pointer[failedWrite] // nil if the last one succeeded
}

// WriteKind is what is written.
type WriteKind int

const (
	WriteRun WriteKind = iota
	WriteClaim
	WriteEnd
	WriteBack // a run goes back to the queue
	WriteDelivery
	writeKinds
)

var writeKindNames = [writeKinds]string{"storing a run", "claiming runs", "storing the end of a run", "putting a run back",
	"recording a delivery"}

func (k WriteKind) String() string { return writeKindNames[k] }

type failedWrite struct {
	at  time.Time
	err error
}

// Note notes how a write went. A store that is unreachable, or broken, is known by other signs.
func (w *Writes) Note(kind WriteKind, err error) {
	var broken *BrokenError
	switch failed := &w.failed[kind]; {
	case err == nil && failed.Load() == nil:
	case err == nil:
		failed.Store(nil)
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrClaimLost), errors.Is(err, context.Canceled), errors.As(err, &broken):
	default:
		failed.Store(&failedWrite{time.Now(), fmt.Errorf("%s: %w", kind, err)})
	}
}

// failureCounts is how long a failed write counts if none of its kind is tried after it. A node that gets no requests because of it would
// never find out that it can write again.
const failureCounts = 30 * time.Second

// Failing is why the store could not write what it was last asked to, lately; nil if it could.
func (w *Writes) Failing() error {
	for kind := range w.failed {
		if failed := w.failed[kind].Load(); failed != nil && time.Since(failed.at) < failureCounts {
			return failed.err
		}
	}
	return nil
}
