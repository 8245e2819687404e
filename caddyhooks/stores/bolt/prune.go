package bolt

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/ledger"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Prune forgets what is old, and at the end of a pass writes down which pages of the file are free.
func (s *store) Prune(ctx context.Context, limits engine.Limits) (bool, error) {
	if !s.pruning.TryLock() {
		return false, nil // another node is at it
	}
	defer s.pruning.Unlock()
	now := s.clock.Now()
	var old []uuid.UUID
	var next []byte
	var input *oldInputs
	var oldSessions oldSessions
	var more bool
	// Looking for them can take a while, when they are no longer in the memory of the system: nobody waits for it.
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		moreRuns, moreInputs, moreSessions := false, false, false
		if limits.Retention > 0 {
			old, next, moreRuns = oldRuns(tx, s.pruneFrom, now, now.Add(-limits.Retention))
			oldSessions, moreSessions = findOldSessions(tx, now.Add(-limits.Retention))
		}
		input, moreInputs = findOldInputs(tx, now, limits)
		more = moreRuns || moreInputs || moreSessions
		return nil
	})
	if err != nil {
		return false, err
	}
	s.pruneFrom = next
	err = s.committer.do(ctx, &change{apply: func(t *transaction) error {
		more = s.pruneKeys(t, now, limits) || more
		input.forget(s.Database, t)
		oldSessions.forget(t)
		forgotten, err := ledger.Prune(t.tx, now, local.PruneStep)
		if more = more || forgotten == local.PruneStep; forgotten > 0 || err != nil {
			t.note(err)
		}
		if s.pruneGatesFrom, forgotten, err = gates.Prune(t.tx, now, s.pruneGatesFrom, pruneLooksAt); forgotten > 0 || err != nil {
			t.note(err)
		}
		more = more || s.pruneGatesFrom != nil
		for _, id := range old {
			if !hasPrefix(t.bucket(outboxBucket), id[:]) { // one may have been sent again since
				s.pruneRun(t, id)
			}
		}
		if !more && s.db.NoFreelistSync {
			t.written, t.writeFreelist = true, true
		}
		return nil
	}})
	if err != nil {
		return false, err
	}
	return more, nil
}

// isYoung reports whether a run was accepted after the given time. While the clock is behind what it was once, ids are
// ahead of it, and say nothing about that.
func isYoung(id []byte, now, after time.Time) bool {
	at := local.IDTime(uuid.UUID(id))
	return at.After(after) && !at.After(now)
}

// How much is looked at in one step of pruning, and how much is deleted.
const (
	pruneLooksAt = 5 * local.PruneStep
	pruneDeletes = 4 << 20 // bytes
)

// oldRuns goes over the runs that have ended, from the oldest on, a step at a time, and says where the next step begins, nil
// at the beginning. A run cannot have ended before it was accepted, so it need not look at those that are too young.
func oldRuns(tx *bbolt.Tx, from []byte, now, before time.Time) (old []uuid.UUID, next []byte, more bool) {
	looked, size := 0, 0
	cursor := tx.Bucket(endedBucket).Cursor()
	id, data := cursor.Seek(from)
	for ; id != nil && looked < pruneLooksAt && len(old) < local.PruneStep && size < pruneDeletes; id, data = cursor.Next() {
		if isYoung(id, now, before) {
			id = nil
			break
		}
		looked++
		if endedBefore(data, before) && !hasPrefix(tx.Bucket(outboxBucket), id) && !hasYoungDead(tx, id, before) {
			old = append(old, uuid.UUID(id))
			size += len(data) + len(tx.Bucket(inputBucket).Get(id))
		}
	}
	return old, slices.Clone(id), id != nil
}

func endedBefore(data []byte, before time.Time) (old bool) {
	err := uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		if n == endFinishedAt {
			old = !f.time().After(before)
		}
		return true
	})
	return old && err == nil
}

// hasYoungDead reports whether a delivery of a run was given up lately. Somebody may want to see it.
func hasYoungDead(tx *bbolt.Tx, id []byte, before time.Time) (young bool) {
	_ = eachWithPrefix(tx.Bucket(deadBucket), id, func(_, data []byte) error {
		return uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
			young = young || n == deliveryTriedAt && f.time().After(before)
			return true
		})
	})
	return young
}

// pruneRun forgets a run, its input, its questions and its deliveries.
func (d *Database) pruneRun(t *transaction, id uuid.UUID) {
	if run, ok := readEnded(t.tx, id); ok {
		t.unindex(&run)
		t.removeTurn(run.chat, id)
	}
	t.delete(endedBucket, id[:])
	d.forgetInput(t, id)
	t.delete(againBucket, id[:])
	for _, bucket := range [][]byte{settledBucket, questionsBucket} {
		for _, key := range keysWithPrefix(t.bucket(bucket), id[:]) {
			t.delete(bucket, key)
		}
	}
	for _, key := range keysWithPrefix(t.bucket(deadBucket), id[:]) {
		d.deleteDead(t, key)
	}
}

func keysWithPrefix(b *bbolt.Bucket, prefix []byte) (keys [][]byte) {
	_ = eachWithPrefix(b, prefix, func(key, _ []byte) error {
		keys = append(keys, slices.Clone(key))
		return nil
	})
	return keys
}
