package stores

import (
	"bytes"
	"context"
	"fmt"
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
	s.mu.Lock()
	for len(taken) < n {
		key, ok := s.outbox.take(now)
		if !ok {
			break
		}
		taken = append(taken, key)
	}
	next, _ = s.outbox.first()
	s.mu.Unlock()
	if len(taken) == 0 {
		return nil, next, nil
	}
	err = s.view(func(tx *bolt.Tx) error {
		outbox := tx.Bucket(outboxBucket)
		for _, key := range taken {
			data := outbox.Get(key[:])
			if data == nil {
				continue // it is not pending any more
			}
			d, err := decodeDelivery(key, data)
			if err != nil {
				return fmt.Errorf("reading a delivery of run %s: %w", key.run(), err)
			}
			due = append(due, d)
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		for _, key := range taken {
			s.outbox.add(now, key)
		}
		s.mu.Unlock()
		return nil, next, err
	}
	return due, next, nil
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
	err := s.committer.do(&change{size: len(data), apply: func(t *transaction) error {
		if t.bucket(outboxBucket).Get(key[:]) == nil {
			return engine.ErrNotFound
		}
		if d.Status == engine.Pending {
			t.put(outboxBucket, key[:], seal(key[:], data))
			return nil
		}
		t.delete(outboxBucket, key[:])
		t.append(settledBucket, key[:], seal(key[:], data))
		return nil
	}})
	if err == nil && d.Status == engine.Pending {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outbox.add(d.Due, key)
	}
	return err
}

// deliveriesOf returns the deliveries of a run, without their bodies.
func deliveriesOf(tx *bolt.Tx, run uuid.UUID) (all []*engine.Delivery, err error) {
	for _, bucket := range [][]byte{outboxBucket, settledBucket} {
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
	if len(all) == 2 && all[0].Index > all[1].Index {
		all[0], all[1] = all[1], all[0]
	}
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
