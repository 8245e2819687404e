package local

import (
	"bytes"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// The first run of a chat queue may have to wait for others to be folded with. A chat queue knows how many runs from its beginning on can
// be folded together, and where they end, up to as many as a turn may have: whenever the chat queue is offered it goes on from there.
// So each run is counted once, and not again unless it is put back.

// gathers reports whether the first run of a chat queue waits for others. If so, its window is among those that are looked after.
func (l *ChatQueues) gathers(ln *chatQueue) bool {
	first := l.place.at(ln.first)
	k := &l.kinds[first.kind]
	if !k.folds() || first.over || k.fold.Window <= 0 {
		return false
	}
	if l.isFull(ln, first, k) {
		l.leave(byWindow, ln.first)
		return false
	}
	if first.in[byWindow] == 0 {
		l.enter(byWindow, ln.first, k.opensUntil(first.accepted))
		l.sooner = l.sooner || first.in[byWindow] == 1
	}
	return true
}

// isFull reports whether no more runs can be folded with the first one of a chat queue.
func (l *ChatQueues) isFull(ln *chatQueue, first *place, k *kind) bool {
	if ln.foldEnd == 0 {
		ln.foldEnd, ln.together, ln.foldSize = ln.first, 1, first.size
	}
	for int(ln.together) < k.fold.Max {
		pi := l.place.at(ln.foldEnd).next
		if pi == 0 {
			return false
		}
		next := l.place.at(pi)
		if !l.canFold(first, next) {
			return false
		}
		if ln.foldSize+next.size > engine.MaxFoldMessage {
			return true
		}
		ln.foldEnd = pi
		ln.together++
		ln.foldSize += next.size
	}
	return true
}

// canFold reports whether a run can be carried out in the turn of another one. Runs that were started before are not folded
// with new ones: a turn that the process does not survive stays what it is, and others need not suffer for it.
func (l *ChatQueues) canFold(first, other *place) bool {
	if first.starts != other.starts || first.alike != other.alike {
		return false
	}
	if first.kind == other.kind {
		return true
	}
	a, b := &l.kinds[first.kind], &l.kinds[other.kind]
	return b.folds() && a.hook == b.hook && a.runner == b.runner
}

// forgetFold has the runs at the beginning of a chat queue counted anew.
func (ln *chatQueue) forgetFold() { ln.foldEnd, ln.together, ln.foldSize = 0, 0, 0 }

// leaveFold notes that a run is about to be taken out of its chat queue.
func (l *ChatQueues) leaveFold(ln *chatQueue, pi uint32, p *place) {
	switch {
	case ln.foldEnd == 0:
	case ln.foldEnd == pi && ln.first == pi:
		ln.forgetFold()
	case bytes.Compare(p.id[:], l.place.at(ln.foldEnd).id[:]) > 0: // behind those that are counted
	default:
		ln.together--
		ln.foldSize -= p.size
		if ln.foldEnd == pi {
			ln.foldEnd = p.prev
		}
	}
}

// takeFold holds the runs that are folded with one that was first in its chat queue, and was just taken.
func (l *ChatQueues) takeFold(pi uint32) (folded []uuid.UUID) {
	first := l.place.at(pi)
	k := &l.kinds[first.kind]
	ln := l.chatQueue.at(first.chatQueue)
	size := int(first.size)
	for k.folds() && len(folded)+1 < k.fold.Max && ln.first != 0 && l.canFold(first, l.place.at(ln.first)) {
		next := ln.first
		if size += int(l.place.at(next).size); size > engine.MaxFoldMessage {
			break
		}
		l.hold(next)
		folded = append(folded, l.place.at(next).id)
	}
	return folded
}

// openWindows lets runs be popped whose window is over.
func (l *ChatQueues) openWindows(now int64) {
	for {
		at, ok := l.first(byWindow)
		if !ok || at > now {
			return
		}
		pi := l.heaps[byWindow][0].place
		l.leave(byWindow, pi)
		p := l.place.at(pi)
		p.over = true
		l.offer(p.chatQueue)
	}
}

// setStarts notes how often a run was started.
func (l *ChatQueues) setStarts(id uuid.UUID, starts int) {
	pi := l.places[id]
	if pi == 0 {
		return
	}
	p := l.place.at(pi)
	if n := uint16(min(starts, 1<<16-1)); n != p.starts {
		p.starts = n
		if p.queued && l.kinds[p.kind].folds() {
			l.chatQueue.at(p.chatQueue).forgetFold()
			l.offer(p.chatQueue)
		}
	}
}
