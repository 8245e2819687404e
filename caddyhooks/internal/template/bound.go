package template

// A bound says how far a message may grow.
type bound struct {
	limit int // of its bytes
	base  int // its bytes before a text that is made on its own, as in a pipe

	reserve  func(bytes int) bool // of the Input; nil if memory is not counted
	reserved int                  // bytes that reserve allowed
	refused  bool                 // reserve did not allow more
}

// fits reports whether a message, or a text that is made on its own, may have so many bytes.
func (b *bound) fits(size int) bool {
	size += b.base
	return size <= b.limit && (size <= b.reserved || b.allocate(size))
}

// allocate reserves the memory for a message of so many bytes, and for as many as it has so far, so that it is not asked for each
// value.
func (b *bound) allocate(size int) bool {
	if b.reserve == nil || size <= b.reserved {
		return true
	}
	for _, whole := range [...]int{max(size, 2*b.reserved), size} {
		if b.reserve(whole - b.reserved) {
			b.reserved = whole
			return true
		}
	}
	b.refused = true
	return false
}
