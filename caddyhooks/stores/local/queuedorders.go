package local

import "github.com/google/uuid"

// queuedBy is an order in which queued runs are found.
type queuedBy int

const (
	byDeadline queuedBy = iota // those that count, the earliest first
	byAge                      // the run that was accepted first comes first
	byWindow                   // of first runs that wait for others to be folded with, the window that is over first comes first
	queuedOrders
)

// timedPlace is a queued run in a heap of those.
type timedPlace struct {
	at    int64
	place uint32
}

// expect lets the deadline of a queued run count, if it has one and no questions.
func (l *ChatQueues) expect(id uuid.UUID) {
	pi := l.places[id]
	if p := l.place.at(pi); p.deadline != 0 && !p.asked {
		l.enter(byDeadline, pi, p.deadline)
	}
}

// forgetDeadline lets the deadline of a run count no more.
func (l *ChatQueues) forgetDeadline(pi uint32) { l.leave(byDeadline, pi) }

// firstDeadline is the earliest deadline that counts.
func (l *ChatQueues) firstDeadline() (at int64, ok bool) { return l.first(byDeadline) }

// Oldest is when the oldest of the queued runs was accepted.
func (l *ChatQueues) Oldest() (at int64, ok bool) { return l.first(byAge) }

// overdue returns up to max runs whose deadline is over. They stay where they are.
func (l *ChatQueues) overdue(now int64, max int) (ids []uuid.UUID) {
	deadlines := l.heaps[byDeadline]
	// Below a deadline of the heap that is not over there is none that is.
	for look := []int{0}; len(look) > 0 && len(ids) < max; {
		i := look[0]
		look = look[1:]
		if i < len(deadlines) && deadlines[i].at <= now {
			ids = append(ids, l.place.at(deadlines[i].place).id)
			look = append(look, 2*i+1, 2*i+2)
		}
	}
	return ids
}

// enter puts a run into a heap, unless it is there.
func (l *ChatQueues) enter(by queuedBy, pi uint32, at int64) {
	if l.place.at(pi).in[by] != 0 {
		return
	}
	l.heaps[by] = append(l.heaps[by], timedPlace{at, pi})
	l.siftUp(by, len(l.heaps[by])-1)
}

// leave takes a run out of a heap, if it is there.
func (l *ChatQueues) leave(by queuedBy, pi uint32) {
	p := l.place.at(pi)
	if p.in[by] == 0 {
		return
	}
	heap := l.heaps[by]
	i, last := int(p.in[by])-1, len(heap)-1
	p.in[by] = 0
	moved := heap[last]
	l.heaps[by] = heap[:last]
	if i < last {
		heap[i] = moved
		l.siftUp(by, l.siftDown(by, i))
	}
}

func (l *ChatQueues) first(by queuedBy) (at int64, ok bool) {
	if len(l.heaps[by]) == 0 {
		return 0, false
	}
	return l.heaps[by][0].at, true
}

func (l *ChatQueues) siftUp(by queuedBy, i int) {
	heap := l.heaps[by]
	moved := heap[i]
	for i > 0 {
		above := (i - 1) / 2
		if heap[above].at <= moved.at {
			break
		}
		l.setHeap(by, i, heap[above])
		i = above
	}
	l.setHeap(by, i, moved)
}

func (l *ChatQueues) siftDown(by queuedBy, i int) (to int) {
	heap := l.heaps[by]
	moved := heap[i]
	for {
		below := 2*i + 1
		if below >= len(heap) {
			break
		}
		if right := below + 1; right < len(heap) && heap[right].at < heap[below].at {
			below = right
		}
		if moved.at <= heap[below].at {
			break
		}
		l.setHeap(by, i, heap[below])
		i = below
	}
	l.setHeap(by, i, moved)
	return i
}

func (l *ChatQueues) setHeap(by queuedBy, i int, t timedPlace) {
	l.heaps[by][i] = t
	l.place.at(t.place).in[by] = uint32(i + 1)
}
