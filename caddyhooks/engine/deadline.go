package engine

import (
	"context"
	"time"
)

// deadline is the time that a run has to be carried out in.
type deadline struct {
	at    time.Time
	timer *time.Timer
	sent  func() // lets the time begin anew, if nobody waits
}

// newDeadline starts the time of a run. That of a caller who waits began with the request.
func newDeadline(claim *Claim, start time.Time, cancel context.CancelCauseFunc) *deadline {
	timeout := claim.Run.Timeout
	if claim.Awaited {
		timeout -= claim.Waited
	}
	timer := time.AfterFunc(timeout, func() { cancel(errTimedOut) })
	d := &deadline{at: start.Add(timeout), timer: timer, sent: func() {}}
	if timeout <= 0 {
		cancel(errTimedOut)
	}
	if !claim.Awaited {
		d.sent = func() { timer.Reset(timeout) }
	}
	return d
}

func (d *deadline) stop() { d.timer.Stop() }
