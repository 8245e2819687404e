package engine

import "container/list"

// Lanes puts queued runs in order: a lane a chat, in which runs wait for the one before them to end, and the lanes whose
// first run may start, longest-ready first, so that a busy chat cannot starve the others. Stores that keep their queue
// in memory share it. All operations take constant time. It is not safe for concurrent use.
type Lanes[T any] struct {
	lanes  map[string]*lane[T]
	ready  list.List // of *lane[T]
	queued int
}

type lane[T any] struct {
	chat    string
	first   *Place[T]
	last    *Place[T]
	queued  int
	claimed bool
	ready   *list.Element
}

// Place is where an item stands.
type Place[T any] struct {
	Item       T
	lane       *lane[T]
	prev, next *Place[T]
	queued     bool
}

// Queued reports whether the item waits; otherwise it was popped or is done.
func (p *Place[T]) Queued() bool { return p.queued }

// Queued is how many items wait in all lanes together.
func (l *Lanes[T]) Queued() int { return l.queued }

// QueuedIn is how many items wait in the lane of chat.
func (l *Lanes[T]) QueuedIn(chat string) int {
	if ln := l.lanes[chat]; ln != nil {
		return ln.queued
	}
	return 0
}

// Push appends item to its chat's lane and reports whether it can be popped at once.
func (l *Lanes[T]) Push(chat string, item T) (place *Place[T], ready bool) {
	ln := l.lanes[chat]
	if ln == nil {
		if l.lanes == nil {
			l.lanes = make(map[string]*lane[T])
		}
		ln = &lane[T]{chat: chat}
		l.lanes[chat] = ln
	}
	p := &Place[T]{Item: item, lane: ln, queued: true, prev: ln.last}
	if ln.last == nil {
		ln.first = p
	} else {
		ln.last.next = p
	}
	ln.last = p
	ln.queued++
	l.queued++
	return p, l.offer(ln)
}

// Pop takes the first item of the lane that has been ready longest, and holds the lane until Done or Return.
func (l *Lanes[T]) Pop() (*Place[T], bool) {
	front := l.ready.Front()
	if front == nil {
		return nil, false
	}
	ln := front.Value.(*lane[T])
	p := ln.first
	l.unlink(p)
	ln.claimed = true
	l.withdraw(ln)
	return p, true
}

// Done takes an item out for good, popped or still queued.
func (l *Lanes[T]) Done(p *Place[T]) {
	ln := p.lane
	if p.queued {
		l.unlink(p)
		if ln.first == nil {
			l.withdraw(ln)
		}
	} else {
		ln.claimed = false
		l.offer(ln)
	}
	if ln.first == nil && !ln.claimed {
		delete(l.lanes, ln.chat)
	}
}

// Return puts a popped item back to the head of its lane.
func (l *Lanes[T]) Return(p *Place[T]) {
	ln := p.lane
	p.queued, p.next = true, ln.first
	if ln.first == nil {
		ln.last = p
	} else {
		ln.first.prev = p
	}
	ln.first = p
	ln.claimed = false
	ln.queued++
	l.queued++
	l.offer(ln)
}

func (l *Lanes[T]) offer(ln *lane[T]) bool {
	if ln.claimed || ln.first == nil || ln.ready != nil {
		return false
	}
	ln.ready = l.ready.PushBack(ln)
	return true
}

func (l *Lanes[T]) withdraw(ln *lane[T]) {
	if ln.ready != nil {
		l.ready.Remove(ln.ready)
		ln.ready = nil
	}
}

func (l *Lanes[T]) unlink(p *Place[T]) {
	if p.prev == nil {
		p.lane.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		p.lane.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.queued = nil, nil, false
	p.lane.queued--
	l.queued--
}
