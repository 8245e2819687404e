package memory

import (
	"container/heap"
	"time"

	"github.com/google/uuid"
)

// expirations holds runs by the time they were over, and gives out the earliest first.
type expirations struct{ entries expiryHeap }

type expiry struct {
	over time.Time
	run  uuid.UUID
}

func (e *expirations) add(over time.Time, run uuid.UUID) { heap.Push(&e.entries, expiry{over, run}) }

// take takes out the earliest run if it was over at a time.
func (e *expirations) take(at time.Time) (run uuid.UUID, ok bool) {
	if len(e.entries) == 0 || e.entries[0].over.After(at) {
		return run, false
	}
	return heap.Pop(&e.entries).(expiry).run, true
}

// expiryHeap is the heap beneath expirations.
type expiryHeap []expiry

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].over.Before(h[j].over) }
func (h expiryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *expiryHeap) Push(e any)        { *h = append(*h, e.(expiry)) }
func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	*h = (*h)[:last]
	return popped
}
