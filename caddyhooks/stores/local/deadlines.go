package local

import "github.com/google/uuid"

// deadline is when a queued run is overdue.
type deadline struct {
	at    int64
	place uint32
}

// expect lets the deadline of a queued run count, if it has one.
func (l *Lanes) expect(id uuid.UUID) {
	pi := l.places[id]
	p := l.place.at(pi)
	if p.deadline == 0 || p.expiry != 0 {
		return
	}
	l.deadlines = append(l.deadlines, deadline{p.deadline, pi})
	l.siftUp(len(l.deadlines) - 1)
}

// forgetDeadline lets the deadline of a run count no more.
func (l *Lanes) forgetDeadline(pi uint32) {
	p := l.place.at(pi)
	if p.expiry == 0 {
		return
	}
	i, last := int(p.expiry)-1, len(l.deadlines)-1
	p.expiry = 0
	moved := l.deadlines[last]
	l.deadlines = l.deadlines[:last]
	if i < last {
		l.deadlines[i] = moved
		l.siftUp(l.siftDown(i))
	}
}

// firstDeadline is the earliest deadline that counts.
func (l *Lanes) firstDeadline() (at int64, ok bool) {
	if len(l.deadlines) == 0 {
		return 0, false
	}
	return l.deadlines[0].at, true
}

// overdue returns up to max runs whose deadline is over. They stay where they are.
func (l *Lanes) overdue(now int64, max int) (ids []uuid.UUID) {
	// Below a deadline of the heap that is not over there is none that is.
	for look := []int{0}; len(look) > 0 && len(ids) < max; {
		i := look[0]
		look = look[1:]
		if i < len(l.deadlines) && l.deadlines[i].at <= now {
			ids = append(ids, l.place.at(l.deadlines[i].place).id)
			look = append(look, 2*i+1, 2*i+2)
		}
	}
	return ids
}

func (l *Lanes) siftUp(i int) {
	d := l.deadlines[i]
	for i > 0 {
		above := (i - 1) / 2
		if l.deadlines[above].at <= d.at {
			break
		}
		l.setDeadline(i, l.deadlines[above])
		i = above
	}
	l.setDeadline(i, d)
}

func (l *Lanes) siftDown(i int) (to int) {
	d := l.deadlines[i]
	for {
		below := 2*i + 1
		if below >= len(l.deadlines) {
			break
		}
		if right := below + 1; right < len(l.deadlines) && l.deadlines[right].at < l.deadlines[below].at {
			below = right
		}
		if d.at <= l.deadlines[below].at {
			break
		}
		l.setDeadline(i, l.deadlines[below])
		i = below
	}
	l.setDeadline(i, d)
	return i
}

func (l *Lanes) setDeadline(i int, d deadline) {
	l.deadlines[i] = d
	l.place.at(d.place).expiry = uint32(i + 1)
}
