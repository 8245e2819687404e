package bolt

import (
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// storedQuestion is a question as its record has it. Until follows from the rest.
type storedQuestion struct {
	engine.Question
	answered bool
	answer   engine.Answer
}

func questionFields(q *storedQuestion) []any {
	return []any{
		(*string)(&q.Kind), &q.Text, &q.Choices, &q.Channel, &q.To, &q.By, &q.For, &q.Else, &q.State, &q.AskedAt,
		&q.answered, &q.answer.Text, &q.answer.Error, &q.answer.By, &q.answer.Via, &q.answer.At, &q.answer.Usage,
	}
}

// questionKey is where a question is kept.
func questionKey(run uuid.UUID, number int) []byte {
	return append(run[:len(run):len(run)], byte(number))
}

func encodeQuestion(q *engine.Question) []byte {
	stored := storedQuestion{Question: *q, answered: q.Answer != nil}
	if stored.answered {
		stored.answer = *q.Answer
	}
	return encodeFields(newEncoder(q.Size()), questionFields(&stored))
}

func decodeQuestion(key, data []byte) (*engine.Question, error) {
	if len(key) != len(uuid.UUID{})+1 {
		return nil, errDamaged
	}
	var stored storedQuestion
	if err := decodeFields(key, data, questionFields(&stored)); err != nil {
		return nil, err
	}
	q := &stored.Question
	q.RunID, q.Number = uuid.UUID(key[:len(key)-1]).String(), int(key[len(key)-1])
	if stored.answered {
		q.Answer = &stored.answer
	}
	if q.For > 0 && !q.AskedAt.IsZero() {
		q.Until = q.AskedAt.Add(q.For)
	}
	return q, nil
}

// storedAside is why an unfinished run with questions is put aside, if it is.
type storedAside struct {
	is bool
	local.Aside
	within time.Duration // it was put aside for no longer than that
	run    []byte        // the record of the run, if it was ever put aside
}

func asideFields(a *storedAside) []any {
	return []any{&a.is, &a.Question, &a.Asked, &a.Due, &a.For, &a.within, &a.run}
}

const asideRun protowire.Number = 7 // the place of run in asideFields

// asideRunOf returns the record of a run that is in its record in askedBucket, nil if it is not there.
func asideRunOf(asked []byte) (run []byte) {
	_ = uncheckedFieldsOf(asked, func(n protowire.Number, f field) bool {
		if n == asideRun {
			run = f.bytes
		}
		return n != asideRun
	})
	return run
}

// unfinishedData returns the record of a run that has not ended, nil if it is not there.
func unfinishedData(tx *bbolt.Tx, id []byte) []byte {
	if data := tx.Bucket(runsBucket).Get(id); data != nil {
		return data
	}
	return asideRunOf(tx.Bucket(askedBucket).Get(id))
}

// restoreAsked puts an unfinished run aside again, if the record says so.
func (c *contents) restoreAsked(id uuid.UUID, data []byte) error {
	var stored storedAside
	if err := decodeFields(id[:], data, asideFields(&stored)[:asideRun-1]); err != nil {
		return errDamaged
	}
	if !c.queue.Has(id) {
		return nil
	}
	c.queue.SetAsked(id)
	if stored.is {
		stored.Asked = c.clock.Past(stored.Asked)
		if !stored.Due.IsZero() {
			stored.Due = c.clock.Due(stored.Due, stored.within)
		}
		c.queue.SetAside(id, stored.Aside)
	}
	return nil
}
