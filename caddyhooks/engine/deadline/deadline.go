// Package deadline is the time that a run has to be carried out in. It is a part of package engine, and imports nothing of the project.
package deadline

import (
	"sync"
	"time"
)

// Deadline is when the time of a run is over. All methods may be called by many goroutines.
type Deadline struct {
	mu     sync.Mutex
	at     time.Time
	timer  *time.Timer
	pauses int           // that are not over
	rest   time.Duration // that is left when the last of them is
}

// New starts a time. over is called when it is, at once if there is none.
func New(start time.Time, timeout time.Duration, over func()) *Deadline {
	d := &Deadline{at: start.Add(timeout), timer: time.AfterFunc(timeout, over)}
	if timeout <= 0 {
		over()
	}
	return d
}

// Stop stops the clock for good.
func (d *Deadline) Stop() { d.timer.Stop() }

// When is the deadline as it is now.
func (d *Deadline) When() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// Restart lets the time begin anew.
func (d *Deadline) Restart(timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rest, d.at = timeout, time.Now().Add(timeout); d.pauses == 0 {
		d.timer.Reset(timeout)
	}
}

// Pause stops the clock until the function that it returns is called.
func (d *Deadline) Pause() (resume func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pauses == 0 {
		d.timer.Stop()
		d.rest = time.Until(d.at)
	}
	d.pauses++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.pauses--; d.pauses == 0 {
			d.at = time.Now().Add(d.rest)
			d.timer.Reset(d.rest)
		}
	}
}
