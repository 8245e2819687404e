package stores

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
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

func readDelivery(key, data []byte) (*engine.Delivery, error) {
	return decodeDelivery(uuid.UUID(key[:16]).String(), int(key[16]), data)
}

// dueDelivery is a pending delivery that is not under way.
type dueDelivery struct {
	due time.Time
	key deliveryKey
}

// dueHeap has the delivery that is due first at the top.
type dueHeap []dueDelivery

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(d any)        { *h = append(*h, d.(dueDelivery)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (s *boltStore) ClaimDeliveries(_ context.Context, now time.Time, n int) (due []*engine.Delivery, next time.Time, err error) {
	var taken []dueDelivery
	s.mu.Lock()
	for len(s.outbox) > 0 && len(taken) < n && !s.outbox[0].due.After(now) {
		taken = append(taken, heap.Pop(&s.outbox).(dueDelivery))
	}
	if len(s.outbox) > 0 {
		next = s.outbox[0].due
	}
	s.mu.Unlock()
	if len(taken) == 0 {
		return nil, next, nil
	}
	err = s.view(func(tx *bolt.Tx) error {
		outbox := tx.Bucket(outboxBucket)
		for _, t := range taken {
			data := outbox.Get(t.key[:])
			if data == nil {
				continue // it is not pending any more
			}
			d, err := readDelivery(t.key[:], data)
			if err != nil {
				return fmt.Errorf("reading a delivery of run %s: %w", uuid.UUID(t.key[:16]), err)
			}
			due = append(due, d)
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		for _, t := range taken {
			heap.Push(&s.outbox, t)
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
	return s.committer.do(&change{apply: func(t *transaction) error {
		if t.bucket(outboxBucket).Get(key[:]) == nil {
			return engine.ErrNotFound
		}
		if d.Status == engine.Pending {
			t.put(outboxBucket, key[:], data)
			t.after = append(t.after, func() { heap.Push(&s.outbox, dueDelivery{d.Due, key}) })
			return nil
		}
		t.delete(outboxBucket, key[:])
		t.append(settledBucket, key[:], data)
		return nil
	}})
}

// deliveriesOf returns the deliveries of a run, without their bodies.
func deliveriesOf(tx *bolt.Tx, run uuid.UUID) (all []*engine.Delivery, err error) {
	for _, bucket := range [][]byte{outboxBucket, settledBucket} {
		err := eachWithPrefix(tx.Bucket(bucket), run[:], func(key, value []byte) error {
			d, err := readDelivery(key, value)
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
	errFound := errors.New("found")
	return eachWithPrefix(b, prefix, func(_, _ []byte) error { return errFound }) != nil
}
