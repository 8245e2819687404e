package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Checks of questions when the store was closed and opened again, and when somebody has set its clock.

func asideIsThereAgain(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "b", "c")
	timed := s.putAside(runs[0], fullQuestion(0), 0)
	claims := s.claimAll(runs[2], runs[3])
	if claims[0].Run.ID != runs[2].ID {
		claims[0], claims[1] = claims[1], claims[0]
	}
	s.end(claims[0], aside(agentQuestion(0), 0))
	s.end(claims[1], aside(agentQuestion(0), 20*time.Minute))
	open, paused := s.justAsked(runs[2], agentQuestion(0)), s.justAsked(runs[3], agentQuestion(0))
	for range 2 {
		s.reopen()
		for _, question := range []*engine.Question{timed, open, paused} {
			s.isQuestion(question)
		}
		for _, run := range []*engine.Run{runs[0], runs[2], runs[3]} {
			s.status(run, engine.Waiting, 0)
		}
		if got := s.get(runs[0].ID).WaitingFor; got != "Somebody has to answer." {
			s.t.Errorf("the run waits for %q", got)
		}
		s.backlogIs(engine.Backlog{Queued: 1, Waiting: 3})
		s.opens(timed)
		s.resume()
		s.claimAll()
	}
	s.advance(20*time.Minute + slack)
	s.claimAsked(runs[3], paused)
	s.advance(40 * time.Minute)
	s.end(s.claimAsked(runs[0], timed), ended())
	s.claimThrough(runs[1])
	s.answer(open)
	s.claimAsked(runs[2], open)
}

func answersAreThereAgain(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "b")
	question := s.putAside(runs[0], fullQuestion(0), 0)
	s.answer(question)
	other := s.addTo("c")[0]
	for _, claim := range s.claimAll(runs[0], runs[2], other) {
		if claim.Run.ID == other.ID {
			s.end(claim, ended())
		} else {
			s.requeue(claim)
		}
	}
	s.reopen()
	s.isAnswered(question)
	s.noneDue()
	s.status(runs[0], engine.Queued, 0)
	for _, claim := range s.claimAll(runs[0], runs[2]) {
		if claim.Run.ID == runs[0].ID {
			same(s.t, "the questions of the claim", claim.Questions, []*engine.Question{question})
			s.end(claim, ended())
		}
	}
	question.State = nil
	s.reopen()
	s.isAnswered(question)
	s.claimFirst(runs[1])
}

func earlyAnswerIsThereAgain(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	early := &engine.Question{RunID: run.ID}
	s.answer(early)
	s.reopen()
	s.isAnswered(early)
	claims := s.endAnd(s.claimAsked(run, early), aside(agentQuestion(0), 0), upTo(1))
	s.sameRuns("claimed", claims, run)
	s.end(claims[0], ended())
}

func unfinishedDeliveriesAreThereAgain(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	first, second := newDelivery(run, engine.QuestionDeliveryIndex(0, false)), newDelivery(run, engine.QuestionDeliveryIndex(0, true))
	first.Question, second.Question, second.Closes = engine.QuestionID(run.ID, 0), engine.QuestionID(run.ID, 0), true
	s.end(s.claimFirst(run), aside(fullQuestion(0), 0, first, second))
	question := s.justAsked(run, fullQuestion(0))
	for _, d := range []*engine.Delivery{first, second} {
		d.CreatedAt, d.Due = question.AskedAt, question.AskedAt
	}
	s.reopen()
	s.knows(run, first, second)
	s.counts(2, 0)
	got := s.takes([]*engine.Delivery{first, second})
	for _, d := range got {
		if d.ID == first.ID {
			s.settle(d, engine.Delivered, 0, "")
			first = d
		} else {
			s.settle(d, engine.Dead, 0, "gone")
			second = d
		}
	}
	s.reopen()
	s.knows(run, first, second)
	s.counts(0, 1)
	s.noneDue()
	s.endQueued(run, ended())
	s.knows(run, first, second)
	s.reopen()
	s.knows(run, first, second)
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{Retention: time.Hour})
	s.gone(run.ID)
	s.counts(0, 0)
}

func asideIsNotOverdueLater(_ *testing.T, s *store) {
	run := s.addWithQueueTime(time.Hour)
	question := s.putAside(run, agentQuestion(0), 0)
	s.reopen()
	s.advance(2 * time.Hour)
	s.overdue(-1)
	s.answer(question)
	s.reopen()
	s.overdue(-1)
	s.end(s.claimAsked(run, question), waitFor(time.Minute))
	s.reopen()
	s.overdue(-1)
}

func openQuestionsAreThereAgain(t *testing.T, s *store) {
	var open []*engine.Question
	for i := range 4 {
		run := s.addTo(fmt.Sprint("chat ", i))[0]
		open = append(open, s.putAside(run, fullQuestion(0), 0))
		s.advance(time.Second)
	}
	s.answer(open[1])
	s.endQueued(s.get(open[2].RunID).Run, ended())
	open = []*engine.Question{open[0], open[3]}
	s.opens(open...)
	_, cursor, err := s.Questions().List(t.Context(), 1, "")
	if err != nil {
		t.Fatal(err)
	}
	s.reopen()
	s.opens(open...)
	if page, _, err := s.Questions().List(t.Context(), 1, cursor); err != nil || len(page) != 1 || page[0].ID() != open[0].ID() {
		t.Errorf("the next page has %d questions: %v", len(page), err)
	}
}

func askedAgainKeepsItsTimeLater(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	question := s.putAside(run, fullQuestion(0), time.Minute)
	s.advance(10 * time.Minute)
	s.reopen()
	claim := s.claimAsked(run, question)
	s.end(claim, waitFor(time.Minute)) // its runner is not there to be asked how the turn goes on
	s.advance(time.Minute + slack)
	s.reopen()
	claim = s.claimFirst(run)
	again := fullQuestion(0)
	s.end(claim, aside(again, 0))
	s.isQuestion(question)
	s.claimWait(time.Hour - 11*time.Minute - slack)
}

func setClockAndQuestions(_ *testing.T, s *store) {
	for _, set := range someSets {
		run := s.addTo("a")[0]
		s.putAside(run, fullQuestion(0), 0)
		s.setClock(set)
		s.claimWait(time.Hour)
		s.advance(time.Hour - time.Minute)
		s.claimWait(time.Minute)
		s.advance(time.Minute + slack)
		claim := s.claimedAfter(time.Hour+slack, run)
		s.timeIsOver(claim, true)
		s.end(claim, ended())
	}
}

// timeIsOver expects that a claim tells whether the time of its question is over.
func (s *store) timeIsOver(claim *engine.Claim, want bool) {
	s.t.Helper()
	if got := !claim.StartedAt.Before(claim.Questions[0].Until); got != want {
		s.t.Errorf("a run is claimed at %v, and the time of its question ends at %v", claim.StartedAt, claim.Questions[0].Until)
	}
}

func setClockAndAskedAgain(_ *testing.T, s *store) {
	for _, set := range someSets {
		run := s.addTo("a")[0]
		question := s.putAside(run, fullQuestion(0), 20*time.Minute)
		s.setClock(set)
		s.advance(20*time.Minute + slack)
		claim := s.claimedAfter(20*time.Minute+slack, run)
		s.timeIsOver(claim, false)
		s.setClock(-set / 2)
		s.end(claim, aside(fullQuestion(0), 0))
		s.isQuestion(question)
		s.claimWait(40*time.Minute - slack)
		s.setClock(set)
		s.advance(40 * time.Minute)
		claim = s.claimedAfter(time.Hour+slack, run)
		s.timeIsOver(claim, true)
		s.end(claim, ended())
	}
}

func setClockBetweenQuestions(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	question := s.putAside(run, fullQuestion(0), 0)
	s.advance(30 * time.Minute)
	s.setClock(-30 * year)
	s.reopen()
	s.isQuestion(question)
	s.claimWait(time.Hour)
	s.advance(time.Hour + slack)
	s.timeIsOver(s.claimedAfter(time.Hour+slack, run), true)
}
