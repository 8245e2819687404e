package local

import (
	"container/heap"
	"time"
)

// timeQueue holds things by a time, the earliest first, and things of the same time by their number. They can be moved
// and removed.
type timeQueue[T movable] struct{ entries timeHeap[T] }

// movable is a thing that can be in one timeQueue, and keeps its place there.
type movable interface {
	place() *int
	number() uint64
}

type entry[T any] struct {
	at    time.Time
	thing T
}

// set puts a thing at a time, whether it is in the queue already or not.
func (q *timeQueue[T]) set(thing T, at time.Time) {
	if i := *thing.place() - 1; i >= 0 {
		q.entries[i].at = at
		heap.Fix(&q.entries, i)
		return
	}
	heap.Push(&q.entries, entry[T]{at, thing})
}

func (q *timeQueue[T]) remove(thing T) {
	if i := *thing.place() - 1; i >= 0 {
		heap.Remove(&q.entries, i)
	}
}

// first returns the earliest thing and its time.
func (q *timeQueue[T]) first() (thing T, at time.Time, ok bool) {
	if len(q.entries) == 0 {
		return thing, at, false
	}
	return q.entries[0].thing, q.entries[0].at, true
}

// timeHeap is the heap beneath a timeQueue. Places count from 1, so that 0 is nowhere.
type timeHeap[T movable] []entry[T]

func (h timeHeap[T]) Len() int { return len(h) }
func (h timeHeap[T]) Less(i, j int) bool {
	if at := h[i].at.Compare(h[j].at); at != 0 {
		return at < 0
	}
	return h[i].thing.number() < h[j].thing.number()
}

func (h timeHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].thing.place(), *h[j].thing.place() = i+1, j+1
}

func (h *timeHeap[T]) Push(e any) {
	*h = append(*h, e.(entry[T]))
	*e.(entry[T]).thing.place() = len(*h)
}

func (h *timeHeap[T]) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	(*h)[last] = entry[T]{}
	*h = (*h)[:last]
	if cap(*h) > shrinkAbove && last < cap(*h)/8 {
		*h = append(make(timeHeap[T], 0, 2*last), *h...)
	}
	*popped.thing.place() = 0
	return popped
}
