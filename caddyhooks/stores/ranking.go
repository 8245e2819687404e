package stores

import (
	"container/heap"
	"time"
)

// ranking holds things by a time, the earliest first, and those of the same time by their number. They can be moved and
// removed.
type ranking[T ranked] struct{ entries rankedHeap[T] }

// ranked is something that can be in one ranking, and keeps for it at what place it is.
type ranked interface {
	place() *int
	number() uint64
}

// set puts a thing at a time, where it may have been in the ranking before or not.
func (r *ranking[T]) set(thing T, at time.Time) {
	if i := *thing.place() - 1; i >= 0 {
		r.entries[i].at = at
		heap.Fix(&r.entries, i)
		return
	}
	heap.Push(&r.entries, entry[T]{at, thing})
}

func (r *ranking[T]) remove(thing T) {
	if i := *thing.place() - 1; i >= 0 {
		heap.Remove(&r.entries, i)
	}
}

// first returns the earliest thing and its time.
func (r *ranking[T]) first() (thing T, at time.Time, ok bool) {
	if len(r.entries) == 0 {
		return thing, at, false
	}
	return r.entries[0].thing, r.entries[0].at, true
}

// rankedHeap is the heap beneath a ranking. Places count from 1, so that 0 is nowhere.
type rankedHeap[T ranked] []entry[T]

func (h rankedHeap[T]) Len() int { return len(h) }
func (h rankedHeap[T]) Less(i, j int) bool {
	if at := h[i].at.Compare(h[j].at); at != 0 {
		return at < 0
	}
	return h[i].thing.number() < h[j].thing.number()
}

func (h rankedHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].thing.place(), *h[j].thing.place() = i+1, j+1
}

func (h *rankedHeap[T]) Push(e any) {
	*h = append(*h, e.(entry[T]))
	*e.(entry[T]).thing.place() = len(*h)
}

func (h *rankedHeap[T]) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	(*h)[last] = entry[T]{}
	*h = (*h)[:last]
	*popped.thing.place() = 0
	return popped
}
