package engine

import (
	"context"
	"errors"
	"time"
)

// waiter is told the end of a run. There is one for all who wait for the same run.
type waiter struct {
	ended   chan struct{}
	outcome Outcome // to be read after ended is closed
	waiting int     // how many wait; under the engine's lock
}

// wait registers somebody who waits for the end of a run, until stopWaiting.
func (e *Engine) wait(id string) *waiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waiting[id]
	if w == nil {
		w = &waiter{ended: make(chan struct{})}
		e.waiting[id] = w
	}
	w.waiting++
	return w
}

func (e *Engine) stopWaiting(id string, w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.waiting--
	if w.waiting == 0 && e.waiting[id] == w {
		delete(e.waiting, id)
		delete(e.doomed, id)
	}
}

// tell wakes those who wait for this very run.
func (e *Engine) tell(id string, outcome Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.waiting[id]; w != nil {
		delete(e.waiting, id)
		w.outcome = outcome
		close(w.ended)
	}
}

// Find returns what is known about a run. If it has not ended yet it waits for that, as long as patience lasts.
func (e *Engine) Find(ctx context.Context, id string, patience time.Duration) (*Record, error) {
	if patience <= 0 {
		return e.get(ctx, id)
	}
	w := e.wait(id)
	defer e.stopWaiting(id, w)
	record, err := e.get(ctx, id)
	if err != nil || record.Status.Ended() {
		return record, err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
	case <-e.stopping:
	case <-ctx.Done():
	}
	return e.get(ctx, id)
}

// get asks the store, which may be closed if the engine is stopping.
func (e *Engine) get(ctx context.Context, id string) (*Record, error) {
	record, err := e.store.Get(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) && e.isStopping() {
		return nil, ErrStopping
	}
	return record, err
}

// cancelPatience is how long Cancel waits for a runner to let go of a turn.
const cancelPatience = 5 * time.Second

// Cancel ends a run that has not ended yet, and returns what became of it. The runner is told by the end of its context;
// if it does not return soon, the record says that the run is still running.
func (e *Engine) Cancel(ctx context.Context, id string) (*Record, error) {
	w := e.wait(id)
	defer e.stopWaiting(id, w)
	record, err := e.get(ctx, id)
	if err != nil || record.Status.Ended() {
		return record, err
	}
	if err := e.end(record.Run, Outcome{Status: Cancelled, Message: "The run was cancelled."}, errCancelled); err != nil {
		return nil, err
	}
	// Between the two it may have ended on its own.
	if record, err = e.get(ctx, id); err != nil || record.Status.Ended() {
		return record, err
	}
	timer := time.NewTimer(cancelPatience)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return e.get(ctx, id)
}

// List returns runs, the newest first.
func (e *Engine) List(ctx context.Context, query Query) (page []*Record, next string, err error) {
	return e.store.List(ctx, query)
}
