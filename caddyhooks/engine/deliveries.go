package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/minutes"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/retries"
)

// deliveries sends out what ended runs leave, and lets operators see and change it.
type deliveries struct {
	*node
	leases   *leases
	minutes  *minutes.Keeper
	events   *Events
	more     chan struct{} // there may be deliveries to send, or a place to send more
	attempts atomic.Int32  // that are under way; leases has those, too, whose end is being stored
	breakers retries.Breakers
	workers  sync.WaitGroup // attempts
}

func newDeliveries(n *node, leases *leases, minutes *minutes.Keeper, events *Events) *deliveries {
	return &deliveries{node: n, leases: leases, minutes: minutes, events: events, more: make(chan struct{}, 1)}
}

// Delivery returns a delivery as a whole, or ErrNotFound.
func (s *deliveries) Delivery(ctx context.Context, id string) (*Delivery, error) {
	return ask(ctx, s.store, func(ctx context.Context) (*Delivery, error) { return s.store.Deliveries().Get(ctx, id) })
}

// ListDeliveries returns deliveries, those of the newest run first, without their bodies.
func (s *deliveries) ListDeliveries(ctx context.Context, query DeliveryQuery) (page []*Delivery, next string, err error) {
	ctx, stop := s.store.patience(ctx)
	defer stop()
	page, next, err = s.store.Deliveries().List(ctx, query)
	s.store.noteBroken(err)
	return page, next, err
}

// DeliveryWaits tells of each of some deliveries what it waits for.
func (s *deliveries) DeliveryWaits(ctx context.Context, of []*Delivery) ([]DeliveryWait, error) {
	return ask(ctx, s.store, func(ctx context.Context) ([]DeliveryWait, error) { return s.store.Deliveries().Waits(ctx, of) })
}

// RetryDelivery has a delivery sent now that was given up or waits for its next attempt. Its schedule begins anew. One that has
// arrived is sent again if repeat is set, with the same id; otherwise the error is ErrDelivered.
func (s *deliveries) RetryDelivery(ctx context.Context, id string, repeat bool) (*Delivery, error) {
	d, err := ask(ctx, s.store, func(ctx context.Context) (*Delivery, error) {
		d, err := s.store.Deliveries().Retry(ctx, id, nil)
		if repeat && errors.Is(err, ErrDelivered) {
			return s.repeat(ctx, id)
		}
		return d, err
	})
	if err != nil {
		return nil, err
	}
	// Whoever asks for this knows more about the host than we do.
	to := d.Destination()
	s.breakers.Reset(Destination{Host: to.Host})
	s.breakers.Reset(to)
	s.events.Deliveries.Publish(id)
	return d, nil
}

// repeat has a delivery sent again that has arrived. Its body is not kept, but the outcome of its run is.
func (s *deliveries) repeat(ctx context.Context, id string) (*Delivery, error) {
	arrived, err := s.store.Deliveries().Get(ctx, id)
	if err != nil {
		return nil, err
	}
	record, err := s.store.Runs().Get(ctx, arrived.RunID)
	if err != nil {
		return nil, err
	}
	for _, d := range s.config().deliveriesOf(record.Run, record.Outcome) {
		if d.Callback == arrived.Callback && d.Channel == arrived.Channel && d.To == arrived.To { // folded runs number them otherwise
			return s.store.Deliveries().Retry(ctx, id, &d.Body)
		}
	}
	return nil, ErrNotFound
}

// DropDelivery forgets a delivery that was given up or waits for its next attempt.
func (s *deliveries) DropDelivery(ctx context.Context, id string) error {
	ctx, stop := s.store.patience(ctx)
	defer stop()
	err := s.store.Deliveries().Drop(ctx, id)
	s.store.noteBroken(err)
	if err == nil {
		s.events.Deliveries.Publish(id)
	}
	return err
}

// PausedHosts returns hosts and channels that are left alone for now.
func (s *deliveries) PausedHosts(ctx context.Context, most int) ([]PausedHost, error) {
	return ask(ctx, s.store, func(ctx context.Context) ([]PausedHost, error) { return s.store.Deliveries().Paused(ctx, most) })
}

// CountUndelivered is how many deliveries are pending, and how many were given up.
func (s *deliveries) CountUndelivered(ctx context.Context) (pending, dead int, err error) {
	ctx, stop := s.store.patience(ctx)
	defer stop()
	pending, dead, err = s.store.Deliveries().Count(ctx)
	s.store.noteBroken(err)
	return pending, dead, err
}

// CountUndeliveredBy is CountUndelivered by channel. Those of "" are callbacks.
func (s *deliveries) CountUndeliveredBy(ctx context.Context) (map[string]Undelivered, error) {
	return ask(ctx, s.store, s.store.Deliveries().CountByChannel)
}
