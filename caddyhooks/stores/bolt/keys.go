package bolt

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

const keySize = len(engine.Key{}.ID)

// firstWithKey returns the run that a key was sent with, or nil.
func firstWithKey(t *transaction, key [32]byte) *engine.Run {
	return decodeFirst(key, t.bucket(keysBucket).Get(key[:]))
}

// decodeFirst reads what is noted with a key, nil if that is nothing or damaged.
func decodeFirst(key [32]byte, value []byte) *engine.Run {
	if len(value) < len(uuid.UUID{}) {
		return nil
	}
	id := uuid.UUID(value[:len(uuid.UUID{})])
	record, err := decodeRecord(key[:], id.String(), value[len(id):])
	if err != nil || record.Run.Key == nil {
		return nil
	}
	record.Run.Key.ID = key
	return record.Run
}

// repeats is the error for a run whose request was accepted before.
func repeats(t *transaction, run *engine.Run, limits engine.Limits) error {
	if run.Replay != nil {
		if first := firstWithKey(t, run.Replay.ID); first != nil && !limits.KeyExpired(first.AcceptedAt, t.now) {
			return &engine.DuplicateError{First: first, SameBody: true}
		}
	}
	if run.Key != nil {
		if first := firstWithKey(t, run.Key.ID); first != nil && !limits.KeyExpired(first.AcceptedAt, t.now) {
			return run.Repeats(first)
		}
	}
	return nil
}

// putKeys notes the keys of a run, and forgets the oldest if there are too many. What a repeated request is answered with is
// noted with each, since the run may be pruned earlier.
func (d *Database) putKeys(t *transaction, id uuid.UUID, run *engine.Run, limits engine.Limits) {
	var keys []byte // a run has one or two
	if run.Key != nil {
		d.putKey(t, id, run, run.Key)
		keys = run.Key.ID[:]
	}
	if run.Replay != nil && (run.Key == nil || run.Key.ID != run.Replay.ID) {
		d.putKey(t, id, run, run.Replay)
		keys = slices.Concat(keys, run.Replay.ID[:])
	}
	if keys == nil {
		return
	}
	t.append(keyRunsBucket, id[:], keys)
	d.countKeys(t, len(keys)/keySize)
	for limits.Keys > 0 && d.keyCount > limits.Keys {
		oldest, _ := t.bucket(keyRunsBucket).Cursor().First()
		if oldest == nil {
			break // the number in the file was wrong
		}
		d.deleteKeys(t, uuid.UUID(oldest))
	}
}

// putKey notes a key of a run.
func (d *Database) putKey(t *transaction, id uuid.UUID, run *engine.Run, key *engine.Key) {
	e := newEncoder(128)
	e.text(runChat, run.ChatID)
	e.text(runAction, string(run.Action))
	e.flag(runSync, run.Sync)
	e.time(runAcceptedAt, run.AcceptedAt)
	e.bytes(runKeyBody, key.Body[:])
	e.siblings(run.Together)
	if old := t.bucket(keysBucket).Get(key.ID[:]); len(old) >= len(id) {
		d.deleteKeys(t, uuid.UUID(old[:len(id)]))
	}
	t.put(keysBucket, key.ID[:], append(id[:len(id):len(id)], seal(key.ID[:], e.data)...))
}

// deleteKeys forgets the keys of a run, if it still has them.
func (d *Database) deleteKeys(t *transaction, id uuid.UUID) {
	keys := slices.Clone(t.bucket(keyRunsBucket).Get(id[:]))
	if keys == nil {
		return
	}
	t.delete(keyRunsBucket, id[:])
	for key := range slices.Chunk(keys, keySize) {
		t.delete(keysBucket, key)
		d.countKeys(t, -1)
	}
}

func (d *Database) countKeys(t *transaction, n int) {
	d.keyCount += n
	t.undo = append(t.undo, func() { d.keyCount -= n })
	t.put(metaBucket, keyCountKey, binary.AppendUvarint(nil, uint64(d.keyCount)))
}

func (d *Database) pruneKeys(t *transaction, now time.Time, limits engine.Limits) (more bool) {
	if limits.KeyAge == 0 {
		return false
	}
	for range local.PruneStep {
		id, key := t.bucket(keyRunsBucket).Cursor().First()
		if id == nil {
			return false
		}
		// Its id may be ahead of the clock, if that was set back, and says nothing then.
		if first := firstWithKey(t, [32]byte(key)); first != nil && !limits.KeyExpired(first.AcceptedAt, now) {
			return false
		}
		d.deleteKeys(t, uuid.UUID(id))
	}
	return true
}

// passGates takes runs that have their ids through their gates. Those that are left out are not among the runs of the addition any more.
func (s runs) passGates(t *transaction, a *addition, refuse error) (err error) {
	checked := local.Gates{Now: t.now, State: func(id [32]byte) gate.State { return gates.Get(t.tx, id) }, Fate: func(runID string) gate.Fate {
		id, _ := local.ParseID(runID)
		if s.queue.Has(id) {
			return gate.Unfinished
		}
		if record, err := decodeRun(id, t.bucket(endedBucket).Get(id[:])); err == nil && record.Outcome.ForgetsKey() {
			return gate.CameToNothing
		}
		return gate.Ended
	}}
	if a.passage, err = checked.Pass(a.runs, refuse); err != nil || a.passage.LeftOut == nil {
		return err
	}
	a.runs, a.ids = a.passage.Request(a.runs), local.Passed(&a.passage, a.ids)
	a.encoded = make([]encodedRun, len(a.runs))
	return nil
}

// EachGate lists the states of all gates.
func (s *store) EachGate(ctx context.Context, each func(id [32]byte, state gate.State)) error {
	return s.view(ctx, func(tx *bbolt.Tx) error { return gates.Each(tx, each) })
}

// EachKey lists all keys, each with the run that it was first sent with.
func (s *store) EachKey(ctx context.Context, each func(key engine.Key, first *engine.Run)) error {
	return s.view(ctx, func(tx *bbolt.Tx) error {
		return tx.Bucket(keysBucket).ForEach(func(key, value []byte) error {
			if first := decodeFirst([32]byte(key), value); first != nil {
				each(*first.Key, first)
			}
			return nil
		})
	})
}
