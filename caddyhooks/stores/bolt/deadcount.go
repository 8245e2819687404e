package bolt

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The file has the number of deliveries that were given up, and it changes together with them: to count them would mean to
// read all of them, with their bodies. After the number there are those of each channel. If they make no sense,
// all are counted when the file is opened.

// deadCounts are how many deliveries were given up, by channel. Those of callbacks are under "". None of them is 0.
type deadCounts map[string]int

func (c deadCounts) add(channel string, n int) {
	if c[channel] += n; c[channel] == 0 {
		delete(c, channel)
	}
}

func (c deadCounts) sum() (sum int) {
	for _, n := range c {
		sum += n
	}
	return max(sum, 0)
}

func (c deadCounts) encode() []byte {
	data := binary.AppendUvarint(nil, uint64(c.sum()))
	for _, channel := range slices.Sorted(maps.Keys(c)) {
		data = protowire.AppendString(data, channel)
		data = binary.AppendUvarint(data, uint64(max(c[channel], 0)))
	}
	return data
}

// decodeDeadCounts reports false if the counts by channel are missing or make no sense.
func decodeDeadCounts(data []byte) (counts deadCounts, ok bool) {
	sum, n := binary.Uvarint(data)
	if n <= 0 {
		return nil, false
	}
	counts = make(deadCounts)
	for data = data[n:]; len(data) > 0; data = data[n:] {
		var channel string
		if channel, n = protowire.ConsumeString(data); n < 0 {
			return nil, false
		}
		data = data[n:]
		var count uint64
		if count, n = binary.Uvarint(data); n <= 0 || count > sum {
			return nil, false
		}
		counts.add(channel, int(count))
	}
	return counts, uint64(counts.sum()) == sum
}

// deadCountsOf reads the numbers, or counts.
func deadCountsOf(tx *bbolt.Tx) deadCounts {
	if counts, ok := decodeDeadCounts(tx.Bucket(metaBucket).Get(deadCountKey)); ok {
		return counts
	}
	counts := make(deadCounts)
	cursor := tx.Bucket(deadBucket).Cursor()
	for key, data := cursor.First(); key != nil; key, data = cursor.Next() {
		counts.add(channelOf(data), 1)
	}
	return counts
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
	d.dead.add(channel, n)
	t.undo = append(t.undo, func() { d.dead.add(channel, -n) })
	t.put(metaBucket, deadCountKey, d.dead.encode())
}

func (s deliveries) Count(context.Context) (pending, dead int, err error) {
	if err := s.whenBroken(); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outbox.Size().Pending, s.dead.sum(), nil
}

func (s deliveries) CountByChannel(context.Context) (map[string]engine.Undelivered, error) {
	if err := s.whenBroken(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return local.Undelivered(s.outbox.CountByChannel(), s.dead), nil
}
