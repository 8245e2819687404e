// Package local is what stores share that have their data to themselves, in one process: the order of queued runs and who
// claimed them (Queue), the pending deliveries (Outbox), the nodes that work on the data (Nodes), run ids and the clock.
//
// It keeps no data: a store writes down what it has to, and tells Queue and Outbox. The stores memory and bolt are made
// of it.
package local

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of a store. The zero value goes like the machine's.
//
// It tells two times. Somebody may set the clock of a machine by hours or years while the store is open: then nothing that
// waits is to become due, overdue or late. So whatever is compared while the store is open goes by Steady. Now is for
// what is shown, and for what is written down and read by the next process, which has nothing else to go by.
type Clock struct{ ahead, set atomic.Int64 }

// Now is the time of day.
func (c *Clock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.ahead.Load() + c.set.Load()))
}

// Steady is a time that goes on evenly, however the clock of the machine is set. It means something in this process alone.
func (c *Clock) Steady() time.Time {
	return clockStart.Round(0).Add(time.Since(clockStart) + time.Duration(c.ahead.Load()))
}

var clockStart = time.Now()

// Past is the steady time of something that happened at a time of day. If that is still to come, then the clock has been
// set back since, and it counts as having happened now.
func (c *Clock) Past(at time.Time) time.Time {
	return c.Steady().Add(min(at.Sub(c.Now()), 0))
}

// Due is the steady time of something that is due at a time of day, and was put off by no more than longest. If it is
// later than that, then the clock has been set back since.
func (c *Clock) Due(at time.Time, longest time.Duration) time.Time {
	return c.Steady().Add(min(at.Sub(c.Now()), longest))
}

// Advance lets time pass, for tests that cannot wait.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// Set sets the clock forward or back, for tests.
func (c *Clock) Set(d time.Duration) { c.set.Add(int64(d)) }
