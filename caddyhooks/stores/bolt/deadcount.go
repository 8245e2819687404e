package bolt

import (
	"context"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/counts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The file has the number of deliveries that were given up, and it changes together with them: to count them would mean to
// read all of them, with their bodies. After the number there are those of each channel. If they make no sense,
// all are counted when the file is opened.

// deadCountsOf reads the numbers, or counts.
func deadCountsOf(tx *bbolt.Tx) counts.ByChannel {
	if known, ok := counts.Decode(tx.Bucket(metaBucket).Get(deadCountKey)); ok {
		return known
	}
	counted := make(counts.ByChannel)
	cursor := tx.Bucket(deadBucket).Cursor()
	for key, data := cursor.First(); key != nil; key, data = cursor.Next() {
		counted.Add(channelOf(data), 1)
	}
	return counted
}

// channelOf is the channel of a delivery. The body, which may be long, is after it and is not read.
func channelOf(data []byte) (channel string) {
	_ = uncheckedFieldsOf(data, func(n protowire.Number, f field) bool {
		if n == deliveryChannel {
			channel = f.text()
		}
		return n < deliveryChannel
	})
	return channel
}

// putDead keeps a delivery that was given up.
func (d *Database) putDead(t *transaction, key local.DeliveryKey, data []byte) {
	if t.bucket(deadBucket).Get(key[:]) == nil {
		d.countDead(t, channelOf(data), 1)
	}
	t.put(deadBucket, key[:], data)
}

// deleteDead forgets a delivery that was given up, if there is one with this key.
func (d *Database) deleteDead(t *transaction, key []byte) {
	if data := t.bucket(deadBucket).Get(key); data != nil {
		d.countDead(t, channelOf(data), -1)
		t.delete(deadBucket, key)
	}
}

func (d *Database) countDead(t *transaction, channel string, n int) {
	d.dead.Add(channel, n)
	t.undo = append(t.undo, func() { d.dead.Add(channel, -n) })
	t.put(metaBucket, deadCountKey, d.dead.Encode())
}

func (s deliveries) Count(context.Context) (pending, dead int, err error) {
	if err := s.whenBroken(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outbox.Size().Pending, s.dead.Sum(), nil
}

func (s deliveries) CountByChannel(context.Context) (map[string]engine.Undelivered, error) {
	if err := s.whenBroken(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return local.Undelivered(s.outbox.CountByChannel(), s.dead), nil
}
