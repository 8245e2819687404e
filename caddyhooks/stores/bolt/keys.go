package bolt

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// firstWithKey returns the run that a key was sent with, or nil.
func firstWithKey(t *transaction, key [32]byte) *engine.Run {
	value := t.bucket(keysBucket).Get(key[:])
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

// putKey notes the key of a run, and forgets the oldest if there are too many. What a repeated request is answered with is
// noted with it, since the run may be pruned earlier.
func (d *Database) putKey(t *transaction, id uuid.UUID, run *engine.Run, limits engine.Limits) {
	e := newEncoder(128)
	e.text(runChat, run.ChatID)
	e.text(runAction, string(run.Action))
	e.flag(runSync, run.Sync)
	e.time(runAcceptedAt, run.AcceptedAt)
	e.bytes(runKeyBody, run.Key.Body[:])
	if old := t.bucket(keysBucket).Get(run.Key.ID[:]); len(old) >= len(id) {
		d.deleteKey(t, uuid.UUID(old[:len(id)]), run.Key.ID[:])
	}
	t.put(keysBucket, run.Key.ID[:], append(id[:len(id):len(id)], seal(run.Key.ID[:], e.data)...))
	t.append(keyRunsBucket, id[:], run.Key.ID[:])
	d.countKeys(t, 1)
	for limits.Keys > 0 && d.keyCount > limits.Keys {
		oldest, key := t.bucket(keyRunsBucket).Cursor().First()
		if oldest == nil {
			break // the number in the file was wrong
		}
		d.deleteKey(t, uuid.UUID(oldest), key)
	}
}

// deleteKey forgets the key of a run, if it is still the run's.
func (d *Database) deleteKey(t *transaction, id uuid.UUID, key []byte) {
	if t.bucket(keyRunsBucket).Get(id[:]) == nil {
		return
	}
	key = slices.Clone(key)
	t.delete(keyRunsBucket, id[:])
	t.delete(keysBucket, key)
	d.countKeys(t, -1)
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
		d.deleteKey(t, uuid.UUID(id), key)
	}
	return true
}
