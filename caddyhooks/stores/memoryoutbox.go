package stores

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// delivery finds a delivery in the record of its run.
func (s *memoryStore) delivery(key deliveryKey) (record *engine.Record, d *engine.Delivery) {
	if record = s.runs[key.run()]; record != nil {
		for _, d := range record.Deliveries {
			if d.Index == key.index() {
				return record, d
			}
		}
	}
	return nil, nil
}

func (s *memoryStore) ClaimDeliveries(_ context.Context, now time.Time, n int) (due []*engine.Delivery, next time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(due) < n {
		key, ok := s.outbox.take(now)
		if !ok {
			break
		}
		_, d := s.delivery(key)
		given := *d
		due = append(due, &given)
	}
	return due, s.outbox.next(), nil
}

func (s *memoryStore) ClaimOverdue(_ context.Context, host string, before time.Time, n int) (overdue []*engine.Delivery, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.outbox.overdue(host, before, n) {
		_, d := s.delivery(key)
		given := *d
		overdue = append(overdue, &given)
	}
	return overdue, nil
}

func (s *memoryStore) Throttle(to engine.Destination, atOnce int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outbox.throttle(to, atOnce, until)
}

func (s *memoryStore) SettleDelivery(_ context.Context, d *engine.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := parseID(d.RunID)
	key := newDeliveryKey(id, d.Index)
	record, known := s.delivery(key)
	if !ok || record == nil || known.Status != engine.Pending {
		return engine.ErrNotFound
	}
	kept := *d
	if d.Status == engine.Delivered {
		kept.Body = ""
	}
	s.outbox.free(key)
	s.replace(key, record, &kept)
	return nil
}

// replace puts a delivery in the place of what was known about it, or nothing if it is nil.
func (s *memoryStore) replace(key deliveryKey, record *engine.Record, d *engine.Delivery) {
	s.bytes -= recordBytes(record)
	i := slices.IndexFunc(record.Deliveries, func(d *engine.Delivery) bool { return d.Index == key.index() })
	if d != nil {
		record.Deliveries[i] = d
	} else {
		record.Deliveries = slices.Delete(slices.Clone(record.Deliveries), i, i+1)
	}
	s.bytes += recordBytes(record)
	if d != nil && d.Status == engine.Pending {
		s.outbox.add(d.Destination(), key, d.Due)
	} else {
		s.outbox.remove(key)
	}
	s.noteOver(key.run())
}

func (s *memoryStore) Delivery(_ context.Context, id string) (*engine.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := parseDeliveryID(id)
	if err != nil {
		return nil, err
	}
	_, d := s.delivery(key)
	if d == nil {
		return nil, engine.ErrNotFound
	}
	given := *d
	return &given, nil
}

func (s *memoryStore) RetryDelivery(_ context.Context, id string, now time.Time) (*engine.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, record, d, err := s.unsent(id)
	if err != nil {
		return nil, err
	}
	retried := *d
	retried.Status, retried.Restart, retried.Due = engine.Pending, d.Attempt, now
	s.replace(key, record, &retried)
	given := retried
	return &given, nil
}

func (s *memoryStore) DropDelivery(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, record, _, err := s.unsent(id)
	if err != nil {
		return err
	}
	s.replace(key, record, nil)
	return nil
}

// unsent finds a delivery that is dead, or pending and not under way.
func (s *memoryStore) unsent(id string) (key deliveryKey, record *engine.Record, d *engine.Delivery, err error) {
	if key, err = parseDeliveryID(id); err != nil {
		return key, nil, nil, err
	}
	record, d = s.delivery(key)
	switch {
	case d == nil:
		err = engine.ErrNotFound
	case d.Status == engine.Delivered:
		err = engine.ErrDelivered
	case d.Status == engine.Pending && s.outbox.busy(key):
		err = engine.ErrUnderWay
	}
	return key, record, d, err
}

func (s *memoryStore) ListDeliveries(_ context.Context, query engine.DeliveryQuery) (page []*engine.Delivery, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if query.Limit <= 0 {
		return nil, "", nil
	}
	var cursor deliveryKey
	end := len(s.order)
	if query.Cursor != "" {
		if cursor, err = parseDeliveryID(query.Cursor); err != nil {
			return nil, "", engine.ErrCursor
		}
		if end = s.olderThan(cursor.run()); end < len(s.order) {
			end++ // the run of the cursor may have another one
		}
	}
	for i, looked := end-1, 0; i >= 0; i, looked = i-1, looked+1 {
		if looked == listLooksAt {
			return page, engine.DeliveryID(s.order[i+1].String(), 0), nil // all of that run have been looked at
		}
		record := s.runs[s.order[i]]
		if record == nil {
			continue
		}
		for _, d := range slices.Backward(record.Deliveries) {
			key := newDeliveryKey(s.order[i], d.Index)
			if query.Cursor != "" && bytes.Compare(key[:], cursor[:]) >= 0 {
				continue
			}
			if len(page) == query.Limit {
				return page, next, nil
			}
			next = engine.DeliveryID(d.RunID, d.Index)
			if query.Selects(d) {
				given := *d
				given.Body = ""
				page = append(page, &given)
			}
		}
	}
	return page, "", nil
}
