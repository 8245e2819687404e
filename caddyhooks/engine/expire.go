package engine

import (
	"errors"
	"time"
)

const (
	// expireStep is how many runs are ended at once.
	expireStep = 100
	// expireEvery is how often to look, since other nodes accept runs too.
	expireEvery = time.Minute
)

// expire ends runs that no runner took on within their queue time.
func (e *Engine) expire() {
	defer e.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-e.stopping:
			return
		case <-timer.C:
		case <-e.expireNow:
		}
		wait := time.Second // if the store panics
		e.protect("ending runs that waited too long", func() { wait = e.expireOverdue() })
		next := time.Now().Add(wait)
		e.expireAt.Store(&next)
		timer.Reset(wait)
	}
}

// expectExpiry sees to it that a run that was just accepted is looked at in time.
func (e *Engine) expectExpiry(run *Run) {
	if next := e.expireAt.Load(); run.QueueTime > 0 && next != nil && time.Until(*next) > run.QueueTime {
		signal(e.expireNow)
	}
}

// expireOverdue ends some runs, and returns how long until there are more.
func (e *Engine) expireOverdue() (wait time.Duration) {
	ctx, stop := e.storeContext()
	defer stop()
	runs, wait, err := e.store.Runs().Overdue(ctx, expireStep)
	if err != nil {
		e.storeFailed("looking for runs that waited too long failed", err)
		return expireEvery
	}
	for _, run := range runs {
		if err := e.withdraw(run, e.expired(run)); err != nil && !errors.Is(err, ErrClaimLost) {
			return time.Second // the store is in the log
		}
	}
	if len(runs) == expireStep {
		return 0
	}
	if wait < 0 || wait > expireEvery {
		return expireEvery
	}
	return max(wait, time.Millisecond)
}
