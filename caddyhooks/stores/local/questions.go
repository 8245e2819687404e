package local

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// AskedBy is a question of a run as a store keeps it from now on. known is what the store has under its number, and previous the question
// with the number before that; both are nil if there is none.
func AskedBy(runID string, question, known, previous *engine.Question, now time.Time) (*engine.Question, error) {
	if known == nil && !isNext(question.Number, previous) || question.Number >= engine.MaxQuestions {
		return nil, fmt.Errorf("run %s cannot ask question %d now", runID, question.Number)
	}
	asked := question.Asked(known, now)
	asked.RunID = runID
	return asked, nil
}

// AnsweredWith is a question as a store keeps it when it is answered. For known and previous see AskedBy. With ErrAnswered it is the
// known one.
func AnsweredWith(runID string, number int, answer engine.Answer, known, previous *engine.Question, unfinished bool,
	now time.Time) (*engine.Question, error) {
	answered := engine.Question{RunID: runID, Number: number}
	switch {
	case known != nil && known.Answer != nil:
		return known, engine.ErrAnswered
	case known != nil:
		answered = *known
	case !unfinished || !isNext(number, previous):
		return nil, engine.ErrNotFound
	}
	answer.At = now
	answered.Answer = &answer
	return &answered, nil
}

// isNext reports whether a number is that of the next question.
func isNext(number int, previous *engine.Question) bool {
	return number == 0 || previous != nil && !previous.AskedAt.IsZero()
}

// IsOpenForPeople reports whether a person has to answer a question.
func IsOpenForPeople(q *engine.Question) bool {
	return q != nil && q.Answer == nil && q.Kind.ForPeople()
}

// OpenKey is the place of an open question among all of them: when it was asked, its run and its number.
type OpenKey [25]byte

// OpenKeyOf is the place of a question.
func OpenKeyOf(run uuid.UUID, q *engine.Question) (key OpenKey) {
	binary.BigEndian.PutUint64(key[:8], uint64(max(q.AskedAt.UnixNano(), 0)))
	copy(key[8:], run[:])
	key[24] = byte(q.Number)
	return key
}

// Run is the id of the question's run.
func (k OpenKey) Run() uuid.UUID { return uuid.UUID(k[8:24]) }

// Number is the question's number in its run.
func (k OpenKey) Number() int { return int(k[24]) }

// Cursor names the place for whoever asks for the page that begins after it.
func (k OpenKey) Cursor() string { return hex.EncodeToString(k[:]) }

// ParseOpenCursor is the reverse of Cursor. "" is behind all places.
func ParseOpenCursor(cursor string) (key OpenKey, err error) {
	if cursor == "" {
		for i := range key {
			key[i] = 0xff
		}
		return key, nil
	}
	if len(cursor) != hex.EncodedLen(len(key)) {
		return key, engine.ErrCursor
	}
	if _, err := hex.Decode(key[:], []byte(cursor)); err != nil {
		return key, engine.ErrCursor
	}
	return key, nil
}
