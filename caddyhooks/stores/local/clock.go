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
type Clock struct{ ahead atomic.Int64 }

// Now is the time by this clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance sets the clock forward, for tests that cannot wait.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }
