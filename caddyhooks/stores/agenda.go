package stores

import (
	"container/heap"
	"time"
)

// agenda holds things by the time they are for, and gives out the earliest first.
type agenda[T any] struct{ entries entries[T] }

type entry[T any] struct {
	at    time.Time
	thing T
}

func (a *agenda[T]) add(at time.Time, thing T) { heap.Push(&a.entries, entry[T]{at, thing}) }

// first returns what the earliest thing is for.
func (a *agenda[T]) first() (at time.Time, ok bool) {
	if len(a.entries) == 0 {
		return time.Time{}, false
	}
	return a.entries[0].at, true
}

// take takes the earliest thing if it is for a time that is not after now.
func (a *agenda[T]) take(now time.Time) (thing T, ok bool) {
	if at, any := a.first(); !any || at.After(now) {
		return thing, false
	}
	return heap.Pop(&a.entries).(entry[T]).thing, true
}

// entries is the heap beneath an agenda.
type entries[T any] []entry[T]

func (h entries[T]) Len() int           { return len(h) }
func (h entries[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entries[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *entries[T]) Push(e any)        { *h = append(*h, e.(entry[T])) }
func (h *entries[T]) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	(*h)[last] = entry[T]{}
	*h = (*h)[:last]
	return popped
}
