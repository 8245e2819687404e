package engine

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// expireStep is how many runs are ended at once.
	expireStep = 100
	// expireEvery is how often to look, since other nodes accept runs too.
	expireEvery = time.Minute
)

// expirer ends runs that no runner took on within their queue time.
type expirer struct {
	*node
	ends    *runEnds
	runners *runners
	at      atomic.Pointer[time.Time] // when it is planned to look for runs that waited too long
	now     chan struct{}             // a run was accepted that has to be looked at earlier than planned
}

func newExpirer(n *node, ends *runEnds, runners *runners) *expirer {
	return &expirer{node: n, ends: ends, runners: runners, now: make(chan struct{}, 1)}
}

// loop ends runs that no runner took on within their queue time.
func (x *expirer) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-x.stopping:
			return
		case <-timer.C:
		case <-x.now:
		}
		wait := time.Second // if the store panics
		x.protect("ending runs that waited too long", func() { wait = x.endOverdue() })
		next := time.Now().Add(wait)
		x.at.Store(&next)
		timer.Reset(wait)
	}
}

// expect sees to it that a run that was just accepted is looked at in time.
func (x *expirer) expect(run *Run) {
	if next := x.at.Load(); run.QueueTime > 0 && next != nil && time.Until(*next) > run.QueueTime {
		signal(x.now)
	}
}

// endOverdue ends some runs, and returns how long until there are more.
func (x *expirer) endOverdue() (wait time.Duration) {
	ctx, stop := x.store.context()
	defer stop()
	runs, wait, err := x.store.Runs().Overdue(ctx, expireStep)
	if err != nil {
		x.store.failed("looking for runs that waited too long failed", err)
		return expireEvery
	}
	for _, run := range runs {
		if err := x.ends.withdraw(run, x.runners.expired(run)); err != nil && !errors.Is(err, ErrClaimLost) {
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
