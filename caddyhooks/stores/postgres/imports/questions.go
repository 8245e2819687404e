package imports

import (
	"context"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// addQuestion makes a row of a question.
func (i *importing) addQuestion(rows *importedRows, run uuid.UUID, q *engine.Question) error {
	record, err := codec.EncodeQuestion(q)
	if err != nil {
		return err
	}
	var asked, answered, answer any
	if !q.AskedAt.IsZero() {
		asked = q.AskedAt
	}
	if q.Answer != nil {
		answered = q.Answer.At
		if answer, err = codec.EncodeAnswer(q.Answer); err != nil {
			return err
		}
	} else if q.Kind.ForPeople() {
		i.asking++
	}
	i.count.Questions++
	people := q.Kind.ForPeople() && asked != nil // of one that was answered before it was asked, nothing is known
	number := int32(q.Number)                    //nolint:gosec // few
	rows.question = append(rows.question, []any{[16]byte(run), number, people, asked, answered, record, answer, q.State})
	return nil
}

// aside is what a row has of a run's questions.
type aside struct {
	isAside               bool // then it is the first run of its chat
	asked                 int64
	question, due, reason any // NULL if it is not put aside
}

// asideOf tells why an unfinished run is put aside, if it is: for its last question. The other store does not tell when it wanted to hand
// out the run of an agent that has to be asked how it goes. So it is handed out at once, and put aside again.
func (i *importing) asideOf(record *engine.Record) (a aside) {
	for _, q := range record.Questions {
		a.asked += int64(q.Size())
	}
	if record.Status != engine.Waiting || len(record.Questions) == 0 {
		return a
	}
	last := record.Questions[len(record.Questions)-1]
	if last.Answer != nil {
		return a
	}
	i.waiting++
	a.isAside, a.question = true, int32(last.Number) //nolint:gosec // few
	switch {
	case last.Kind == engine.AskAgent:
		a.due = record.Run.AcceptedAt
	case !last.Until.IsZero():
		a.due = last.Until
	}
	a.reason = codec.EscapeOrNull(record.WaitingFor)
	return a
}

// orderQuestions counts questions, and lets lists have the open ones in the order in which they were asked.
func (i *importing) orderQuestions(ctx context.Context) error {
	_, err := i.tx.Exec(ctx, `WITH ordered AS (
			SELECT x.run, x.number, nextval('question_seq') AS seq FROM (
				SELECT q.run, q.number FROM question q WHERE q.people AND q.answered_at IS NULL ORDER BY q.asked_at, q.run, q.number) x)
		UPDATE question q SET seq = o.seq FROM ordered o WHERE q.run = o.run AND q.number = o.number`)
	if err != nil {
		return err
	}
	_, err = i.tx.Exec(ctx, "SELECT bump_questions_1('', 4, $1, $2)", i.waiting, i.asking)
	return err
}
