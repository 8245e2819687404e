// Package absence tells callers who wait that the store has been unreachable for too long. It is a part of package engine, and imports no
// other package of the project.
package absence

import "time"

// Absence is that of a store, for one caller. It must be stopped.
type Absence struct {
	Changed <-chan struct{}  // closed when the store goes away or is back; nil if it never does
	TooLong <-chan time.Time // when there is nothing more to wait for

	outage func() (since time.Time, changed <-chan struct{}, cause error)
	lease  func() time.Duration
	timer  *time.Timer // nil if the store was never unreachable
}

// New watches a store. outage tells since when it is unreachable, and lease how long turns go on without it.
func New(outage func() (since time.Time, changed <-chan struct{}, cause error), lease func() time.Duration) *Absence {
	a := &Absence{outage: outage, lease: lease}
	a.Look()
	return a
}

// Look is called when Changed was closed. Turns of this node are given up when the store was unreachable for a lease, and then there is
// nothing more to wait for.
func (a *Absence) Look() {
	a.Stop()
	since, changed, cause := a.outage()
	a.Changed = changed
	if cause != nil {
		a.timer = time.NewTimer(max(0, a.lease()-time.Since(since)))
		a.TooLong = a.timer.C
	}
}

// Stop ends the wait.
func (a *Absence) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
