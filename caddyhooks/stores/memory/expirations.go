package memory

import (
	"container/heap"
	"time"
)

// expirations holds values by the time they were over, and gives out the earliest first.
type expirations[T any] struct{ entries expiryHeap[T] }

type expiry[T any] struct {
	over time.Time
	of   T
}

func (e *expirations[T]) add(over time.Time, of T) { heap.Push(&e.entries, expiry[T]{over, of}) }

// take takes out the earliest value if it was over at a time.
func (e *expirations[T]) take(at time.Time) (of T, ok bool) {
	if len(e.entries) == 0 || e.entries[0].over.After(at) {
		return of, false
	}
	return heap.Pop(&e.entries).(expiry[T]).of, true
}

// expiryHeap is the heap beneath expirations.
type expiryHeap[T any] []expiry[T]

func (h expiryHeap[T]) Len() int           { return len(h) }
func (h expiryHeap[T]) Less(i, j int) bool { return h[i].over.Before(h[j].over) }
func (h expiryHeap[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *expiryHeap[T]) Push(e any)        { *h = append(*h, e.(expiry[T])) }
func (h *expiryHeap[T]) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	*h = (*h)[:last]
	return popped
}
