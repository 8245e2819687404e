package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// delivery finds a delivery in the record of its run.
func (d *Data) delivery(key local.DeliveryKey) (record *run, found *engine.Delivery) {
	if record = d.runs[key.Run()]; record != nil {
		for _, found := range record.Deliveries {
			if found.Index == key.Index() {
				return record, found
			}
		}
	}
	return nil, nil
}

// addDeliveries stores deliveries of a run that are made at a time, and due. One that is there already stays as it is.
func (d *Data) addDeliveries(id uuid.UUID, added []*engine.Delivery, now time.Time) {
	record := d.runs[id]
	d.bytes -= record.size()
	record.Deliveries = slices.Clone(record.Deliveries)
	for _, delivery := range added {
		i, there := slices.BinarySearchFunc(record.Deliveries, delivery.Index, func(d *engine.Delivery, index int) int { return d.Index - index })
		if there {
			continue
		}
		delivery = delivery.Created(now)
		record.Deliveries = slices.Insert(record.Deliveries, i, delivery)
		d.outbox.Add(delivery.Destination(), local.NewDeliveryKey(id, delivery.Index), d.clock.Steady())
	}
	d.bytes += record.size()
	if len(added) > 0 {
		d.nodes.TellDue()
	}
}

func (s deliveries) Claim(_ context.Context, batch engine.DeliveryBatch) (due []*engine.Delivery, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken, wait := s.outbox.Take(s.node, batch, s.clock.Steady())
	for _, t := range taken {
		_, d := s.delivery(t.Key)
		given := *d
		given.Token, given.TriedAt = t.Token, s.clock.Now()
		due = append(due, &given)
	}
	return due, wait, nil
}

func (s deliveries) Renew(_ context.Context, held []*engine.Delivery, lease time.Duration) (lost []*engine.Delivery, err error) {
	return s.outbox.Renew(held, s.clock.Steady().Add(lease)), nil
}

func (s deliveries) Settle(_ context.Context, d *engine.Delivery, pause time.Duration, throttles ...engine.Throttle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := local.KeyOf(d)
	if err != nil {
		return engine.ErrClaimLost
	}
	now := s.clock.Steady()
	record, known := s.delivery(key)
	holds, due := s.outbox.Finish(key, d.Token, throttles, now)
	switch {
	case holds && record != nil:
	case known != nil && d.Token != "" && known.Token == d.Token:
		return nil // it was done before
	default:
		return engine.ErrClaimLost
	}
	settled, again := d.Settled(pause, s.clock.Now()), now.Add(pause)
	if pause == 0 {
		again = s.clock.Past(settled.Due)
	}
	s.replace(key, record, settled, again)
	if due || d.Status == engine.Pending {
		s.nodes.TellOthersDue(s.node)
	}
	return nil
}

// replace puts a delivery in the place of the known one, or none if it is nil. If it is pending, it is due at a time.
func (d *Data) replace(key local.DeliveryKey, record *run, delivery *engine.Delivery, due time.Time) {
	d.bytes -= record.size()
	i := slices.IndexFunc(record.Deliveries, func(d *engine.Delivery) bool { return d.Index == key.Index() })
	d.countDead(record.Deliveries[i], -1)
	d.countDead(delivery, 1)
	if delivery != nil {
		record.Deliveries[i] = delivery
	} else {
		record.Deliveries = slices.Delete(slices.Clone(record.Deliveries), i, i+1)
	}
	d.bytes += record.size()
	if delivery != nil && delivery.Status == engine.Pending {
		d.outbox.Add(delivery.Destination(), key, due)
	} else {
		d.outbox.Remove(key)
	}
	d.noteOver(key.Run())
}

// countDead counts a delivery that comes or goes, if it was given up.
func (d *Data) countDead(delivery *engine.Delivery, n int) {
	if delivery != nil && delivery.Status == engine.Dead {
		if d.dead[delivery.Channel] += n; d.dead[delivery.Channel] == 0 {
			delete(d.dead, delivery.Channel)
		}
	}
}

func (s deliveries) Count(context.Context) (pending, dead int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.dead {
		dead += n
	}
	return s.outbox.Size().Pending, dead, nil
}

func (s deliveries) CountByChannel(context.Context) (map[string]engine.Undelivered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return local.Undelivered(s.outbox.CountByChannel(), s.dead), nil
}

func (s deliveries) Get(_ context.Context, id string) (*engine.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := local.ParseDeliveryID(id)
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

func (s deliveries) Retry(_ context.Context, id string, body *string) (*engine.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, record, d, err := s.changeable(id, body != nil)
	if err != nil {
		return nil, err
	}
	retried := d.Retried(body, s.clock.Now())
	s.outbox.Unthrottle(d.Destination())
	s.replace(key, record, retried, s.clock.Steady())
	s.nodes.TellDue()
	given := *retried
	return &given, nil
}

func (s deliveries) Drop(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, record, _, err := s.changeable(id, false)
	if err != nil {
		return err
	}
	s.replace(key, record, nil, time.Time{})
	return nil
}

// changeable finds a delivery that is dead, or pending and not claimed, or one that has arrived if that is allowed.
func (d *Data) changeable(id string, arrived bool) (key local.DeliveryKey, record *run, found *engine.Delivery, err error) {
	if key, err = local.ParseDeliveryID(id); err != nil {
		return key, nil, nil, err
	}
	record, found = d.delivery(key)
	switch {
	case found == nil:
		err = engine.ErrNotFound
	case found.Status == engine.Delivered && !arrived:
		err = engine.ErrDelivered
	case found.Status == engine.Pending && d.outbox.IsClaimed(key, d.clock.Steady()):
		err = engine.ErrUnderWay
	}
	return key, record, found, err
}

func (s deliveries) List(_ context.Context, query engine.DeliveryQuery) (page []*engine.Delivery, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, end, err := local.DeliveryRange(&query)
	if err != nil || query.Limit <= 0 {
		return nil, "", err
	}
	oldest, newest := s.order.olderThan(first.Run()), min(s.order.olderThan(end.Run()), len(s.order)-1) // which may have some before end
	for i, looked := newest, 0; i >= oldest; i, looked = i-1, looked+1 {
		if looked == local.ListLooksAt {
			return page, engine.DeliveryID(s.order[i+1].String(), 0), nil // all of that run have been looked at
		}
		record := s.runs[s.order[i]]
		if record == nil {
			continue
		}
		for _, d := range slices.Backward(record.Deliveries) {
			key := local.NewDeliveryKey(s.order[i], d.Index)
			if bytes.Compare(key[:], end[:]) >= 0 {
				continue
			}
			if len(page) == query.Limit {
				return page, next, nil
			}
			next = engine.DeliveryID(d.RunID, d.Index)
			if query.Selects(d) {
				page = append(page, d.WithoutBody())
			}
		}
	}
	return page, "", nil
}

func (s deliveries) Waits(_ context.Context, of []*engine.Delivery) ([]engine.DeliveryWait, error) {
	return s.outbox.Waits(of, &s.clock), nil
}

func (s deliveries) Paused(_ context.Context, most int) ([]engine.PausedHost, error) {
	return s.outbox.Paused(most, &s.clock), nil
}
