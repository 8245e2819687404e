package local

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Wait is why a run is not handed out yet, though nothing is before it in its chat.
type Wait struct {
	Due   time.Time
	Times int    // how often in a row the run had to wait for its runner; 0 if it was interrupted since
	For   string // the reason, as a sentence
}

// wait is the Wait of a run. It is kept while the run is tried again, for its count.
type wait struct {
	Wait
	id    uuid.UUID
	index int // in the queue of those that are not due
}

func (w *wait) place() *int    { return &w.index }
func (w *wait) number() uint64 { return 0 }

// count is how often in a row a run had to wait. It is 0 for one that never did.
func (w *wait) count() int {
	if w == nil {
		return 0
	}
	return w.Times
}

// SetWait lets a queued run wait.
func (q *Queue) SetWait(id uuid.UUID, to Wait) {
	q.dropWait(id)
	w := &wait{Wait: to, id: id}
	q.waits[id] = w
	q.waiting.set(w, to.Due)
	q.chatQueues.Wait(id)
	q.setDeadline(id)
}

// WaitOf returns the wait of a run, if it had to wait the last time.
func (q *Queue) WaitOf(id uuid.UUID) (Wait, bool) {
	if w := q.waits[id]; w != nil {
		return w.Wait, true
	}
	return Wait{}, false
}

func (q *Queue) dropWait(id uuid.UUID) {
	if w := q.waits[id]; w != nil {
		q.waiting.remove(w)
		delete(q.waits, id)
		q.chatQueues.Wake(id)
		q.setDeadline(id)
	}
}

// setDeadline lets the deadline of a queued run count, unless the run was started and does not wait for its runner: then it
// was taken on.
func (q *Queue) setDeadline(id uuid.UUID) {
	pi := q.chatQueues.places[id]
	if pi == 0 {
		return
	}
	if p := q.chatQueues.place.at(pi); p.queued && !p.asked && (q.starts[id] == 0 || q.waits[id].count() > 0) {
		q.chatQueues.expect(id)
	} else {
		q.chatQueues.forgetDeadline(pi)
	}
}

// wakeDue lets runs be claimed that have waited long enough.
func (q *Queue) wakeDue(now time.Time) {
	q.chatQueues.openWindows(now.UnixNano())
	for {
		w, due, ok := q.waiting.first()
		if !ok || now.Before(due) {
			return
		}
		q.waiting.remove(w)
		q.chatQueues.Wake(w.id)
	}
}

// UntilDue is how long until another wait is over, negative if nothing waits.
func (q *Queue) UntilDue(now time.Time) time.Duration {
	_, due, ok := q.waiting.first()
	if at, any := q.chatQueues.first(byWindow); any && (!ok || at < due.UnixNano()) {
		due, ok = time.Unix(0, at), true
	}
	if !ok {
		return -1
	}
	return max(due.Sub(now), 0)
}

// Resume ends the waits of all queued runs of some runners, of all runners if none is named, and forgets how often they
// had to wait. It returns the runs. Those that were interrupted do not wait for their runner.
func (q *Queue) Resume(runners []string) (resumed []uuid.UUID, undo func()) {
	before := make(map[*wait]bool) // and whether it was not over yet
	for id, w := range q.waits {
		if w.Times > 0 && q.claimed[id] == nil && (len(runners) == 0 || slices.Contains(runners, q.chatQueues.RunnerOf(id))) {
			before[w] = q.chatQueues.Waits(id)
			resumed = append(resumed, id)
		}
	}
	for _, id := range resumed {
		q.dropWait(id)
	}
	if len(resumed) > 0 {
		q.nodes.TellClaimable()
	}
	return resumed, func() {
		for w, waits := range before {
			switch {
			case !q.Has(w.id) || q.claimed[w.id] != nil:
			case waits:
				q.SetWait(w.id, w.Wait)
			default:
				q.waits[w.id] = w
				q.setDeadline(w.id)
			}
		}
	}
}

// Overdue returns up to so many queued runs that nobody took on in time, and how long until there is another one, negative if
// there will be none.
func (q *Queue) Overdue(now time.Time, most int) (ids []uuid.UUID, wait time.Duration) {
	q.expire(now)
	ids = q.chatQueues.overdue(now.UnixNano(), most)
	if at, ok := q.chatQueues.firstDeadline(); ok {
		return ids, max(time.Unix(0, at).Sub(now), 0)
	}
	return ids, -1
}
