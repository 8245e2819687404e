package local

import (
	"bytes"
	"hash/maphash"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Lanes puts queued runs in order: a lane a chat, in which runs wait for the one before them to end, and the lanes whose
// first run may start, longest-ready first, so that a busy chat cannot starve the others. Stores that index their queue in
// memory share it. It takes about 200 bytes a run, in memory that the garbage collector need not look into. All operations
// but Undo take the logarithm of the number of queued runs at most. It is not safe for concurrent use.
//
// A lane goes by the hash of its chat's id. Two chats whose hashes collide take turns as if they were one.
type Lanes struct {
	seed   maphash.Seed
	lanes  map[uint64]uint32     // by hash of the chat
	places map[uuid.UUID]uint32  // by run
	hooks  map[string]*sortedIDs // the runs that are here, queued or popped, by their hook
	lane   slab[lane]
	place  slab[place]
	queued int

	kinds       []kind // by number
	kindNumbers map[kindOf]uint32
	unusedKinds []uint32
	active      []uint32 // kinds that have ready lanes, in any order
	offers      uint64   // how often a lane became ready
	sooner      bool     // a window was opened that is over before all others

	heaps [queuedOrders][]timedPlace // of queued runs
}

// readyList is a list of lanes.
type readyList struct{ first, last uint32 }

// In both, 0 is no index.
type lane struct {
	chat        uint64
	first, last uint32 // places
	prev, next  uint32 // in the list of ready lanes
	queued      uint32
	held        uint32 // how many runs were popped, and are not over
	foldEnd     uint32 // the last of the first runs that can be folded together, as far as they are counted …
	together    uint32 // … how many these are …
	foldSize    uint32 // … and how large
	kind        uint32 // in whose list it is ready
	since       uint64 // the count of offers when it became ready
	ready       bool
}

type place struct {
	id         uuid.UUID
	accepted   int64 // of an Entry
	deadline   int64 // likewise
	lane       uint32
	prev, next uint32
	in         [queuedOrders]uint32 // where it is in the heaps, counted from 1
	kind       uint32
	size       uint32 // of an Entry
	alike      uint32 // of its Fold
	starts     uint16 // how often it was started before it was put back
	queued     bool   // popped otherwise
	waiting    bool   // not to be popped yet
	over       bool   // its window is
}

// Entry is a run for a lane.
type Entry struct {
	ID     uuid.UUID
	Chat   string
	Runner string // that is to carry it out
	Hook   string
	Fold   engine.Fold
	Size   int // of the message; matters for runs with a Fold alone

	// Accepted is when the run was accepted, in nanoseconds since 1970 by Clock.Steady.
	Accepted int64
	// Deadline is when the run is overdue if it is still queued, likewise; 0 is never.
	Deadline int64
}

// Queued is how many runs wait in all lanes together.
func (l *Lanes) Queued() int { return l.queued }

// QueuedIn is how many runs wait in the lane of chat.
func (l *Lanes) QueuedIn(chat string) int {
	if i := l.laneFor(chat); i != 0 {
		return int(l.lane.at(i).queued)
	}
	return 0
}

// in are the runs that wait in the lane of chat.
func (l *Lanes) in(chat string) (ids []uuid.UUID) {
	if li := l.laneFor(chat); li != 0 {
		for pi := l.lane.at(li).first; pi != 0; pi = l.place.at(pi).next {
			ids = append(ids, l.place.at(pi).id)
		}
	}
	return ids
}

// lastIn is the last run that waits in the lane of chat, and how many wait there.
func (l *Lanes) lastIn(chat string) (id uuid.UUID, queued int) {
	li := l.laneFor(chat)
	if li == 0 {
		return id, 0
	}
	ln := l.lane.at(li)
	if ln.last != 0 {
		id = l.place.at(ln.last).id
	}
	return id, int(ln.queued)
}

// isHeld reports whether a run of chat has been popped, and is not over.
func (l *Lanes) isHeld(chat string) bool {
	li := l.laneFor(chat)
	return li != 0 && l.lane.at(li).held > 0
}

// isIn reports whether a run is of chat.
func (l *Lanes) isIn(id uuid.UUID, chat string) bool {
	pi := l.places[id]
	return pi != 0 && l.place.at(pi).lane == l.laneFor(chat)
}

// laneFor is the lane of chat, 0 if there is none.
func (l *Lanes) laneFor(chat string) uint32 {
	if l.lanes == nil {
		return 0
	}
	return l.lanes[l.hash(chat)]
}

// Ready reports whether there is a run that can be popped.
func (l *Lanes) Ready() bool { return len(l.active) > 0 }

// next is the kind whose list has the lane that has been ready longest, of those that there is room for.
func (l *Lanes) next(room *room) (next *kind) {
	var longest uint64
	for _, n := range l.active {
		k := &l.kinds[n]
		if since := l.lane.at(k.ready.first).since; (next == nil || since < longest) && room.has(&k.kindOf) {
			next, longest = k, since
		}
	}
	return next
}

// Has reports whether a run is here, and whether it waits or has been popped.
func (l *Lanes) Has(id uuid.UUID) (here, queued bool) {
	i := l.places[id]
	if i == 0 {
		return false, false
	}
	return true, l.place.at(i).queued
}

// Push appends a run to its chat's lane and reports whether it can be popped at once.
func (l *Lanes) Push(e Entry) (ready bool) {
	if l.lanes == nil {
		l.init()
	}
	li := l.laneOf(l.hash(e.Chat))
	l.insert(place{id: e.ID, lane: li, kind: l.kindNumber(newKindOf(e.Runner, e.Hook, e.Fold)), size: uint32(min(e.Size, 1<<30)), alike: e.Fold.Alike, accepted: e.Accepted, deadline: e.Deadline}, 0)
	l.enlist(e.Hook, e.ID)
	l.expect(e.ID)
	return l.offer(li)
}

// enlist notes a run of a hook.
func (l *Lanes) enlist(hook string, id uuid.UUID) {
	if l.hooks[hook] == nil {
		l.hooks[hook] = new(sortedIDs)
	}
	l.hooks[hook].add(id)
}

func (l *Lanes) delist(hook string, id uuid.UUID) {
	if ids := l.hooks[hook]; ids != nil {
		if ids.remove(id); len(ids.chunks) == 0 {
			delete(l.hooks, hook)
		}
	}
}

// ofHooks are the first runs of some hooks in a range, in its order, up to most.
func (l *Lanes) ofHooks(hooks []string, within *IDRange, most int) (ids []uuid.UUID) {
	for i, hook := range hooks {
		if l.hooks[hook] == nil || slices.Contains(hooks[:i], hook) {
			continue
		}
		others := len(ids)
		l.hooks[hook].in(within, func(id uuid.UUID) bool {
			ids = append(ids, id)
			return len(ids)-others < most
		})
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int {
		if within.Descending {
			a, b = b, a
		}
		return compareIDs(a, b)
	})
	return ids[:min(len(ids), most)]
}

func (l *Lanes) init() {
	if l.seed == (maphash.Seed{}) {
		l.seed = maphash.MakeSeed()
	}
	l.lanes = make(map[uint64]uint32)
	l.places = make(map[uuid.UUID]uint32)
	l.hooks = make(map[string]*sortedIDs)
	if l.kindNumbers == nil {
		l.kindNumbers = make(map[kindOf]uint32)
	}
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

// insert puts a run before another one, or at the end if that is 0.
func (l *Lanes) insert(p place, before uint32) {
	pi := l.place.add(p)
	l.places[p.id] = pi
	l.link(pi, before)
}

func (l *Lanes) link(pi, before uint32) {
	p := l.place.at(pi)
	ln := l.lane.at(p.lane)
	p.queued, p.next, p.prev = true, before, ln.last
	if before != 0 {
		p.prev = l.place.at(before).prev
		l.place.at(before).prev = pi
		ln.forgetFold()
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
	l.enter(byAge, pi, p.accepted)
}

func (l *Lanes) unlink(pi uint32) {
	p := l.place.at(pi)
	ln := l.lane.at(p.lane)
	l.leaveFold(ln, pi, p)
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
	l.leave(byAge, pi)
	l.leave(byWindow, pi)
}

// Popped are runs that are carried out in one turn.
type Popped struct {
	ID           uuid.UUID
	Folded       []uuid.UUID // the others, in their order
	Runner, Hook string
}

// Pop takes the first run of the lane that has been ready longest, with those that are folded with it, and holds the lane until
// Done or Return was called for all of them. Runs that there is no room for stay where they are.
func (l *Lanes) Pop(room *room) (popped Popped, ok bool) {
	k := l.next(room)
	if k == nil {
		return popped, false
	}
	pi := l.lane.at(k.ready.first).first
	l.hold(pi)
	return Popped{l.place.at(pi).id, l.takeFold(pi), k.runner, k.hook}, true
}

// Hold is Pop for certain runs. It reports false unless they are the first ones of a lane that is not held, in this order.
func (l *Lanes) Hold(id uuid.UUID, folded ...uuid.UUID) bool {
	first := l.places[id]
	if first == 0 {
		return false
	}
	if ln := l.lane.at(l.place.at(first).lane); ln.held > 0 || ln.first != first {
		return false
	}
	pi := first
	for _, id := range folded {
		if pi = l.place.at(pi).next; pi == 0 || l.place.at(pi).id != id {
			return false
		}
	}
	l.hold(first)
	for _, id := range folded {
		l.hold(l.places[id])
	}
	return true
}

func (l *Lanes) hold(pi uint32) {
	li := l.place.at(pi).lane
	l.unlink(pi)
	l.place.at(pi).waiting = false
	l.forgetDeadline(pi)
	l.lane.at(li).held++
	l.withdraw(li)
}

// Removed is a run that Done took out, for Undo.
type Removed struct {
	place
	kind     kindOf
	chat     uint64
	expected bool // its deadline counted
}

// Done takes out a run that is here, popped or still queued.
func (l *Lanes) Done(id uuid.UUID) Removed {
	pi := l.places[id]
	p := l.place.at(pi)
	li := p.lane
	ln := l.lane.at(li)
	removed := Removed{place: *p, kind: l.kinds[p.kind].kindOf, chat: ln.chat, expected: p.in[byDeadline] != 0}
	l.forgetDeadline(pi)
	if p.queued {
		l.unlink(pi)
	} else {
		ln.held--
	}
	l.offer(li)
	delete(l.places, id)
	l.delist(removed.kind.hook, id)
	l.releaseKind(p.kind)
	l.place.free(pi)
	if ln.first == 0 && ln.held == 0 {
		delete(l.lanes, ln.chat)
		l.lane.free(li)
	}
	if l.place.used > 64*slabPiece && len(l.places) < int(l.place.used/8) {
		l.compact()
	}
	return removed
}

// compact gives back the memory of a queue that was much longer once. Otherwise a busy server, whose queue is never quite
// empty, would keep it for ever: neither maps nor slabs become smaller.
func (l *Lanes) compact() {
	before := *l
	*l = Lanes{seed: l.seed, queued: l.queued, offers: l.offers, sooner: l.sooner}
	if len(before.places) == 0 {
		return
	}
	l.hooks = before.hooks
	l.kinds, l.kindNumbers, l.unusedKinds, l.active = before.kinds, before.kindNumbers, before.unusedKinds, before.active
	l.lanes = make(map[uint64]uint32, len(before.lanes))
	l.places = make(map[uuid.UUID]uint32, len(before.places))
	lanes, places := map[uint32]uint32{0: 0}, map[uint32]uint32{0: 0} // the new index by the old one
	for chat, old := range before.lanes {
		lanes[old] = l.lane.add(*before.lane.at(old))
		l.lanes[chat] = lanes[old]
	}
	for id, old := range before.places {
		places[old] = l.place.add(*before.place.at(old))
		l.places[id] = places[old]
	}
	for _, li := range l.lanes {
		ln := l.lane.at(li)
		ln.first, ln.last, ln.prev, ln.next = places[ln.first], places[ln.last], lanes[ln.prev], lanes[ln.next]
		ln.foldEnd = places[ln.foldEnd]
	}
	for _, pi := range l.places {
		p := l.place.at(pi)
		p.lane, p.prev, p.next = lanes[p.lane], places[p.prev], places[p.next]
	}
	for n := range l.kinds {
		k := &l.kinds[n]
		k.ready = readyList{lanes[k.ready.first], lanes[k.ready.last]}
	}
	for by, heap := range before.heaps {
		for _, t := range heap {
			l.heaps[by] = append(l.heaps[by], timedPlace{t.at, places[t.place]})
		}
	}
}

// Undo takes back a Done, and must do so before anything else that happened to the chat in between, other than by Push,
// is left in place.
func (l *Lanes) Undo(removed Removed) {
	if l.lanes == nil {
		l.init()
	}
	li := l.laneOf(removed.chat)
	p := place{id: removed.id, lane: li, kind: l.kindNumber(removed.kind), accepted: removed.accepted, deadline: removed.deadline,
		size: removed.size, starts: removed.starts, waiting: removed.waiting, over: removed.over}
	l.enlist(removed.kind.hook, removed.id)
	if !removed.queued {
		l.places[removed.id] = l.place.add(p)
		l.lane.at(li).held++
		l.withdraw(li)
		return
	}
	before := l.lane.at(li).first
	for before != 0 && bytes.Compare(l.place.at(before).id[:], removed.id[:]) < 0 {
		before = l.place.at(before).next
	}
	l.insert(p, before)
	if removed.expected {
		l.expect(removed.id)
	}
	l.offer(li)
}

// Return puts a popped run back to the head of its lane. A run that waits is not popped before Wake. Of runs that were folded the
// last is put back first.
func (l *Lanes) Return(id uuid.UUID, waits bool) {
	pi := l.places[id]
	p := l.place.at(pi)
	ln := l.lane.at(p.lane)
	l.link(pi, ln.first)
	p.waiting = waits
	ln.held--
	l.offer(p.lane)
}

// Wait keeps a queued run from being popped before Wake.
func (l *Lanes) Wait(id uuid.UUID) {
	p := l.place.at(l.places[id])
	p.waiting = true
	l.offer(p.lane)
}

// Wake ends the wait of a run, if it is here.
func (l *Lanes) Wake(id uuid.UUID) {
	if pi := l.places[id]; pi != 0 {
		p := l.place.at(pi)
		p.waiting = false
		l.offer(p.lane)
	}
}

// Waits reports whether a run is not to be popped yet, though nothing is before it.
func (l *Lanes) Waits(id uuid.UUID) bool {
	pi := l.places[id]
	return pi != 0 && l.place.at(pi).waiting
}

// accepted is when a run was accepted that is here.
func (l *Lanes) accepted(id uuid.UUID) time.Time {
	return time.Unix(0, l.place.at(l.places[id]).accepted)
}

// RunnerOf is the runner of a run that is here.
func (l *Lanes) RunnerOf(id uuid.UUID) string { return l.kinds[l.place.at(l.places[id]).kind].runner }

// offer puts a lane in the right list of ready ones, or in none, and reports whether it became ready.
func (l *Lanes) offer(li uint32) bool {
	ln := l.lane.at(li)
	if ln.held > 0 || ln.first == 0 || l.place.at(ln.first).waiting || l.gathers(ln) {
		l.withdraw(li)
		return false
	}
	n := l.place.at(ln.first).kind
	if ln.ready {
		if ln.kind == n {
			return false
		}
		l.withdraw(li)
	}
	list := &l.kinds[n].ready
	l.offers++
	ln.ready, ln.kind, ln.since, ln.prev = true, n, l.offers, list.last
	if ln.prev == 0 {
		list.first = li
	} else {
		l.lane.at(ln.prev).next = li
	}
	list.last = li
	l.activate(n)
	return true
}

func (l *Lanes) withdraw(li uint32) {
	ln := l.lane.at(li)
	if !ln.ready {
		return
	}
	list := &l.kinds[ln.kind].ready
	if ln.prev == 0 {
		list.first = ln.next
	} else {
		l.lane.at(ln.prev).next = ln.next
	}
	if ln.next == 0 {
		list.last = ln.prev
	} else {
		l.lane.at(ln.next).prev = ln.prev
	}
	ln.ready, ln.prev, ln.next = false, 0, 0
	l.activate(ln.kind)
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
