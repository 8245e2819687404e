package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// questions implements engine.Questions. Those for which runs are put aside are stored by ends.
type questions struct{ *store }

func (s *store) Questions() engine.Questions { return questions{s} }

func (s questions) Ask(ctx context.Context, claim *engine.Claim, question *engine.Question, deliveries ...*engine.Delivery) error {
	if _, ok := local.ParseID(claim.Run.ID); !ok || claim.Token == "" {
		return engine.ErrClaimLost
	}
	if err := checkQuestion(claim.Run, question); err != nil {
		return err
	}
	record, err := codec.EncodeQuestion(question)
	if err != nil {
		return err
	}
	made, err := newQuestionDeliveries(deliveries)
	if err != nil {
		return err
	}
	status := ""
	err = s.query(ctx, func(row pgx.Rows) error { return row.Scan(&status) },
		"SELECT @.ask_question_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
		append([]any{s.node, claim.Run.ID, codec.Escape(claim.Token), question.Number, question.Kind.ForPeople(), record, question.State},
			made.list()...)...)
	switch {
	case err != nil:
		return err
	case status == "gap":
		return gapError(claim.Run, question)
	case status != "done":
		return engine.ErrClaimLost
	}
	s.tellOfDeliveries(deliveries)
	return nil
}

// checkQuestion refuses a question that a run cannot have.
func checkQuestion(run *engine.Run, question *engine.Question) error {
	if question.Number < 0 || question.Number >= engine.MaxQuestions {
		return gapError(run, question)
	}
	return nil
}

func gapError(run *engine.Run, question *engine.Question) error {
	return fmt.Errorf("run %s cannot ask question %d now", run.ID, question.Number)
}

func (s questions) Answer(ctx context.Context, id string, answer engine.Answer, deliveries ...*engine.Delivery) (*engine.Question, error) {
	run, number, ok := engine.ParseQuestionID(id)
	if !ok {
		return nil, engine.ErrNotFound
	}
	encoded, err := codec.EncodeAnswer(&answer)
	if err != nil {
		return nil, err
	}
	made, err := newQuestionDeliveries(deliveries)
	if err != nil {
		return nil, err
	}
	var (
		status  string
		isReady bool
		found   questionRow
	)
	err = s.query(ctx, func(row pgx.Rows) error { return row.Scan(append([]any{&status, &isReady}, found.fields()...)...) },
		"SELECT o_status, o_ready, "+questionColumns+" FROM @.answer_question_1($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		append([]any{s.node, run, number, encoded}, made.list()...)...)
	if err != nil {
		return nil, err
	}
	if status == "unknown" {
		return nil, engine.ErrNotFound
	}
	question, err := found.question()
	if err != nil {
		return nil, err
	}
	if status == "answered" {
		return question, engine.ErrAnswered
	}
	s.watch.tellClaimable()
	s.watch.tellOthers("r")
	s.tellOfDeliveries(deliveries)
	return question, nil
}

func (s questions) tellOfDeliveries(made []*engine.Delivery) {
	if len(made) > 0 {
		s.watch.tellDue()
		s.watch.tellOthers("d")
	}
}

func (s questions) Get(ctx context.Context, id string) (question *engine.Question, err error) {
	run, number, ok := engine.ParseQuestionID(id)
	if !ok {
		return nil, engine.ErrNotFound
	}
	err = s.query(ctx, func(row pgx.Rows) (err error) {
		var found questionRow
		if err := row.Scan(found.fields()...); err != nil {
			return err
		}
		question, err = found.question()
		return err
	}, "SELECT "+questionColumns+" FROM @.get_question_1($1, $2)", run, number)
	if err == nil && question == nil {
		err = engine.ErrNotFound
	}
	return question, err
}

func (s questions) List(ctx context.Context, limit int, cursor string) (page []*engine.Question, next string, err error) {
	before := uint64(math.MaxInt64)
	if cursor != "" {
		var ok bool
		if before, ok = local.ParseCursor(cursor); !ok || before > math.MaxInt64 {
			return nil, "", engine.ErrCursor
		}
	}
	if limit <= 0 {
		return nil, "", nil
	}
	last := int64(0)
	err = s.query(ctx, func(row pgx.Rows) error {
		var found questionRow
		var seq int64
		if err := row.Scan(append(found.fields(), &seq)...); err != nil {
			return err
		}
		if len(page) == limit {
			next = local.Cursor(uint64(last))
			return nil
		}
		question, err := found.question()
		page, last = append(page, question), seq
		return err
	}, "SELECT "+questionColumns+", seq FROM @.list_questions_1($1, $2)", int64(before), limit+1)
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

func (s questions) Count(ctx context.Context) (n int, err error) {
	err = s.query(ctx, func(row pgx.Rows) error { return row.Scan(&n) }, "SELECT coalesce(sum(asking), 0)::bigint FROM @.counter")
	return n, err
}

// questionRow is a question as the functions of the database give it out.
type questionRow struct {
	run                   uuid.NullUUID
	number                *int
	askedAt, answeredAt   *time.Time
	record, answer, state []byte
}

const questionColumns = "run, number, asked_at, answered_at, record, answer, state"

// fields are where to put what the columns of questionColumns have.
func (r *questionRow) fields() []any {
	return []any{&r.run, &r.number, &r.askedAt, &r.answeredAt, &r.record, &r.answer, &r.state}
}

func (r *questionRow) question() (*engine.Question, error) {
	question := &engine.Question{RunID: r.run.UUID.String(), Number: *r.number, State: r.state}
	if err := codec.DecodeQuestion(question, r.record, r.answer, r.askedAt, r.answeredAt); err != nil {
		return nil, fmt.Errorf("reading question %s: %w", question.ID(), err)
	}
	return question, nil
}

// questionDeliveries are deliveries of an unfinished run, as the functions of the database take them.
type questionDeliveries struct {
	indexes               []int32
	hosts, chats, records []string
	bodies                [][]byte
}

func newQuestionDeliveries(made []*engine.Delivery) (*questionDeliveries, error) {
	q := new(questionDeliveries)
	for _, d := range made {
		record, err := codec.EncodeDelivery(d)
		if err != nil {
			return nil, err
		}
		to := d.Destination()
		q.indexes, q.records = append(q.indexes, int32(d.Index)), append(q.records, record) //nolint:gosec // few
		q.hosts, q.chats = append(q.hosts, codec.Escape(to.Host)), append(q.chats, codec.Escape(to.Chat))
		q.bodies = append(q.bodies, []byte(d.Body))
	}
	return q, nil
}

func (q *questionDeliveries) list() []any {
	return []any{notNull(q.indexes), notNull(q.hosts), notNull(q.chats), notNull(q.records), notNull(q.bodies)}
}
