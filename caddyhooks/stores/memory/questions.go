package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

type questions struct{ *store }

func (s *store) Questions() engine.Questions { return questions{s} }

func (s questions) Ask(_ context.Context, claim *engine.Claim, question *engine.Question, added ...*engine.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, holds := s.queue.Holds(claim)
	if !holds || claim.Token == "" {
		return engine.ErrClaimLost
	}
	now := s.clock.Now()
	if _, err := s.ask(id, question, now); err != nil {
		return err
	}
	s.addDeliveries(id, added, now)
	return nil
}

// ask stores a question that an unfinished run asks at a time.
func (d *Data) ask(id uuid.UUID, question *engine.Question, now time.Time) (*engine.Question, error) {
	record := d.runs[id]
	known, previous := record.question(question.Number), record.question(question.Number-1)
	asked, err := local.AskedBy(record.Run.ID, question, known, previous, now)
	if err != nil {
		return nil, err
	}
	d.putQuestion(id, known, asked)
	return asked, nil
}

// question is the question of a run with a number, nil if there is none.
func (r *run) question(number int) *engine.Question {
	if number < 0 || number >= len(r.Questions) {
		return nil
	}
	return r.Questions[number]
}

// putQuestion puts a question in the place of the known one, or after all others if that is nil. Whoever has the questions of the run
// keeps them as they were.
func (d *Data) putQuestion(id uuid.UUID, known, question *engine.Question) {
	record := d.runs[id]
	d.bytes -= record.size()
	record.Questions = slices.Clone(record.Questions)
	if known == nil {
		record.Questions = append(record.Questions, question)
	} else {
		record.Questions[question.Number] = question
	}
	d.bytes += record.size()
	d.noteOpen(id, known, question)
	if d.queue.Has(id) {
		d.queue.SetAsked(id)
	}
}

// noteOpen keeps the list of open questions when one takes the place of another.
func (d *Data) noteOpen(id uuid.UUID, before, after *engine.Question) {
	if local.IsOpenForPeople(before) {
		if i, there := findOpen(d.open, local.OpenKeyOf(id, before)); there {
			d.open = slices.Delete(d.open, i, i+1)
		}
	}
	if local.IsOpenForPeople(after) {
		key := local.OpenKeyOf(id, after)
		if i, there := findOpen(d.open, key); !there {
			d.open = slices.Insert(d.open, i, key)
		}
	}
}

func findOpen(open []local.OpenKey, key local.OpenKey) (int, bool) {
	return slices.BinarySearchFunc(open, key, func(a, b local.OpenKey) int { return bytes.Compare(a[:], b[:]) })
}

// closeQuestions are the questions of a run that ends at a time.
func (d *Data) closeQuestions(id uuid.UUID, now time.Time) (closed []*engine.Question) {
	for _, q := range d.runs[id].Questions {
		closed = append(closed, q.Closed(now))
		d.noteOpen(id, q, nil)
	}
	return closed
}

func (s questions) Answer(_ context.Context, questionID string, answer engine.Answer, added ...*engine.Delivery) (*engine.Question, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, number, record := s.find(questionID)
	if record == nil {
		return nil, engine.ErrNotFound
	}
	known, unfinished, now := record.question(number), s.queue.Has(id), s.clock.Now()
	question, err := local.AnsweredWith(record.Run.ID, number, answer, known, record.question(number-1), unfinished, now)
	if err != nil {
		return question, err
	}
	s.putQuestion(id, known, question)
	s.addDeliveries(id, added, now)
	s.queue.Answered(id, number)
	return question, nil
}

// find returns the run of a question, nil if there is none.
func (d *Data) find(questionID string) (id uuid.UUID, number int, record *run) {
	runID, number, ok := engine.ParseQuestionID(questionID)
	if ok {
		id, ok = local.ParseID(runID)
	}
	if !ok {
		return id, number, nil
	}
	return id, number, d.runs[id]
}

func (s questions) Get(_ context.Context, questionID string) (*engine.Question, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, number, record := s.find(questionID)
	if record == nil || record.question(number) == nil {
		return nil, engine.ErrNotFound
	}
	return record.question(number), nil
}

func (s questions) List(_ context.Context, limit int, cursor string) (page []*engine.Question, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after, err := local.ParseOpenCursor(cursor)
	if err != nil || limit <= 0 {
		return nil, "", err
	}
	end, _ := findOpen(s.open, after)
	begin := max(end-limit, 0)
	for _, key := range slices.Backward(s.open[begin:end]) {
		question := *s.runs[key.Run()].question(key.Number())
		question.State = nil
		page = append(page, &question)
	}
	if begin > 0 {
		next = s.open[begin].Cursor()
	}
	return page, next, nil
}

func (s questions) Count(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), nil
}
