package stores

import (
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// queue is what a store that has its data to itself keeps in memory about unfinished runs: their order, and who claimed
// which of them. It is not safe for concurrent use.
//
// Most of what changes it returns how to take the change back, for a store that has to write it down as well and may fail
// to. Of several changes the last must be taken back first.
type queue struct {
	lanes     engine.Lanes
	held      map[uuid.UUID]*holding
	starts    map[uuid.UUID]int // of queued runs that have been started before, how often
	ids       engine.IDs
	expiry    time.Time // no claim runs out before
	claimable chan struct{}
}

// parseID reads an id in the one form that we give out.
func parseID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// holding is a claimed run.
type holding struct {
	attempt   int
	startedAt time.Time
	expires   time.Time
}

func newQueue() queue {
	return queue{
		held:      make(map[uuid.UUID]*holding),
		starts:    make(map[uuid.UUID]int),
		claimable: make(chan struct{}, 1),
	}
}

// signal leaves word that there is something to claim.
func (q *queue) signal() {
	select {
	case q.claimable <- struct{}{}:
	default:
	}
}

// admit reports whether there is room for another run of a chat.
func (q *queue) admit(chat string, limits engine.Limits) error {
	if limits.Queue > 0 && q.lanes.Queued() >= limits.Queue {
		return engine.ErrQueueFull
	}
	if limits.Chat > 0 && q.lanes.QueuedIn(chat) >= limits.Chat {
		return engine.ErrChatFull
	}
	return nil
}

// push queues a run as the last of its chat. Whoever has written that down too signals.
func (q *queue) push(chat string, id uuid.UUID) (ready bool, undo func()) {
	ready = q.lanes.Push(chat, id)
	return ready, func() { q.lanes.Done(id) }
}

// claim takes what is wanted and can be had.
func (q *queue) claim(want engine.Want, now time.Time) (ids []uuid.UUID, undo func()) {
	q.expire(now)
	for len(ids) < want.Runs {
		id, ok := q.lanes.Pop()
		if !ok {
			break
		}
		h := &holding{attempt: q.starts[id] + 1, startedAt: now, expires: now.Add(want.Lease)}
		delete(q.starts, id)
		q.held[id] = h
		if q.expiry.IsZero() || h.expires.Before(q.expiry) {
			q.expiry = h.expires
		}
		ids = append(ids, id)
	}
	return ids, func() {
		for i := len(ids) - 1; i >= 0; i-- {
			if h := q.held[ids[i]]; h != nil { // unless the lease was over before the attempt to write it down
				q.putBack(ids[i], h.attempt-1)
			}
		}
	}
}

// expire puts back runs whose claims have run out. That they were started counts.
func (q *queue) expire(now time.Time) {
	if q.expiry.IsZero() || now.Before(q.expiry) {
		return
	}
	q.expiry = time.Time{}
	for id, h := range q.held {
		if !now.Before(h.expires) {
			q.putBack(id, h.attempt)
			q.signal()
		} else if q.expiry.IsZero() || h.expires.Before(q.expiry) {
			q.expiry = h.expires
		}
	}
}

func (q *queue) putBack(id uuid.UUID, starts int) {
	delete(q.held, id)
	if starts > 0 {
		q.starts[id] = starts
	}
	q.lanes.Return(id)
}

// holds reports whether a claim is in force, and returns the id of its run.
func (q *queue) holds(claim *engine.Claim) (uuid.UUID, bool) {
	id, ok := parseID(claim.Run.ID)
	if !ok {
		return id, false
	}
	h := q.held[id]
	return id, h != nil && h.attempt == claim.Attempt
}

// renew lets claims hold until expires, and returns those that are lost.
func (q *queue) renew(claims []*engine.Claim, expires time.Time) (lost []*engine.Claim) {
	for _, claim := range claims {
		if id, ok := q.holds(claim); ok {
			q.held[id].expires = expires
			if expires.Before(q.expiry) {
				q.expiry = expires
			}
		} else {
			lost = append(lost, claim)
		}
	}
	return lost
}

// release puts a claimed run back, as if it had not been started. There is no way back.
func (q *queue) release(id uuid.UUID) {
	q.putBack(id, q.held[id].attempt-1)
	q.signal()
}

// end takes a run out for good, be it claimed or queued.
func (q *queue) end(id uuid.UUID) (undo func()) {
	h, starts := q.held[id], q.starts[id]
	gone := q.lanes.Done(id)
	delete(q.held, id)
	delete(q.starts, id)
	return func() {
		if h != nil {
			q.held[id] = h
		}
		if starts > 0 {
			q.starts[id] = starts
		}
		q.lanes.Undo(gone)
	}
}

// isQueued reports whether a run waits.
func (q *queue) isQueued(id uuid.UUID) bool {
	_, queued := q.lanes.Has(id)
	return queued
}

// describe fills in where an unfinished run is.
func (q *queue) describe(id uuid.UUID, record *engine.Record) {
	record.Status, record.Attempts = engine.Queued, q.starts[id]
	if h := q.held[id]; h != nil {
		record.Status, record.Attempts, record.StartedAt = engine.Running, h.attempt, h.startedAt
	}
}
