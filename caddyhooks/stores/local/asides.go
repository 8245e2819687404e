package local

import (
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Aside is why a run is put aside.
type Aside struct {
	Question int       // its number
	Asked    time.Time // when the question was asked first
	Due      time.Time // when the run is handed out though nobody has answered; zero is not before that
	For      string    // the reason, as a sentence
}

// aside is the Aside of a run. It is kept while the run is carried out again, since the question may be asked once more.
type aside struct {
	wait
	question int32
	asked    int64 // in nanoseconds since 1970
}

// PutAside puts a claimed run back as one that is put aside for a question, which is as the store keeps it from now on. If the question has
// an answer already, the run is queued. asked is when the question was asked first, as far as the store knows: the queue knows better
// if somebody has set the clock since.
func (q *Queue) PutAside(id uuid.UUID, question *engine.Question, end engine.End, asked, now time.Time) (undo func()) {
	h, waits, before := q.claimed[id], q.waits[id], q.asides[id]
	undoQuestions := q.SetAsked(id)
	q.requeued[id] = h.Token
	q.dropWait(id)
	q.putBack(h, h.Attempt-1)
	if question.Answer == nil {
		if before != nil && int(before.question) == question.Number {
			asked = time.Unix(0, before.asked)
		}
		q.SetAside(id, Aside{Question: question.Number, Asked: asked, Due: dueOf(question, end.Pause, asked, now), For: end.WaitingFor})
	}
	q.nodes.TellClaimable() // the next run is not due before, but how long that takes may be less than they know of
	return func() {
		q.dropAside(id)
		if before != nil {
			q.asides[id] = before
		}
		if waits != nil {
			q.waits[id] = waits
		}
		if q.chatQueues.Hold(id) {
			q.hold(h)
		}
		undoQuestions()
	}
}

// dueOf is when a run is handed out again that is put aside now; zero if it has to be answered.
func dueOf(question *engine.Question, pause time.Duration, asked, now time.Time) (due time.Time) {
	if question.For > 0 {
		due = asked.Add(question.For)
	}
	if paused := now.Add(pause); pause > 0 && (due.IsZero() || paused.Before(due)) {
		due = paused
	}
	return due
}

// SetAside puts a queued run aside, which is the first of its chat.
func (q *Queue) SetAside(id uuid.UUID, to Aside) {
	q.dropAside(id)
	a := &aside{wait: wait{Wait: Wait{Due: to.Due, For: to.For}, id: id}, question: int32(to.Question), asked: to.Asked.UnixNano()}
	q.keepAside(a, true)
	q.chatQueues.PutAside(id)
}

// keepAside notes that a run is put aside, or was the last time.
func (q *Queue) keepAside(a *aside, waits bool) {
	q.asides[a.id] = a
	if waits && !a.Due.IsZero() {
		q.waiting.set(&a.wait, a.Due)
	}
}

// AsideOf returns why a run is put aside, or was the last time.
func (q *Queue) AsideOf(id uuid.UUID) (Aside, bool) {
	a := q.asides[id]
	if a == nil {
		return Aside{}, false
	}
	return Aside{Question: int(a.question), Asked: time.Unix(0, a.asked), Due: a.Due, For: a.For}, true
}

// IsAside reports whether a run is put aside.
func (q *Queue) IsAside(id uuid.UUID) bool { return q.chatQueues.isAside(id) }

func (q *Queue) dropAside(id uuid.UUID) {
	if a := q.asides[id]; a != nil {
		q.waiting.remove(&a.wait)
		delete(q.asides, id)
		if q.chatQueues.isAside(id) {
			q.chatQueues.Wake(id)
		}
	}
}

// Answered lets a run be claimed if it is put aside for a question, and tells the nodes of the answer in any case.
func (q *Queue) Answered(id uuid.UUID, question int) (undo func()) {
	undo = func() {}
	if a := q.asides[id]; a != nil && int(a.question) == question && q.chatQueues.isAside(id) {
		q.dropAside(id)
		undo = func() {
			if here, queued := q.chatQueues.Has(id); here && queued {
				q.keepAside(a, true)
				q.chatQueues.PutAside(id)
			}
		}
	}
	q.nodes.TellClaimable()
	return undo
}

// SetAsked notes that an unfinished run has questions. It is not overdue from then on.
func (q *Queue) SetAsked(id uuid.UUID) (undo func()) {
	p := q.chatQueues.place.at(q.chatQueues.places[id])
	if p.asked {
		return func() {}
	}
	p.asked = true
	q.setDeadline(id)
	return func() {
		if pi := q.chatQueues.places[id]; pi != 0 {
			q.chatQueues.place.at(pi).asked = false
			q.setDeadline(id)
		}
	}
}

// HasAsked reports whether an unfinished run has questions.
func (q *Queue) HasAsked(id uuid.UUID) bool {
	pi := q.chatQueues.places[id]
	return pi != 0 && q.chatQueues.place.at(pi).asked
}
