package local

import (
	"bytes"
	"hash/maphash"

	"github.com/google/uuid"
)

// Lanes puts queued runs in order: a lane a chat, in which runs wait for the one before them to end, and the lanes whose
// first run may start, longest-ready first, so that a busy chat cannot starve the others. Stores that index their queue in
// memory share it. It takes about 120 bytes a run, in memory that the garbage collector need not look into, and all
// operations but Undo take constant time. It is not safe for concurrent use.
//
// A lane goes by the hash of its chat's id. Two chats whose hashes collide take turns as if they were one.
type Lanes struct {
	seed   maphash.Seed
	lanes  map[uint64]uint32    // by hash of the chat
	places map[uuid.UUID]uint32 // by run
	lane   slab[lane]
	place  slab[place]
	ready  struct{ first, last uint32 } // lanes, in a list
	queued int
}

// In both, 0 is no index.
type lane struct {
	chat        uint64
	first, last uint32 // places
	prev, next  uint32 // in the list of ready lanes
	queued      uint32
	held        bool // its first run has been popped, and is not over
	ready       bool
}

type place struct {
	id         uuid.UUID
	lane       uint32
	prev, next uint32
	queued     bool // popped otherwise
}

// Queued is how many runs wait in all lanes together.
func (l *Lanes) Queued() int { return l.queued }

// QueuedIn is how many runs wait in the lane of chat.
func (l *Lanes) QueuedIn(chat string) int {
	if l.lanes == nil {
		return 0
	}
	if i := l.lanes[l.hash(chat)]; i != 0 {
		return int(l.lane.at(i).queued)
	}
	return 0
}

// Ready reports whether there is a run that can be popped.
func (l *Lanes) Ready() bool { return l.ready.first != 0 }

// Has reports whether a run is here, and whether it waits or has been popped.
func (l *Lanes) Has(id uuid.UUID) (here, queued bool) {
	i := l.places[id]
	if i == 0 {
		return false, false
	}
	return true, l.place.at(i).queued
}

// Push appends a run to its chat's lane and reports whether it can be popped at once.
func (l *Lanes) Push(chat string, id uuid.UUID) (ready bool) {
	if l.lanes == nil {
		l.init()
	}
	li := l.laneOf(l.hash(chat))
	l.insert(li, id, 0)
	return l.offer(li)
}

func (l *Lanes) init() {
	if l.seed == (maphash.Seed{}) {
		l.seed = maphash.MakeSeed()
	}
	l.lanes = make(map[uint64]uint32)
	l.places = make(map[uuid.UUID]uint32)
}

func (l *Lanes) hash(chat string) uint64 { return maphash.String(l.seed, chat) }

func (l *Lanes) laneOf(chat uint64) uint32 {
	li := l.lanes[chat]
	if li == 0 {
		li = l.lane.add(lane{chat: chat})
		l.lanes[chat] = li
	}
	return li
}

// insert makes a place for a run before another one, or at the end if that is 0.
func (l *Lanes) insert(li uint32, id uuid.UUID, before uint32) {
	pi := l.place.add(place{id: id, lane: li})
	l.places[id] = pi
	l.link(pi, before)
}

func (l *Lanes) link(pi, before uint32) {
	p := l.place.at(pi)
	ln := l.lane.at(p.lane)
	p.queued, p.next, p.prev = true, before, ln.last
	if before != 0 {
		p.prev = l.place.at(before).prev
		l.place.at(before).prev = pi
	} else {
		ln.last = pi
	}
	if p.prev != 0 {
		l.place.at(p.prev).next = pi
	} else {
		ln.first = pi
	}
	ln.queued++
	l.queued++
}

func (l *Lanes) unlink(pi uint32) {
	p := l.place.at(pi)
	ln := l.lane.at(p.lane)
	if p.prev == 0 {
		ln.first = p.next
	} else {
		l.place.at(p.prev).next = p.next
	}
	if p.next == 0 {
		ln.last = p.prev
	} else {
		l.place.at(p.next).prev = p.prev
	}
	p.prev, p.next, p.queued = 0, 0, false
	ln.queued--
	l.queued--
}

// Pop takes the first run of the lane that has been ready longest, and holds the lane until Done or Return.
func (l *Lanes) Pop() (id uuid.UUID, ok bool) {
	li := l.ready.first
	if li == 0 {
		return id, false
	}
	pi := l.lane.at(li).first
	l.hold(pi)
	return l.place.at(pi).id, true
}

// Hold is Pop for a certain run. It reports false unless that is the first one of a lane that is not held.
func (l *Lanes) Hold(id uuid.UUID) bool {
	pi := l.places[id]
	if pi == 0 {
		return false
	}
	if ln := l.lane.at(l.place.at(pi).lane); ln.held || ln.first != pi {
		return false
	}
	l.hold(pi)
	return true
}

func (l *Lanes) hold(pi uint32) {
	li := l.place.at(pi).lane
	l.unlink(pi)
	l.lane.at(li).held = true
	l.withdraw(li)
}

// Removed is a run that Done took out, for Undo.
type Removed struct {
	id     uuid.UUID
	chat   uint64
	queued bool
}

// Done takes out a run that is here, popped or still queued.
func (l *Lanes) Done(id uuid.UUID) Removed {
	pi := l.places[id]
	p := l.place.at(pi)
	li := p.lane
	ln := l.lane.at(li)
	removed := Removed{id: id, chat: ln.chat, queued: p.queued}
	if p.queued {
		l.unlink(pi)
		if ln.first == 0 {
			l.withdraw(li)
		}
	} else {
		ln.held = false
		l.offer(li)
	}
	delete(l.places, id)
	l.place.free(pi)
	if ln.first == 0 && !ln.held {
		delete(l.lanes, ln.chat)
		l.lane.free(li)
	}
	if len(l.places) == 0 && l.place.used > 64*slabPiece {
		*l = Lanes{seed: l.seed} // gives back what a long queue took
	}
	return removed
}

// Undo takes back a Done, and must do so before anything else that happened to the chat in between, other than by Push,
// is left in place.
func (l *Lanes) Undo(removed Removed) {
	if l.lanes == nil {
		l.init()
	}
	li := l.laneOf(removed.chat)
	if !removed.queued {
		l.places[removed.id] = l.place.add(place{id: removed.id, lane: li})
		l.lane.at(li).held = true
		l.withdraw(li)
		return
	}
	before := l.lane.at(li).first
	for before != 0 && bytes.Compare(l.place.at(before).id[:], removed.id[:]) < 0 {
		before = l.place.at(before).next
	}
	l.insert(li, removed.id, before)
	l.offer(li)
}

// Return puts a popped run back to the head of its lane.
func (l *Lanes) Return(id uuid.UUID) {
	pi := l.places[id]
	li := l.place.at(pi).lane
	ln := l.lane.at(li)
	l.link(pi, ln.first)
	ln.held = false
	l.offer(li)
}

// offer appends a lane to the ready ones if its first run may start.
func (l *Lanes) offer(li uint32) bool {
	ln := l.lane.at(li)
	if ln.held || ln.first == 0 || ln.ready {
		return false
	}
	ln.ready, ln.prev = true, l.ready.last
	if ln.prev == 0 {
		l.ready.first = li
	} else {
		l.lane.at(ln.prev).next = li
	}
	l.ready.last = li
	return true
}

func (l *Lanes) withdraw(li uint32) {
	ln := l.lane.at(li)
	if !ln.ready {
		return
	}
	if ln.prev == 0 {
		l.ready.first = ln.next
	} else {
		l.lane.at(ln.prev).next = ln.next
	}
	if ln.next == 0 {
		l.ready.last = ln.prev
	} else {
		l.lane.at(ln.next).prev = ln.prev
	}
	ln.ready, ln.prev, ln.next = false, 0, 0
}

// slab holds values in large pieces that never move, and uses freed places again. Index 0 is never given out.
type slab[T any] struct {
	pieces []*[slabPiece]T
	used   uint32
	unused []uint32
}

const slabPiece = 1024

func (s *slab[T]) at(i uint32) *T { return &s.pieces[i/slabPiece][i%slabPiece] }

func (s *slab[T]) add(value T) uint32 {
	if n := len(s.unused); n > 0 {
		i := s.unused[n-1]
		s.unused = s.unused[:n-1]
		*s.at(i) = value
		return i
	}
	s.used++
	if int(s.used/slabPiece) >= len(s.pieces) {
		s.pieces = append(s.pieces, new([slabPiece]T))
	}
	*s.at(s.used) = value
	return s.used
}

func (s *slab[T]) free(i uint32) { s.unused = append(s.unused, i) }
