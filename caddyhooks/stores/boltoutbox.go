package stores

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// deliveryKey is the id of a run and the index of one of its deliveries.
type deliveryKey [17]byte

func newDeliveryKey(run uuid.UUID, index int) (key deliveryKey) {
	copy(key[:], run[:])
	key[16] = byte(index)
	return key
}

func (k deliveryKey) run() uuid.UUID { return uuid.UUID(k[:16]) }
func (k deliveryKey) index() int     { return int(k[16]) }

func (s *boltStore) ClaimDeliveries(_ context.Context, now time.Time, n int) (due []*engine.Delivery, next time.Time, err error) {
	var taken []deliveryKey
	for len(taken) < n {
		key, ok := s.outbox.take(now)
		if !ok {
			break
		}
		taken = append(taken, key)
	}
	next = s.outbox.next()
	due, err = s.readTaken(taken)
	return due, next, err
}

func (s *boltStore) ClaimOverdue(_ context.Context, host string, before time.Time, n int) ([]*engine.Delivery, error) {
	return s.readTaken(s.outbox.overdue(host, before, n))
}

// readTaken reads deliveries that were taken from the outbox. If that fails then they are back in it. One that is damaged
// holds up no other: it is left out for a while, and the error says so if there is nothing else.
func (s *boltStore) readTaken(taken []deliveryKey) (read []*engine.Delivery, err error) {
	if len(taken) == 0 {
		return nil, nil
	}
	var gone, damaged []deliveryKey
	var unreadable error
	err = s.view(func(tx *bolt.Tx) error {
		for _, key := range taken {
			data := tx.Bucket(outboxBucket).Get(key[:])
			if data == nil {
				gone = append(gone, key) // it is not pending any more
				continue
			}
			d, err := decodeDelivery(key, data)
			if err != nil {
				unreadable = fmt.Errorf("reading a delivery of run %s: %w", key.run(), err)
				damaged = append(damaged, key)
				continue
			}
			read = append(read, d)
		}
		return nil
	})
	for _, key := range gone {
		s.outbox.remove(key)
	}
	if err != nil {
		for _, key := range taken {
			s.outbox.putBack(key)
		}
		return nil, err
	}
	for _, key := range damaged {
		s.outbox.putOff(key, time.Now().Add(damagedPause))
	}
	if len(read) == 0 {
		return nil, unreadable
	}
	return read, nil
}

// damagedPause is how long a delivery that cannot be read is left alone.
const damagedPause = time.Minute

func (s *boltStore) Throttle(to engine.Destination, atOnce int, until time.Time) {
	s.outbox.throttle(to, atOnce, until)
}

func (s *boltStore) SettleDelivery(_ context.Context, d *engine.Delivery) error {
	run, ok := parseID(d.RunID)
	if !ok {
		return engine.ErrNotFound
	}
	key := newDeliveryKey(run, d.Index)
	kept := *d
	if d.Status == engine.Delivered {
		kept.Body = ""
	}
	data := encodeDelivery(&kept)
	s.outbox.free(key)
	return s.committer.do(&change{size: len(data), apply: func(t *transaction) error {
		if t.bucket(outboxBucket).Get(key[:]) == nil {
			t.told = append(t.told, func() { s.outbox.remove(key) })
			if t.bucket(deadBucket).Get(key[:]) == nil && t.bucket(settledBucket).Get(key[:]) == nil {
				return engine.ErrNotFound
			}
			return nil // it was stored when the store said that it had failed
		}
		if kept.Status == engine.Pending {
			t.put(outboxBucket, key[:], seal(key[:], data))
			t.told = append(t.told, func() { s.outbox.add(kept.Destination(), key, kept.Due) })
			return nil
		}
		t.delete(outboxBucket, key[:])
		if kept.Status == engine.Dead {
			t.put(deadBucket, key[:], seal(key[:], data))
		} else {
			t.append(settledBucket, key[:], seal(key[:], data))
		}
		t.told = append(t.told, func() { s.outbox.remove(key) })
		return nil
	}})
}

// bucketsByStatus are where deliveries are kept.
var bucketsByStatus = map[engine.DeliveryStatus][]byte{
	engine.Pending:   outboxBucket,
	engine.Dead:      deadBucket,
	engine.Delivered: settledBucket,
}

// parseDeliveryID returns the key of a delivery.
func parseDeliveryID(id string) (key deliveryKey, err error) {
	runID, index, ok := engine.ParseDeliveryID(id)
	if !ok {
		return key, engine.ErrNotFound
	}
	return newDeliveryKey(uuid.MustParse(runID), index), nil
}

func (s *boltStore) Delivery(_ context.Context, id string) (d *engine.Delivery, err error) {
	key, err := parseDeliveryID(id)
	if err != nil {
		return nil, err
	}
	err = s.view(func(tx *bolt.Tx) error {
		for _, bucket := range bucketsByStatus {
			if data := tx.Bucket(bucket).Get(key[:]); data != nil {
				if d, err = decodeDelivery(key, data); err != nil {
					return fmt.Errorf("reading delivery %s: %w", id, err)
				}
				return nil
			}
		}
		return engine.ErrNotFound
	})
	return d, err
}

func (s *boltStore) RetryDelivery(_ context.Context, id string, now time.Time) (*engine.Delivery, error) {
	var d *engine.Delivery
	err := s.changeUnsent(id, func(t *transaction, key deliveryKey, found *engine.Delivery) error {
		if err := s.takeBack(t, key, found); err != nil {
			return err
		}
		d = found
		d.Status, d.Restart, d.Due = engine.Pending, d.Attempt, now
		t.delete(deadBucket, key[:])
		t.put(outboxBucket, key[:], seal(key[:], encodeDelivery(d)))
		to := d.Destination()
		t.after = append(t.after, func() { s.outbox.add(to, key, now) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (s *boltStore) DropDelivery(_ context.Context, id string) error {
	return s.changeUnsent(id, func(t *transaction, key deliveryKey, d *engine.Delivery) error {
		if err := s.takeBack(t, key, d); err != nil {
			return err
		}
		t.delete(outboxBucket, key[:])
		t.delete(deadBucket, key[:])
		return nil
	})
}

// takeBack keeps a delivery from being handed out while a change of it is written, unless it has been already.
func (s *boltStore) takeBack(t *transaction, key deliveryKey, d *engine.Delivery) error {
	if s.outbox.removeWaiting(key) {
		to, due := d.Destination(), d.Due
		t.undo = append(t.undo, func() { s.outbox.add(to, key, due) })
	} else if s.outbox.busy(key) {
		return engine.ErrUnderWay
	}
	return nil
}

// changeUnsent has edit change a delivery that is pending or dead.
func (s *boltStore) changeUnsent(id string, edit func(*transaction, deliveryKey, *engine.Delivery) error) error {
	key, err := parseDeliveryID(id)
	if err != nil {
		return err
	}
	return s.committer.do(&change{apply: func(t *transaction) error {
		data := t.bucket(deadBucket).Get(key[:])
		if data == nil {
			data = t.bucket(outboxBucket).Get(key[:])
		}
		if data == nil && t.bucket(settledBucket).Get(key[:]) != nil {
			return engine.ErrDelivered
		}
		if data == nil {
			return engine.ErrNotFound
		}
		d, err := decodeDelivery(key, data)
		if err != nil {
			return fmt.Errorf("reading delivery %s: %w", id, err)
		}
		return edit(t, key, d)
	}})
}

func (s *boltStore) ListDeliveries(_ context.Context, query engine.DeliveryQuery) (page []*engine.Delivery, next string, err error) {
	var cursor []byte
	if query.Cursor != "" {
		key, err := parseDeliveryID(query.Cursor)
		if err != nil {
			return nil, "", engine.ErrCursor
		}
		cursor = key[:]
	}
	if query.Limit <= 0 {
		return nil, "", nil
	}
	var buckets [][]byte
	for status, bucket := range bucketsByStatus {
		if query.Status == "" || query.Status == status {
			buckets = append(buckets, bucket)
		}
	}
	err = s.view(func(tx *bolt.Tx) error {
		newest := newestFirst(tx, cursor, buckets...)
		size := 0
		for looked := 0; ; looked++ {
			key, data := newest()
			if key == nil {
				next = ""
				return nil
			}
			if len(page) == query.Limit || looked == listLooksAt || size > listReads {
				return nil
			}
			size += len(data)
			d, err := decodeDelivery(deliveryKey(key), data)
			if err != nil {
				return fmt.Errorf("reading a delivery of run %s: %w", deliveryKey(key).run(), err)
			}
			next = engine.DeliveryID(d.RunID, d.Index)
			if query.Selects(d) {
				d.Body = ""
				page = append(page, d)
			}
		}
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// deliveriesOf returns the deliveries of a run, without their bodies.
func deliveriesOf(tx *bolt.Tx, run uuid.UUID) (all []*engine.Delivery, err error) {
	for _, bucket := range bucketsByStatus {
		err := eachWithPrefix(tx.Bucket(bucket), run[:], func(key, value []byte) error {
			d, err := decodeDelivery(deliveryKey(key), value)
			if err != nil {
				return fmt.Errorf("reading a delivery of run %s: %w", run, err)
			}
			d.Body = ""
			all = append(all, d)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *engine.Delivery) int { return a.Index - b.Index })
	return all, nil
}

func eachWithPrefix(b *bolt.Bucket, prefix []byte, each func(key, value []byte) error) error {
	cursor := b.Cursor()
	for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		if err := each(key, value); err != nil {
			return err
		}
	}
	return nil
}

func hasPrefix(b *bolt.Bucket, prefix []byte) bool {
	key, _ := b.Cursor().Seek(prefix)
	return bytes.HasPrefix(key, prefix)
}
