package local

import (
	"bytes"
	"hash/maphash"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// ChatQueues puts queued runs in order: a chat queue a chat, in which runs wait for the one before them to end, and the chat queues whose
// first run may start, longest-ready first, so that a busy chat cannot starve the others. Stores that index their queue in
// memory share it. It takes about 200 bytes a run, in memory that the garbage collector need not look into. All operations
// but Undo take the logarithm of the number of queued runs at most. It is not safe for concurrent use.
//
// A chat queue goes by the hash of its chat's id. Two chats whose hashes collide take turns as if they were one.
type ChatQueues struct {
	seed       maphash.Seed
	chatQueues map[uint64]uint32     // by hash of the chat
	places     map[uuid.UUID]uint32  // by run
	hooks      map[string]*sortedIDs // the runs that are here, queued or popped, by their hook
	chatQueue  slab[chatQueue]
	place      slab[place]
	queued     int
	aside      int // runs that are put aside, which are not queued

	kinds       []kind // by number
	kindNumbers map[kindOf]uint32
	unusedKinds []uint32
	active      []uint32 // kinds that have ready chat queues, in any order
	offers      uint64   // how often a chat queue became ready
	sooner      bool     // a window was opened that is over before all others

	heaps [queuedOrders][]timedPlace // of queued runs
}

// readyList is a list of chat queues.
type readyList struct{ first, last uint32 }

// In both, 0 is no index.
type chatQueue struct {
	chat        uint64
	first, last uint32 // places
	prev, next  uint32 // in the list of ready chat queues
	queued      uint32 // without one that is put aside
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
	chatQueue  uint32
	prev, next uint32
	in         [queuedOrders]uint32 // where it is in the heaps, counted from 1
	kind       uint32
	size       uint32 // of an Entry
	alike      uint32 // of its Fold
	starts     uint16 // how often it was started before it was put back
	queued     bool   // popped otherwise
	waiting    bool   // not to be popped yet
	aside      bool   // likewise, and not counted as queued
	asked      bool   // the run has questions: its deadline does not count
	over       bool   // its window is
}

// Entry is a run for a chat queue.
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

// Queued is how many runs wait in all chat queues together.
func (l *ChatQueues) Queued() int { return l.queued }

// QueuedIn is how many runs wait in the chat queue of chat.
func (l *ChatQueues) QueuedIn(chat string) int {
	if i := l.queueFor(chat); i != 0 {
		return int(l.chatQueue.at(i).queued)
	}
	return 0
}

// in are the runs that wait in the chat queue of chat.
func (l *ChatQueues) in(chat string) (ids []uuid.UUID) {
	if li := l.queueFor(chat); li != 0 {
		for pi := l.chatQueue.at(li).first; pi != 0; pi = l.place.at(pi).next {
			ids = append(ids, l.place.at(pi).id)
		}
	}
	return ids
}

// lastIn is the last run that waits in the chat queue of chat, and how many wait there, also if one is put aside.
func (l *ChatQueues) lastIn(chat string) (id uuid.UUID, waiting int) {
	li := l.queueFor(chat)
	if li == 0 {
		return id, 0
	}
	ln := l.chatQueue.at(li)
	waiting = int(ln.queued)
	if ln.last != 0 {
		id = l.place.at(ln.last).id
		if l.place.at(ln.first).aside {
			waiting++
		}
	}
	return id, waiting
}

// isHeld reports whether a run of chat has been popped, and is not over.
func (l *ChatQueues) isHeld(chat string) bool {
	li := l.queueFor(chat)
	return li != 0 && l.chatQueue.at(li).held > 0
}

// isIn reports whether a run is of chat.
func (l *ChatQueues) isIn(id uuid.UUID, chat string) bool {
	pi := l.places[id]
	return pi != 0 && l.place.at(pi).chatQueue == l.queueFor(chat)
}

// queueFor is the chat queue of chat, 0 if there is none.
func (l *ChatQueues) queueFor(chat string) uint32 {
	if l.chatQueues == nil {
		return 0
	}
	return l.chatQueues[l.hash(chat)]
}

// Ready reports whether there is a run that can be popped.
func (l *ChatQueues) Ready() bool { return len(l.active) > 0 }

// next is the chat queue that has been ready longest, of those that there is room for and that are not left out, and its kind; 0 if there
// is none. It passes over chat queues that are left out, and over no others.
func (l *ChatQueues) next(batchLimits *batchLimits) (next uint32, of *kind) {
	var longest uint64
	for _, n := range l.active {
		k := &l.kinds[n]
		li := k.ready.first
		if since := l.chatQueue.at(li).since; next != 0 && since >= longest || !batchLimits.has(&k.kindOf) {
			continue
		}
		for li != 0 && batchLimits.leavesOut(li) {
			li = l.chatQueue.at(li).next
		}
		if li == 0 {
			continue
		}
		if since := l.chatQueue.at(li).since; next == 0 || since < longest {
			next, of, longest = li, k, since
		}
	}
	return next, of
}

// Has reports whether a run is here, and whether it waits or has been popped.
func (l *ChatQueues) Has(id uuid.UUID) (here, queued bool) {
	i := l.places[id]
	if i == 0 {
		return false, false
	}
	return true, l.place.at(i).queued
}

// Push appends a run to its chat's chat queue and reports whether it can be popped at once.
func (l *ChatQueues) Push(e Entry) (ready bool) {
	if l.chatQueues == nil {
		l.init()
	}
	li := l.queueOf(l.hash(e.Chat))
	l.insert(place{id: e.ID, chatQueue: li, kind: l.kindNumber(newKindOf(e.Runner, e.Hook, e.Fold)), size: uint32(min(e.Size, 1<<30)),
		alike: e.Fold.Alike, accepted: e.Accepted, deadline: e.Deadline}, 0)
	l.enlist(e.Hook, e.ID)
	l.expect(e.ID)
	return l.offer(li)
}

// enlist notes a run of a hook.
func (l *ChatQueues) enlist(hook string, id uuid.UUID) {
	if l.hooks[hook] == nil {
		l.hooks[hook] = new(sortedIDs)
	}
	l.hooks[hook].add(id)
}

func (l *ChatQueues) delist(hook string, id uuid.UUID) {
	if ids := l.hooks[hook]; ids != nil {
		if ids.remove(id); len(ids.chunks) == 0 {
			delete(l.hooks, hook)
		}
	}
}

// ofHooks are the first runs of some hooks in a range, in its order, up to most.
func (l *ChatQueues) ofHooks(hooks []string, within *IDRange, most int) (ids []uuid.UUID) {
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

func (l *ChatQueues) init() {
	if l.seed == (maphash.Seed{}) {
		l.seed = maphash.MakeSeed()
	}
	l.chatQueues = make(map[uint64]uint32)
	l.places = make(map[uuid.UUID]uint32)
	l.hooks = make(map[string]*sortedIDs)
	if l.kindNumbers == nil {
		l.kindNumbers = make(map[kindOf]uint32)
	}
}

func (l *ChatQueues) hash(chat string) uint64 { return maphash.String(l.seed, chat) }

func (l *ChatQueues) queueOf(chat uint64) uint32 {
	li := l.chatQueues[chat]
	if li == 0 {
		li = l.chatQueue.add(chatQueue{chat: chat})
		l.chatQueues[chat] = li
	}
	return li
}

// insert puts a run before another one, or at the end if that is 0.
func (l *ChatQueues) insert(p place, before uint32) {
	pi := l.place.add(p)
	l.places[p.id] = pi
	l.link(pi, before)
}

func (l *ChatQueues) link(pi, before uint32) {
	p := l.place.at(pi)
	ln := l.chatQueue.at(p.chatQueue)
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

func (l *ChatQueues) unlink(pi uint32) {
	p := l.place.at(pi)
	ln := l.chatQueue.at(p.chatQueue)
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
	if p.aside {
		p.aside = false
		l.aside--
	} else {
		ln.queued--
		l.queued--
		l.leave(byAge, pi)
	}
	l.leave(byWindow, pi)
}

// Popped are runs that are carried out in one turn.
type Popped struct {
	ID           uuid.UUID
	Folded       []uuid.UUID // the others, in their order
	Runner, Hook string
}

// Pop takes the first run of the chat queue that has been ready longest, with those that are folded with it, and holds the chat queue until
// Done or Return was called for all of them. Runs that there is no room for stay where they are.
func (l *ChatQueues) Pop(batchLimits *batchLimits) (popped Popped, ok bool) {
	li, k := l.next(batchLimits)
	if li == 0 {
		return popped, false
	}
	pi := l.chatQueue.at(li).first
	l.hold(pi)
	return Popped{l.place.at(pi).id, l.takeFold(pi), k.runner, k.hook}, true
}

// Hold is Pop for certain runs. It reports false unless they are the first ones of a chat queue that is not held, in this order.
func (l *ChatQueues) Hold(id uuid.UUID, folded ...uuid.UUID) bool {
	first := l.places[id]
	if first == 0 {
		return false
	}
	if ln := l.chatQueue.at(l.place.at(first).chatQueue); ln.held > 0 || ln.first != first {
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

func (l *ChatQueues) hold(pi uint32) {
	li := l.place.at(pi).chatQueue
	l.unlink(pi)
	l.place.at(pi).waiting = false
	l.forgetDeadline(pi)
	l.chatQueue.at(li).held++
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
func (l *ChatQueues) Done(id uuid.UUID) Removed {
	pi := l.places[id]
	p := l.place.at(pi)
	li := p.chatQueue
	ln := l.chatQueue.at(li)
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
		delete(l.chatQueues, ln.chat)
		l.chatQueue.free(li)
	}
	if l.place.used > 64*slabPiece && len(l.places) < int(l.place.used/8) {
		l.compact()
	}
	return removed
}

// compact gives back the memory of a queue that was much longer once. Otherwise a busy server, whose queue is never quite
// empty, would keep it for ever: neither maps nor slabs become smaller.
func (l *ChatQueues) compact() {
	before := *l
	*l = ChatQueues{seed: l.seed, queued: l.queued, aside: l.aside, offers: l.offers, sooner: l.sooner}
	if len(before.places) == 0 {
		return
	}
	l.hooks = before.hooks
	l.kinds, l.kindNumbers, l.unusedKinds, l.active = before.kinds, before.kindNumbers, before.unusedKinds, before.active
	l.chatQueues = make(map[uint64]uint32, len(before.chatQueues))
	l.places = make(map[uuid.UUID]uint32, len(before.places))
	chatQueues, places := map[uint32]uint32{0: 0}, map[uint32]uint32{0: 0} // the new index by the old one
	for chat, old := range before.chatQueues {
		chatQueues[old] = l.chatQueue.add(*before.chatQueue.at(old))
		l.chatQueues[chat] = chatQueues[old]
	}
	for id, old := range before.places {
		places[old] = l.place.add(*before.place.at(old))
		l.places[id] = places[old]
	}
	for _, li := range l.chatQueues {
		ln := l.chatQueue.at(li)
		ln.first, ln.last, ln.prev, ln.next = places[ln.first], places[ln.last], chatQueues[ln.prev], chatQueues[ln.next]
		ln.foldEnd = places[ln.foldEnd]
	}
	for _, pi := range l.places {
		p := l.place.at(pi)
		p.chatQueue, p.prev, p.next = chatQueues[p.chatQueue], places[p.prev], places[p.next]
	}
	for n := range l.kinds {
		k := &l.kinds[n]
		k.ready = readyList{chatQueues[k.ready.first], chatQueues[k.ready.last]}
	}
	for by, heap := range before.heaps {
		for _, t := range heap {
			l.heaps[by] = append(l.heaps[by], timedPlace{t.at, places[t.place]})
		}
	}
}

// Undo takes back a Done, and must do so before anything else that happened to the chat in between, other than by Push,
// is left in place.
func (l *ChatQueues) Undo(removed Removed) {
	if l.chatQueues == nil {
		l.init()
	}
	li := l.queueOf(removed.chat)
	p := place{id: removed.id, chatQueue: li, kind: l.kindNumber(removed.kind), accepted: removed.accepted, deadline: removed.deadline,
		size: removed.size, starts: removed.starts, waiting: removed.waiting, asked: removed.asked, over: removed.over}
	l.enlist(removed.kind.hook, removed.id)
	if !removed.queued {
		l.places[removed.id] = l.place.add(p)
		l.chatQueue.at(li).held++
		l.withdraw(li)
		return
	}
	before := l.chatQueue.at(li).first
	for before != 0 && bytes.Compare(l.place.at(before).id[:], removed.id[:]) < 0 {
		before = l.place.at(before).next
	}
	l.insert(p, before)
	if removed.expected {
		l.expect(removed.id)
	}
	if removed.aside {
		l.PutAside(removed.id)
	}
	l.offer(li)
}

// Return puts a popped run back to the head of its chat queue. A run that waits is not popped before Wake. Of runs that were folded the
// last is put back first.
func (l *ChatQueues) Return(id uuid.UUID, waits bool) {
	pi := l.places[id]
	p := l.place.at(pi)
	ln := l.chatQueue.at(p.chatQueue)
	l.link(pi, ln.first)
	p.waiting = waits
	ln.held--
	l.offer(p.chatQueue)
}

// Wait keeps a queued run from being popped before Wake.
func (l *ChatQueues) Wait(id uuid.UUID) {
	p := l.place.at(l.places[id])
	p.waiting = true
	l.offer(p.chatQueue)
}

// PutAside is Wait for a run that does not count as queued until Wake. It is the first of its chat queue.
func (l *ChatQueues) PutAside(id uuid.UUID) {
	pi := l.places[id]
	p := l.place.at(pi)
	if !p.aside {
		p.aside = true
		l.aside++
		l.chatQueue.at(p.chatQueue).queued--
		l.queued--
		l.leave(byAge, pi)
	}
	l.Wait(id)
}

// isAside reports whether a run is put aside.
func (l *ChatQueues) isAside(id uuid.UUID) bool {
	pi := l.places[id]
	return pi != 0 && l.place.at(pi).aside
}

// Wake ends the wait of a run, if it is here.
func (l *ChatQueues) Wake(id uuid.UUID) {
	if pi := l.places[id]; pi != 0 {
		p := l.place.at(pi)
		p.waiting = false
		if p.aside {
			p.aside = false
			l.aside--
			l.chatQueue.at(p.chatQueue).queued++
			l.queued++
			l.enter(byAge, pi, p.accepted)
		}
		l.offer(p.chatQueue)
	}
}

// Waits reports whether a run is not to be popped yet, though nothing is before it.
func (l *ChatQueues) Waits(id uuid.UUID) bool {
	pi := l.places[id]
	return pi != 0 && l.place.at(pi).waiting
}

// accepted is when a run was accepted that is here.
func (l *ChatQueues) accepted(id uuid.UUID) time.Time {
	return time.Unix(0, l.place.at(l.places[id]).accepted)
}

// RunnerOf is the runner of a run that is here.
func (l *ChatQueues) RunnerOf(id uuid.UUID) string {
	return l.kinds[l.place.at(l.places[id]).kind].runner
}

// hookOf is the hook of a run that is here.
func (l *ChatQueues) hookOf(id uuid.UUID) string {
	return l.kinds[l.place.at(l.places[id]).kind].hook
}

// offer puts a chat queue in the right list of ready ones, or in none, and reports whether it became ready.
func (l *ChatQueues) offer(li uint32) bool {
	ln := l.chatQueue.at(li)
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
		l.chatQueue.at(ln.prev).next = li
	}
	list.last = li
	l.activate(n)
	return true
}

func (l *ChatQueues) withdraw(li uint32) {
	ln := l.chatQueue.at(li)
	if !ln.ready {
		return
	}
	list := &l.kinds[ln.kind].ready
	if ln.prev == 0 {
		list.first = ln.next
	} else {
		l.chatQueue.at(ln.prev).next = ln.next
	}
	if ln.next == 0 {
		list.last = ln.prev
	} else {
		l.chatQueue.at(ln.next).prev = ln.prev
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
