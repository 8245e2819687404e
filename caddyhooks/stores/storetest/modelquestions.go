package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Those that are here twice are done more often.
var questionActions = []action{
	{"put aside", (*world).putAside},
	{"put aside", (*world).putAside},
	{"answer", (*world).answer},
	{"answer", (*world).answer},
	{"answer and claim", func(w *world, chance *rand.Rand) any {
		return []any{w.answer(chance), w.claim(w.batch(chance, 2))}
	}},
	{"ask", func(w *world, chance *rand.Rand) any {
		if len(w.claims) == 0 {
			return nil
		}
		claim := oneOf(chance, w.claims...)
		question := w.newQuestion(chance, claim.Run)
		return w.s.Questions().Ask(w.t.Context(), claim, question, w.questionDeliveries(chance, claim.Run, question.Number)...)
	}},
	{"list questions", func(w *world, chance *rand.Rand) any { return w.listQuestions(1 + chance.IntN(3)) }},
}

// putAside ends a claim so that its run is put aside, or put back if it was folded.
func (w *world) putAside(chance *rand.Rand) any {
	return w.end(chance, engine.End{Requeue: true, WaitingFor: "Somebody has to answer.", Question: new(engine.Question),
		Pause: oneOf[time.Duration](chance, 0, 0, time.Minute, 5*time.Hour), Session: modelSession(chance)})
}

// newQuestion is the next question of a run, or one that it has asked before.
func (w *world) newQuestion(chance *rand.Rand, run *engine.Run) *engine.Question {
	question := fullQuestion(w.nextQuestion(run))
	if question.Number > 0 && chance.IntN(3) == 0 {
		question.Number--
	}
	question.Kind = oneOf(chance, engine.AskAgent, engine.AskAgent, engine.AskStart, engine.AskInput)
	question.For = oneOf[time.Duration](chance, 0, time.Hour, 2*time.Hour)
	question.Text, question.State = fmt.Sprint("question ", chance.IntN(100)), oneOf(chance, nil, []byte{}, []byte("a state"), make([]byte, 9000))
	question.Choices = oneOf(chance, nil, question.Choices)
	return question
}

// nextQuestion is the number of the question that a run asks next.
func (w *world) nextQuestion(run *engine.Run) (number int) {
	record, err := w.s.Runs().Get(w.t.Context(), run.ID)
	if err != nil {
		return 0
	}
	for _, question := range record.Questions {
		if !question.AskedAt.IsZero() {
			number++
		}
	}
	return min(number, engine.MaxQuestions-1)
}

// questionDeliveries are those that ask a question or close it, each to another chat.
func (w *world) questionDeliveries(chance *rand.Rand, run *engine.Run, number int) (all []*engine.Delivery) {
	for i, closes := range []bool{false, true} {
		if chance.IntN(3) > 0 {
			continue
		}
		d := newDelivery(run, engine.QuestionDeliveryIndex(number, closes))
		d.Question, d.Closes, d.Channel = engine.QuestionID(run.ID, number), closes, []string{"asks", "closes"}[i]
		d.Body, d.To = fmt.Sprint("question ", number), fmt.Sprint(w.compare(run.ID, ""), " ", number)
		all = append(all, d)
	}
	return all
}

// answer answers a question of any run, which may not be asked yet, or have an answer.
func (w *world) answer(chance *rand.Rand) any {
	if len(w.runs) == 0 {
		return nil
	}
	run := oneOf(chance, w.runs...)
	if len(w.asked) > 0 && chance.IntN(4) > 0 {
		run = w.asked[max(0, len(w.asked)-1-chance.IntN(3))]
	}
	number := max(0, w.nextQuestion(run)-oneOf(chance, 1, 1, 1, 1, 0, 2, -1))
	answer := fullAnswer()
	answer.Text = fmt.Sprint("answer ", chance.IntN(100))
	question, err := w.s.Questions().Answer(w.t.Context(), engine.QuestionID(run.ID, number), answer,
		w.questionDeliveries(chance, run, number)...)
	return []any{question, err}
}

func (w *world) listQuestions(limit int) any {
	all := allPages(w.t, limit, func(cursor string) ([]*engine.Question, string, error) {
		return w.s.Questions().List(w.t.Context(), limit, cursor)
	})
	count, err := w.s.Questions().Count(w.t.Context())
	return []any{all, count, err}
}
