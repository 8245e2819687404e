package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

type questions struct{ *store }

func (s *store) Questions() engine.Questions { return questions{s} }

func (s questions) Ask(ctx context.Context, claim *engine.Claim, question *engine.Question, added ...*engine.Delivery) error {
	return s.committer.do(ctx, &change{size: sizeOf(question, added), apply: func(t *transaction) error {
		id, holds := s.queue.Holds(claim)
		if !holds || claim.Token == "" {
			return engine.ErrClaimLost
		}
		if _, err := s.ask(t, id, question); err != nil {
			return err
		}
		s.putAsked(t, id)
		s.addDeliveries(t, id, created(added, t.now))
		return nil
	}})
}

// sizeOf is about how many bytes a question and deliveries take.
func sizeOf(question *engine.Question, added []*engine.Delivery) (n int) {
	if question != nil {
		n = question.Size()
	}
	for _, d := range added {
		n += len(d.Body)
	}
	return n
}

// ask stores a question of an unfinished run.
func (d *Database) ask(t *transaction, id uuid.UUID, question *engine.Question) (*engine.Question, error) {
	known, previous, err := questionsAround(t, id, question.Number)
	if err != nil {
		return nil, err
	}
	asked, err := local.AskedBy(id.String(), question, known, previous, t.now)
	if err == nil {
		d.putQuestion(t, id, known, asked)
	}
	return asked, err
}

// questionsAround returns the question of a run with a number and the one before it, each nil if there is none.
func questionsAround(t *transaction, id uuid.UUID, number int) (known, previous *engine.Question, err error) {
	if known, err = readQuestion(t.tx, id, number); err == nil && known == nil {
		previous, err = readQuestion(t.tx, id, number-1)
	}
	return known, previous, err
}

// readQuestion returns a question, nil if there is none.
func readQuestion(tx *bbolt.Tx, id uuid.UUID, number int) (*engine.Question, error) {
	key := questionKey(id, number)
	data := tx.Bucket(questionsBucket).Get(key)
	if data == nil || number < 0 || number >= engine.MaxQuestions {
		return nil, nil
	}
	question, err := decodeQuestion(key, data)
	if err != nil {
		return nil, fmt.Errorf("reading question %d of run %s: %w", number, id, err)
	}
	return question, nil
}

// questionsOf returns the questions of a run, in their order.
func questionsOf(tx *bbolt.Tx, id uuid.UUID) (all []*engine.Question, err error) {
	err = eachWithPrefix(tx.Bucket(questionsBucket), id[:], func(key, data []byte) error {
		question, err := decodeQuestion(key, data)
		if err != nil {
			return fmt.Errorf("reading a question of run %s: %w", id, err)
		}
		all = append(all, question)
		return nil
	})
	return all, err
}

// putQuestion puts a question in the place of the known one, which is nil if there is none. Who does so for an unfinished run calls
// putAsked as well.
func (d *Database) putQuestion(t *transaction, id uuid.UUID, known, question *engine.Question) {
	key := questionKey(id, question.Number)
	t.bucket(questionsBucket).FillPercent = questionsFill
	t.put(questionsBucket, key, seal(key, encodeQuestion(question)))
	if local.IsOpenForPeople(known) {
		open := local.OpenKeyOf(id, known)
		t.delete(openBucket, open[:])
		d.countOpen(t, -1)
	}
	if local.IsOpenForPeople(question) {
		open := local.OpenKeyOf(id, question)
		t.append(openBucket, open[:], nil)
		d.countOpen(t, 1)
	}
	if d.queue.Has(id) {
		t.undo = append(t.undo, d.queue.SetAsked(id))
	}
}

// questionsFill is how full pages of questions are made. Most questions are newer than all others, and get longer by their answer.
const questionsFill = 0.75

func (d *Database) countOpen(t *transaction, n int) {
	d.openQuestions += n
	t.undo = append(t.undo, func() { d.openQuestions -= n })
}

// putAsked writes down that an unfinished run has questions, and whether it is put aside. The record of a run that is put aside moves out
// of runsBucket for good: the larger that bucket is, the more pages have to be written to accept other runs.
func (d *Database) putAsked(t *transaction, id uuid.UUID) {
	stored := storedAside{is: d.queue.IsAside(id), run: asideRunOf(t.bucket(askedBucket).Get(id[:]))}
	moves := stored.is && stored.run == nil
	if moves {
		stored.run = t.bucket(runsBucket).Get(id[:])
	}
	if stored.is {
		stored.Aside, _ = d.queue.AsideOf(id)
		stored.Asked = t.now.Add(stored.Asked.Sub(t.steady))
		if !stored.Due.IsZero() {
			stored.within = stored.Due.Sub(t.steady)
			stored.Due = t.now.Add(stored.within)
		}
	}
	e := newEncoder(64 + len(stored.For) + len(stored.run))
	t.append(askedBucket, id[:], seal(id[:], encodeFields(e, asideFields(&stored))))
	if moves {
		t.delete(runsBucket, id[:])
	}
}

// closeQuestions closes the questions of a run that ends at a time, as far as they can be read.
func (d *Database) closeQuestions(t *transaction, id uuid.UUID, now time.Time) {
	for _, one := range copyQuestions(t, id) {
		if question, err := decodeQuestion(one[0], one[1]); err == nil {
			d.putQuestion(t, id, question, question.Closed(now))
		}
	}
	t.delete(askedBucket, id[:])
}

// putAside puts a run aside for a question, or back to the head of its chat if that has an answer.
func (s runs) putAside(t *transaction, claim *engine.Claim, end engine.End) error {
	id, ok := s.queue.Holds(claim)
	if !ok || claim.Token == "" {
		return s.repeated(t, id, claim)
	}
	question, err := s.ask(t, id, end.Question)
	if err != nil {
		return err
	}
	s.takeBackStart(t, id, claim.Attempt)
	if _, waited := s.queue.WaitOf(id); waited {
		t.delete(waitsBucket, id[:])
	}
	t.nameSession(claim.Run.ChatID, end.Session)
	t.undo = append(t.undo, s.queue.PutAside(id, question, end, s.clock.Past(question.AskedAt), t.steady))
	s.putAsked(t, id)
	s.addDeliveries(t, id, created(end.Deliveries, t.now))
	return nil
}

// created are new deliveries as they are kept.
func created(added []*engine.Delivery, now time.Time) (all []*engine.Delivery) {
	for _, d := range added {
		all = append(all, d.Created(now))
	}
	return all
}

func (s questions) Answer(ctx context.Context, questionID string, answer engine.Answer, added ...*engine.Delivery) (*engine.Question,
	error) {
	id, number, ok := parseQuestionID(questionID)
	if !ok {
		return nil, engine.ErrNotFound
	}
	var question *engine.Question
	size := sizeOf(&engine.Question{Answer: &answer}, added)
	err := s.committer.do(ctx, &change{size: size, apply: func(t *transaction) error {
		known, previous, err := questionsAround(t, id, number)
		if err != nil {
			return err
		}
		if question, err = local.AnsweredWith(id.String(), number, answer, known, previous, s.queue.Has(id), t.now); err != nil {
			return err
		}
		s.putQuestion(t, id, known, question)
		t.undo = append(t.undo, s.queue.Answered(id, number))
		s.putAsked(t, id)
		s.addDeliveries(t, id, created(added, t.now))
		t.after = append(t.after, s.nodes.TellClaimable) // for those who look for the answer itself
		return nil
	}})
	if err != nil && !errors.Is(err, engine.ErrAnswered) {
		return nil, err // it may still be under way
	}
	return question, err
}

func parseQuestionID(questionID string) (id uuid.UUID, number int, ok bool) {
	runID, number, ok := engine.ParseQuestionID(questionID)
	if ok {
		id, ok = local.ParseID(runID)
	}
	return id, number, ok
}

func (s questions) Get(ctx context.Context, questionID string) (question *engine.Question, err error) {
	id, number, ok := parseQuestionID(questionID)
	if !ok {
		return nil, engine.ErrNotFound
	}
	err = s.view(ctx, func(tx *bbolt.Tx) (err error) {
		if question, err = readQuestion(tx, id, number); err == nil && question == nil {
			err = engine.ErrNotFound
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return question, nil
}

func (s questions) List(ctx context.Context, limit int, cursor string) (page []*engine.Question, next string, err error) {
	after, err := local.ParseOpenCursor(cursor)
	if err != nil || limit <= 0 {
		return nil, "", err
	}
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		newest := newestFirst(tx, after[:], openBucket)
		for key, _ := newest(); key != nil; key, _ = newest() {
			if len(page) == limit {
				return nil
			}
			at := local.OpenKey(key)
			next = at.Cursor()
			question, err := readQuestion(tx, at.Run(), at.Number())
			if err != nil {
				return err
			}
			if question != nil {
				question.State = nil
				page = append(page, question)
			}
		}
		next = ""
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

func (s questions) Count(context.Context) (int, error) {
	if err := s.whenBroken(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openQuestions, nil
}

// storedQuestions are copies of the records of questions, by key, to be read when the transaction is over.
type storedQuestions [][2][]byte

func copyQuestions(t *transaction, id uuid.UUID) (all storedQuestions) {
	_ = eachWithPrefix(t.bucket(questionsBucket), id[:], func(key, data []byte) error {
		all = append(all, [2][]byte{bytes.Clone(key), bytes.Clone(data)})
		return nil
	})
	return all
}

func (s storedQuestions) read() (all []*engine.Question, err error) {
	for _, one := range s {
		question, err := decodeQuestion(one[0], one[1])
		if err != nil {
			return nil, err
		}
		all = append(all, question)
	}
	return all, nil
}
