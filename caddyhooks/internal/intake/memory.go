package intake

import (
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// MessageMemory counts the messages of one request in the memory of all requests, from before they are rendered until they are
// stored. They count as far as they are larger than the body, so that a body that fits can become a message. The zero value counts
// nothing.
type MessageMemory struct {
	All      *Memory
	Body     int   // bytes of the request, which count until the messages are stored
	reserved int   // bytes of its messages
	refused  error // the answer to the caller if there was not enough memory
}

// reserve counts more bytes of a message. It reports whether there is room for them.
func (m *MessageMemory) reserve(bytes int) bool {
	if m.All == nil {
		return true
	}
	m.refused = nil // earlier it may have been too much
	before, after := max(m.Body, m.reserved), max(m.Body, m.reserved+bytes)
	switch {
	case int64(after) > m.All.Limit:
		m.refused = errMessagesNeverFit
		return false
	case after > before && !m.All.Add(after-before):
		m.All.Remove(after - before)
		m.refused = errMessagesFull
		return false
	}
	m.reserved += bytes
	return true
}

// settle gives back what was reserved beyond the bytes that the messages have.
func (m *MessageMemory) settle(bytes int) {
	if bytes >= m.reserved {
		return
	}
	if before, after := max(m.Body, m.reserved), max(m.Body, bytes); before > after {
		m.All.Remove(before - after)
	}
	m.reserved = bytes
}

// Release ends the use of the messages.
func (m *MessageMemory) Release() {
	m.settle(0)
	m.refused = nil
}

var errMessagesFull = api.Busy(time.Second, MemoryFull, MemoryFullReason)

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
