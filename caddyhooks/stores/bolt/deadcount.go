package bolt

import (
	"context"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The file has the number of deliveries that were given up, and it changes together with them: to count them would mean to
// read all of them, with their bodies.

// deadCountOf reads the number. A file of before there was one is counted, once.
func deadCountOf(tx *bbolt.Tx) (dead int) {
	if count, n := binary.Uvarint(tx.Bucket(metaBucket).Get(deadCountKey)); n > 0 {
		return int(count)
	}
	cursor := tx.Bucket(deadBucket).Cursor()
	for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
		dead++
	}
	return dead
}

// putDead keeps a delivery that was given up.
func (d *Database) putDead(t *transaction, key local.DeliveryKey, data []byte) {
	if t.bucket(deadBucket).Get(key[:]) == nil {
		d.countDead(t, 1)
	}
	t.put(deadBucket, key[:], data)
}

// deleteDead forgets a delivery that was given up, if there is one with this key.
func (d *Database) deleteDead(t *transaction, key []byte) {
	if t.bucket(deadBucket).Get(key) != nil {
		d.countDead(t, -1)
		t.delete(deadBucket, key)
	}
}

func (d *Database) countDead(t *transaction, n int) {
	d.dead += n
	t.undo = append(t.undo, func() { d.dead -= n })
	t.put(metaBucket, deadCountKey, binary.AppendUvarint(nil, uint64(max(d.dead, 0))))
}

func (s deliveries) Count(context.Context) (pending, dead int, err error) {
	if err := s.whenBroken(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outbox.Size().Pending, max(s.dead, 0), nil
}
