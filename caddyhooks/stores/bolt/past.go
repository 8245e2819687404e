package bolt

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/walks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Runs that later turns of their chat recall have an entry by chat that is written when they end. The index of all runs by chat would
// lead to them as well, but a list looks at all runs that are not in it yet, and at all of its segments: too much for every turn.
// Runs without a memory, which are most of all, cost nothing.

// turnKey is the key of a run that later turns of their chat recall.
func turnKey(chat string, id uuid.UUID) []byte {
	return append(append(make([]byte, 0, chatKeySize+len(id)), chatKey(chat)...), id[:]...)
}

// addTurn makes later turns of the chat recall a run.
func (t *transaction) addTurn(chat string, id uuid.UUID) {
	t.put(turnsBucket, turnKey(chat, id), nil)
}

// removeTurn forgets the entry of a run, if it has one.
func (t *transaction) removeTurn(chat string, id uuid.UUID) {
	t.delete(turnsBucket, turnKey(chat, id))
}

func (s runs) Past(ctx context.Context, chat string, turns, bytes int) ([]*engine.Record, error) {
	var past []*engine.Record
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		walk := walks.Over(tx, turnsBucket, chatKey(chat), &local.IDRange{Descending: true})
		walk.Seek(uuid.Max[:])
		for misses, left := 0, bytes; walk.Head() != nil && len(past) < turns && left >= 0 && misses <= local.PastMisses; walk.Next() {
			record, err := readPast(tx, uuid.UUID(walk.Head()))
			if err != nil || record.Kept == engine.KeptNothing || record.Run.ChatID != chat || !record.Run.IsRecalled(record.Status) {
				misses++ // one that is damaged must not end the memory of its chat
				continue
			}
			left -= len(record.Run.Message) + len(record.Outcome.Text)
			turn := local.PastQuery.Listed(record)
			turn.Followers = followersOf(tx, uuid.UUID(walk.Head()))
			for _, follower := range turn.Followers {
				left -= len(follower.Message)
			}
			past = append(past, turn)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return past, nil
}

// followersOf reads the runs that were folded into a run that has ended, with their input. Those that are forgotten or
// damaged are passed over.
func followersOf(tx *bbolt.Tx, leader uuid.UUID) (followers []*engine.Run) {
	ended := tx.Bucket(endedBucket)
	_ = uncheckedFieldsOf(ended.Get(leader[:]), func(n protowire.Number, f field) bool {
		if n != endFollower || len(f.bytes) != len(uuid.UUID{}) {
			return true
		}
		id := uuid.UUID(f.bytes)
		if record, err := decodeRun(id, ended.Get(id[:])); err == nil && readInput(tx, id, record) == nil {
			followers = append(followers, record.Run)
		}
		return true
	})
	return followers
}

var errForgotten = errors.New("the run is forgotten, or its input")

// readPast reads a run that has ended, with its input.
func readPast(tx *bbolt.Tx, id uuid.UUID) (*engine.Record, error) {
	data := tx.Bucket(endedBucket).Get(id[:])
	if data == nil || tx.Bucket(inputBucket).Get(id[:]) == nil {
		return nil, errForgotten
	}
	record, err := decodeRun(id, data)
	if err == nil {
		_, err = complete(tx, id, record, data, local.PastQuery)
	}
	return record, err
}
