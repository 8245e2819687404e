package caddyhooks

import "time"

// messageMemory counts the messages of one request in the memory of all requests, from before they are rendered until they are
// stored. They count as far as they are larger than the body, so that a body that fits can become a message. The zero value counts
// nothing.
type messageMemory struct {
	all      *requestMemory
	body     int   // bytes of the request, which count until the messages are stored
	reserved int   // bytes of its messages
	refused  error // the answer to the caller if there was not enough memory
}

// reserve counts more bytes of a message. It reports whether there is room for them.
func (m *messageMemory) reserve(bytes int) bool {
	if m.all == nil {
		return true
	}
	m.refused = nil // earlier it may have been too much
	before, after := max(m.body, m.reserved), max(m.body, m.reserved+bytes)
	switch {
	case int64(after) > m.all.limit:
		m.refused = errMessagesNeverFit
		return false
	case after > before && !m.all.add(after-before):
		m.all.remove(after - before)
		m.refused = errMessagesFull
		return false
	}
	m.reserved += bytes
	return true
}

// settle gives back what was reserved beyond the bytes that the messages have.
func (m *messageMemory) settle(bytes int) {
	if bytes >= m.reserved {
		return
	}
	if before, after := max(m.body, m.reserved), max(m.body, bytes); before > after {
		m.all.remove(before - after)
	}
	m.reserved = bytes
}

// release ends the use of the messages.
func (m *messageMemory) release() {
	m.settle(0)
	m.refused = nil
}

var errMessagesFull = busy(time.Second, memoryFull, memoryFullReason)
