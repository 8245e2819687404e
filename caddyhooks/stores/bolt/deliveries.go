package bolt

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s deliveries) Claim(ctx context.Context, batch engine.DeliveryBatch) (due []*engine.Delivery, wait time.Duration, err error) {
	taken, wait := s.outbox.Take(s.node, batch, s.clock.Steady())
	due, err = s.readTaken(ctx, taken)
	return due, wait, err
}

// readTaken reads deliveries that were taken from the outbox. If that fails then they are back in it. A file with a pending
// delivery that is damaged would be refused when it is opened again, so nothing more is added to it.
func (s deliveries) readTaken(ctx context.Context, taken []local.Taken) ([]*engine.Delivery, error) {
	if len(taken) == 0 {
		return nil, nil
	}
	var read []*engine.Delivery
	var gone []local.DeliveryKey
	now := s.clock.Now()
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		for _, t := range taken {
			data := tx.Bucket(outboxBucket).Get(t.Key[:])
			if data == nil {
				gone = append(gone, t.Key) // it is not pending any more
				continue
			}
			d, err := decodeDelivery(t.Key, data)
			if err != nil {
				return s.breakDown(fmt.Errorf("reading a delivery of run %s: %w", t.Key.Run(), err), nil)
			}
			d.Token, d.TriedAt = t.Token, now
			read = append(read, d)
		}
		return nil
	})
	if err != nil {
		s.outbox.PutBack(taken, time.Time{})
		return nil, err
	}
	for _, key := range gone {
		s.outbox.Remove(key)
	}
	return read, nil
}

// addDeliveries keeps deliveries of a run, and hands them out as soon as that is written. One that is there already stays as it is.
func (d *Database) addDeliveries(t *transaction, id uuid.UUID, added []*engine.Delivery) {
	hasSome := d.queue.HasAsked(id) // no other run has deliveries before it ends
	for _, delivery := range added {
		key := local.NewDeliveryKey(id, delivery.Index)
		if hasSome && bucketOf(t, key) != nil {
			continue
		}
		t.append(outboxBucket, key[:], seal(key[:], encodeDelivery(delivery)))
		t.after = append(t.after, func() { d.outbox.Add(delivery.Destination(), key, t.steady) })
	}
	if len(added) > 0 {
		t.after = append(t.after, d.nodes.TellDue)
	}
}

// bucketOf is where a delivery is kept, nil if it is not.
func bucketOf(t *transaction, key local.DeliveryKey) []byte {
	for _, bucket := range bucketsByStatus {
		if t.bucket(bucket).Get(key[:]) != nil {
			return bucket
		}
	}
	return nil
}

func (s deliveries) Renew(_ context.Context, held []*engine.Delivery, lease time.Duration) (lost []*engine.Delivery, err error) {
	return s.outbox.Renew(held, s.clock.Steady().Add(lease)), nil
}

func (s deliveries) Settle(ctx context.Context, d *engine.Delivery, pause time.Duration, throttles ...engine.Throttle) error {
	key, err := local.KeyOf(d)
	if err != nil {
		return engine.ErrClaimLost
	}
	now := s.clock.Steady()
	settled, again := d.Settled(pause, s.clock.Now()), now.Add(pause)
	if pause == 0 {
		again = s.clock.Past(settled.Due)
	}
	data := encodeDelivery(settled)
	if _, due := s.outbox.Finish(key, d.Token, throttles, now); due {
		s.nodes.TellOthersDue(s.node)
	}
	return s.committer.do(ctx, &change{size: len(data), apply: func(t *transaction) error {
		if !s.outbox.BeginSettling(key, d.Token) {
			return repeatedSettle(t, key, d.Token)
		}
		t.undo = append(t.undo, func() { s.outbox.UndoSettling(key, d.Token) })
		if settled.Status == engine.Pending {
			t.put(outboxBucket, key[:], seal(key[:], data))
			t.reported = append(t.reported, func() {
				s.outbox.Add(settled.Destination(), key, again)
				s.nodes.TellOthersDue(s.node)
			})
			return nil
		}
		t.delete(outboxBucket, key[:])
		if settled.Status == engine.Dead {
			s.putDead(t, key, seal(key[:], data))
		} else {
			t.append(settledBucket, key[:], seal(key[:], data))
		}
		t.reported = append(t.reported, func() { s.outbox.Remove(key) })
		return nil
	}})
}

// repeatedSettle returns nil if a token does not hold because the delivery was settled with it before.
func repeatedSettle(t *transaction, key local.DeliveryKey, token string) error {
	for _, bucket := range bucketsByStatus {
		data := t.bucket(bucket).Get(key[:])
		if data == nil || token == "" {
			continue
		}
		if d, err := decodeDelivery(key, data); err == nil && d.Token == token {
			return nil
		}
	}
	return engine.ErrClaimLost
}

// bucketsByStatus are where deliveries are kept.
var bucketsByStatus = map[engine.DeliveryStatus][]byte{
	engine.Pending:   outboxBucket,
	engine.Dead:      deadBucket,
	engine.Delivered: settledBucket,
}

func (s deliveries) Get(ctx context.Context, id string) (*engine.Delivery, error) {
	key, err := local.ParseDeliveryID(id)
	if err != nil {
		return nil, err
	}
	var d *engine.Delivery
	err = s.view(ctx, func(tx *bbolt.Tx) (err error) {
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
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (s deliveries) Retry(ctx context.Context, id string, body *string) (*engine.Delivery, error) {
	var d *engine.Delivery
	err := s.change(ctx, id, body != nil, func(t *transaction, key local.DeliveryKey, found *engine.Delivery) error {
		if err := s.takeBack(t, key, found); err != nil {
			return err
		}
		d = found.Retried(body, t.now)
		s.deleteDead(t, key[:])
		t.delete(settledBucket, key[:])
		t.put(outboxBucket, key[:], seal(key[:], encodeDelivery(d)))
		to := d.Destination()
		t.after = append(t.after, func() {
			s.outbox.Add(to, key, t.steady)
			s.outbox.Unthrottle(to)
			s.nodes.TellDue()
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (s deliveries) Drop(ctx context.Context, id string) error {
	return s.change(ctx, id, false, func(t *transaction, key local.DeliveryKey, d *engine.Delivery) error {
		if err := s.takeBack(t, key, d); err != nil {
			return err
		}
		t.delete(outboxBucket, key[:])
		s.deleteDead(t, key[:])
		return nil
	})
}

// takeBack keeps a delivery from being handed out while a change of it is written, unless it has been already.
func (s deliveries) takeBack(t *transaction, key local.DeliveryKey, d *engine.Delivery) error {
	if due, waited := s.outbox.RemoveWaiting(key, t.steady); waited {
		to := d.Destination()
		t.undo = append(t.undo, func() { s.outbox.Add(to, key, due) })
	} else if s.outbox.IsClaimed(key, t.steady) {
		return engine.ErrUnderWay
	}
	return nil
}

// change has edit change a delivery that is pending or dead, or one that has arrived if that is allowed.
func (s deliveries) change(ctx context.Context, id string, arrived bool,
	edit func(*transaction, local.DeliveryKey, *engine.Delivery) error) error {
	key, err := local.ParseDeliveryID(id)
	if err != nil {
		return err
	}
	return s.committer.do(ctx, &change{apply: func(t *transaction) error {
		data := t.bucket(deadBucket).Get(key[:])
		if data == nil {
			data = t.bucket(outboxBucket).Get(key[:])
		}
		if data == nil {
			if data = t.bucket(settledBucket).Get(key[:]); data != nil && !arrived {
				return engine.ErrDelivered
			}
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

func (s deliveries) List(ctx context.Context, query engine.DeliveryQuery) ([]*engine.Delivery, string, error) {
	var page []*engine.Delivery
	var next string
	first, end, err := local.DeliveryRange(&query)
	if err != nil || query.Limit <= 0 {
		return nil, "", err
	}
	var buckets [][]byte
	for status, bucket := range bucketsByStatus {
		if len(query.Statuses) == 0 || slices.Contains(query.Statuses, status) {
			buckets = append(buckets, bucket)
		}
	}
	if buckets == nil {
		return nil, "", nil // no delivery has such a status
	}
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		newest := newestFirst(tx, end[:], buckets...)
		size := 0
		for looked := 0; ; looked++ {
			key, data := newest()
			if bytes.Compare(key, first[:]) < 0 { // or nil
				next = ""
				return nil
			}
			if len(page) == query.Limit || looked == local.ListLooksAt || size > local.ListReads {
				return nil
			}
			size += len(data)
			d, err := decodeDelivery(local.DeliveryKey(key), data)
			if err != nil {
				return fmt.Errorf("reading a delivery of run %s: %w", local.DeliveryKey(key).Run(), err)
			}
			next = engine.DeliveryID(d.RunID, d.Index)
			if query.Selects(d) {
				page = append(page, d.WithoutBody())
			}
		}
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

func (s deliveries) Waits(_ context.Context, of []*engine.Delivery) ([]engine.DeliveryWait, error) {
	return s.outbox.Waits(of, s.clock), nil
}

func (s deliveries) Paused(_ context.Context, most int) ([]engine.PausedHost, error) {
	return s.outbox.Paused(most, s.clock), nil
}

// deliveriesOf returns the deliveries of a run, without their bodies.
func deliveriesOf(tx *bbolt.Tx, run uuid.UUID) (all []*engine.Delivery, err error) {
	for _, bucket := range bucketsByStatus {
		err := eachWithPrefix(tx.Bucket(bucket), run[:], func(key, value []byte) error {
			d, err := decodeDelivery(local.DeliveryKey(key), value)
			if err != nil {
				return fmt.Errorf("reading a delivery of run %s: %w", run, err)
			}
			all = append(all, d.WithoutBody())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *engine.Delivery) int { return a.Index - b.Index })
	return all, nil
}

func eachWithPrefix(b *bbolt.Bucket, prefix []byte, each func(key, value []byte) error) error {
	cursor := b.Cursor()
	for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
		if err := each(key, value); err != nil {
			return err
		}
	}
	return nil
}

func hasPrefix(b *bbolt.Bucket, prefix []byte) bool {
	key, _ := b.Cursor().Seek(prefix)
	return bytes.HasPrefix(key, prefix)
}
