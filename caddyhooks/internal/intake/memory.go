package intake

import (
	"sync/atomic"
)

// Memory bounds the bytes of all bodies that have arrived, and of the messages that are made of them, until they are stored.
// A body that takes a long time to arrive counts by what has come of it, and takes at most twice as much memory.
type Memory struct {
	Limit int64
	Used  atomic.Int64
}

// Add counts bytes. It reports whether there is room for them.
func (m *Memory) Add(n int) bool { return m.Used.Add(int64(n)) <= m.Limit }

func (m *Memory) Remove(n int) { m.Used.Add(int64(-n)) }

const (
	MemoryFull       = "Too many bytes of other requests are being read; try again in a moment."
	MemoryFullReason = "the memory for bodies and messages is full (max_memory)"
)
