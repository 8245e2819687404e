package engine

import (
	"context"
	"errors"
	"sync"
)

// Delivery returns a delivery as a whole, or ErrNotFound.
func (e *Engine) Delivery(ctx context.Context, id string) (*Delivery, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	d, err := e.store.Deliveries().Get(ctx, id)
	e.noteBroken(err)
	return d, err
}

// ListDeliveries returns deliveries, those of the newest run first, without their bodies.
func (e *Engine) ListDeliveries(ctx context.Context, query DeliveryQuery) (page []*Delivery, next string, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	page, next, err = e.store.Deliveries().List(ctx, query)
	e.noteBroken(err)
	return page, next, err
}

// DeliveryWaits tells of each of some deliveries what it waits for.
func (e *Engine) DeliveryWaits(ctx context.Context, of []*Delivery) ([]DeliveryWait, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	waits, err := e.store.Deliveries().Waits(ctx, of)
	e.noteBroken(err)
	return waits, err
}

// RetryDelivery has a delivery sent now that was given up or waits for its next attempt. Its schedule begins anew.
func (e *Engine) RetryDelivery(ctx context.Context, id string) (*Delivery, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	d, err := e.store.Deliveries().Retry(ctx, id)
	if err != nil {
		e.noteBroken(err)
		return nil, err
	}
	// Whoever asks for this knows more about the host than we do.
	to := d.Destination()
	e.breakers.reset(Destination{Host: to.Host})
	e.breakers.reset(to)
	e.events.Deliveries.publish(id)
	return d, nil
}

// DropDelivery forgets a delivery that was given up or waits for its next attempt.
func (e *Engine) DropDelivery(ctx context.Context, id string) error {
	ctx, stop := e.patience(ctx)
	defer stop()
	err := e.store.Deliveries().Drop(ctx, id)
	e.noteBroken(err)
	if err == nil {
		e.events.Deliveries.publish(id)
	}
	return err
}

// RetryDeliveries is RetryDelivery for all that a query selects, and returns how many these were. What is under way, has
// arrived or is gone by then does not count.
func (e *Engine) RetryDeliveries(ctx context.Context, query DeliveryQuery) (n int, err error) {
	return e.eachDelivery(ctx, query, func(id string) error {
		_, err := e.RetryDelivery(ctx, id)
		return err
	})
}

// DropDeliveries is DropDelivery for all that a query selects, and returns how many these were.
func (e *Engine) DropDeliveries(ctx context.Context, query DeliveryQuery) (n int, err error) {
	return e.eachDelivery(ctx, query, func(id string) error { return e.DropDelivery(ctx, id) })
}

// CountDeliveries returns how many deliveries a query selects.
func (e *Engine) CountDeliveries(ctx context.Context, query DeliveryQuery) (n int, err error) {
	return e.eachDelivery(ctx, query, func(string) error { return nil })
}

// PausedHosts returns hosts and channels that are left alone for now.
func (e *Engine) PausedHosts(ctx context.Context, most int) ([]PausedHost, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	paused, err := e.store.Deliveries().Paused(ctx, most)
	e.noteBroken(err)
	return paused, err
}

// eachDelivery does something with all deliveries that a query selects, each of them once, from the newest on: many at a
// time, for they share what it costs to write to the disk.
func (e *Engine) eachDelivery(ctx context.Context, query DeliveryQuery, do func(id string) error) (n int, err error) {
	query.Limit, query.Cursor = 256, ""
	for {
		page, next, err := e.ListDeliveries(ctx, query)
		if err != nil {
			return n, err
		}
		errs := make([]error, len(page))
		var all sync.WaitGroup
		for i, d := range page {
			all.Go(func() { errs[i] = do(DeliveryID(d.RunID, d.Index)) })
		}
		all.Wait()
		for _, err := range errs {
			switch {
			case err == nil:
				n++
			case errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnderWay) || errors.Is(err, ErrDelivered):
			default:
				return n, err
			}
		}
		if next == "" || ctx.Err() != nil {
			return n, ctx.Err()
		}
		query.Cursor = next
	}
}
