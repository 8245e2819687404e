package postgres

import (
	"sync/atomic"
	"time"
)

// commits tells of the transactions that accept runs, end them, and settle deliveries. Each is one call of a function of the database.
// Calls that only ask for work are not among them: most find nothing, and write nothing.
type commits struct {
	told atomic.Pointer[func(changes int, took time.Duration)] // nil if nobody wants to know
}

// OnCommit has told called after each transaction.
func (c *commits) OnCommit(told func(changes int, took time.Duration)) { c.told.Store(&told) }

// note tells of a transaction that has just ended.
func (c *commits) note(changes int, began time.Time) {
	if told := c.told.Load(); told != nil && changes > 0 {
		(*told)(changes, time.Since(began))
	}
}
