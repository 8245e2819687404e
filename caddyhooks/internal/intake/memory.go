package intake

import (
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// MessageMemory counts the messages of one request in the memory of all requests, from before they are rendered until they are
// stored, and the values that are parsed for them. Messages count as far as they are larger than the body, so that a body that fits can
// become a message. The zero value counts nothing.
type MessageMemory struct {
	All      *Memory
	Body     int   // bytes of the request, which count until the messages are stored
	values   int   // what its values count
	messages int   // bytes of its messages
	refused  error // the answer to the caller if there was not enough memory
}

// reserve counts more bytes of a message. It reports whether there is room for them.
func (m *MessageMemory) reserve(bytes int) bool {
	return m.resize(m.values, m.messages+bytes, errMessagesNeverFit)
}

// reserveValues counts more bytes of values. It reports whether there is room for them. Values are in memory once, bytes of a request
// up to four times.
func (m *MessageMemory) reserveValues(bytes int) bool {
	return m.resize(m.values+(bytes+3)/4, m.messages, errValuesNeverFit)
}

// resize changes what the values and messages count.
func (m *MessageMemory) resize(values, messages int, neverFits error) bool {
	if m.All == nil {
		return true
	}
	m.refused = nil // earlier it may have been too much
	more := values - m.values + max(m.Body, messages) - max(m.Body, m.messages)
	switch {
	case more < 0:
		m.All.Remove(-more)
	case int64(values+max(m.Body, messages)) > m.All.Limit:
		m.refused = neverFits
		return false
	case more > 0 && !m.All.Add(more):
		m.All.Remove(more)
		m.refused = errMessagesFull
		return false
	}
	m.values, m.messages = values, messages
	return true
}

// settle gives back what was reserved beyond the bytes that the messages have.
func (m *MessageMemory) settle(bytes int) {
	if bytes < m.messages {
		m.resize(m.values, bytes, nil)
	}
}

// Release ends the use of the values and messages.
func (m *MessageMemory) Release() { m.resize(0, 0, nil) }

var errMessagesFull = api.Busy(time.Second, MemoryFull, MemoryFullReason)

// Memory bounds the bytes of all bodies that have arrived, and of the messages that are made of them, until they are stored.
// A body that takes a long time to arrive counts by what has come of it.
type Memory struct {
	Limit int64 // max_memory / settings.MemoryPerByte
	Used  atomic.Int64
}

// Add counts bytes. It reports whether there is room for them.
func (m *Memory) Add(n int) bool { return m.Used.Add(int64(n)) <= m.Limit }

func (m *Memory) Remove(n int) { m.Used.Add(int64(-n)) }

const (
	MemoryFull       = "Too many bytes of other requests are being read; try again in a moment."
	MemoryFullReason = "the memory for bodies and messages is full (max_memory)"
)
