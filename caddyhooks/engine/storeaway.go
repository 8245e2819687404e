package engine

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Remote is a Store on another machine, which may be out of reach. Only such a store returns ErrAway.
type Remote interface {
	// Away tells since when the store cannot be reached, and why; cause is nil if it can be. changed is closed when that is
	// different. While the store is away each call returns ErrAway at once.
	Away() (since time.Time, changed <-chan struct{}, cause error)
}

// Refusal is why a store is away that will not be back by itself.
type Refusal interface {
	error
	IsRefusal()
}

// StoreAway tells since when the store cannot be reached, and why; cause is nil if it can be. changed is closed when that is
// different, and nil if it never is.
func (e *Engine) StoreAway() (since time.Time, changed <-chan struct{}, cause error) {
	if remote, ok := e.store.(Remote); ok {
		return remote.Away()
	}
	return time.Time{}, nil, nil
}

// isRemote reports whether the store is on another machine, and other nodes may work on it while this one cannot reach it.
func (e *Engine) isRemote() bool {
	_, ok := e.store.(Remote)
	return ok
}

// awayError is ErrAway with its cause if the store is away.
func (e *Engine) awayError() error {
	if _, _, cause := e.StoreAway(); cause != nil {
		return fmt.Errorf("%w: %w", ErrAway, cause)
	}
	return nil
}

// watchStore tells operators when the store goes away and when it is back, once each, and then has everything looked at that may
// have changed meanwhile. Turns under way go on, until their leases are over.
func (e *Engine) watchStore() {
	defer e.loops.Done()
	var since time.Time // of the absence that was told
	var told string     // its cause
	for {
		began, changed, cause := e.StoreAway()
		switch {
		case cause != nil && since.IsZero():
			since, told = began, cause.Error()
			e.log().Error("the store cannot be reached: nothing is accepted or started until it is back. It is tried again all the time", ErrorField(cause))
		case cause != nil:
			// Other causes come and go while a database starts.
			if refusal := (Refusal)(nil); errors.As(cause, &refusal) && told != cause.Error() {
				told = cause.Error()
				e.log().Error("the store answers, and refuses this node until somebody changes something", ErrorField(cause))
			}
		case !since.IsZero():
			e.log().Info("the store is back", zap.Duration("away", time.Since(since)))
			since = time.Time{}
			signal(e.renewNow) // which then tells dispatchers
			signal(e.workerFree)
			signal(e.sendMore)
			signal(e.expireNow)
		}
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-e.stopping:
			return
		}
	}
}

// isKnown reports whether an error was told in the log already, since it is that of every call: the store is broken, or away.
func (e *Engine) isKnown(err error) bool { return errors.Is(err, ErrAway) || e.noteBroken(err) }

// awayOutcome is for a caller whose run, or the end of it, may not be stored. It is not stored itself: what becomes of the run is decided
// when the store is back.
func awayOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The store cannot be reached, so it is not known what becomes of the run; ask for it later, or send the request again with its Idempotency-Key."}
}

// absence tells a caller who waits that the store has been away for too long.
type absence struct {
	engine  *Engine
	changed <-chan struct{}
	tooLong <-chan time.Time
	timer   *time.Timer // nil if the store was never away
}

// watchAbsence returns what must be stopped.
func (e *Engine) watchAbsence() *absence {
	a := &absence{engine: e}
	a.look()
	return a
}

// look is called when changed was closed. Turns of this node are given up when the store was away for a lease, and then there is nothing
// more to wait for.
func (a *absence) look() {
	a.stop()
	since, changed, cause := a.engine.StoreAway()
	a.changed = changed
	if cause != nil {
		a.timer = time.NewTimer(max(0, a.engine.lease()-time.Since(since)))
		a.tooLong = a.timer.C
	}
}

func (a *absence) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
