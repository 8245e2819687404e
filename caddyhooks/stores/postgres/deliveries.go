package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// deliveries implements engine.Deliveries.
type deliveries struct {
	*store
	calls *batcher[deliveryCall]
}

func newDeliveries(s *store) *deliveries {
	d := &deliveries{store: s}
	d.calls = newBatcher(deliveriesAtOnce, d.deliver)
	return d
}

// deliveriesAtOnce is how many attempts are settled in one call.
const deliveriesAtOnce = 256

func (d *deliveries) Get(ctx context.Context, id string) (*engine.Delivery, error) {
	run, index, ok := engine.ParseDeliveryID(id)
	if !ok {
		return nil, engine.ErrNotFound
	}
	var found *engine.Delivery
	err := d.query(ctx, func(rows pgx.Rows) (err error) {
		found, err = scanDelivery(rows)
		return err
	}, "SELECT "+deliveryColumns+" FROM @.get_delivery_1($1, $2)", run, index)
	if err == nil && found == nil {
		err = engine.ErrNotFound
	}
	return found, err
}

func (d *deliveries) Retry(ctx context.Context, id string, body *string) (*engine.Delivery, error) {
	run, index, ok := engine.ParseDeliveryID(id)
	if !ok {
		return nil, engine.ErrNotFound
	}
	var (
		answer string
		row    deliveryRow
		again  []byte // NULL is none
	)
	if body != nil {
		again = append([]byte{}, *body...)
	}
	err := d.query(ctx, func(rows pgx.Rows) error { return rows.Scan(append([]any{&answer}, row.fields()...)...) },
		"SELECT answer, "+deliveryColumns+" FROM @.retry_delivery_1($1, $2, $3, $4)", d.node, run, index, again)
	if err != nil {
		return nil, err
	}
	if err := unsentError(answer); err != nil {
		return nil, err
	}
	d.watch.tellDue()
	d.watch.tellOthers("d")
	return row.delivery()
}

func (d *deliveries) Drop(ctx context.Context, id string) error {
	run, index, ok := engine.ParseDeliveryID(id)
	if !ok {
		return engine.ErrNotFound
	}
	var answer string
	err := d.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&answer) }, "SELECT @.drop_delivery_1($1, $2, $3)", d.node, run, index)
	if err != nil {
		return err
	}
	if err := unsentError(answer); err != nil {
		return err
	}
	d.watch.tellDue() // it may have been the first of its chat
	d.watch.tellOthers("d")
	return nil
}

// unsentError is what an answer of the function unsent_1 means.
func unsentError(answer string) error {
	switch answer {
	case "ok":
		return nil
	case "delivered":
		return engine.ErrDelivered
	case "under way":
		return engine.ErrUnderWay
	default:
		return engine.ErrNotFound
	}
}

func (d *deliveries) Renew(ctx context.Context, held []*engine.Delivery, lease time.Duration) (lost []*engine.Delivery, err error) {
	var (
		runs, tokens []string
		indexes      []int32
		asked        []*engine.Delivery
	)
	for _, h := range held {
		run, ok := deliveryRun(h)
		if !ok {
			lost = append(lost, h)
			continue
		}
		runs, indexes, tokens, asked = append(runs, run), append(indexes, int32(h.Index)), append(tokens, codec.Escape(h.Token)), append(asked, h)
	}
	if len(asked) == 0 {
		return lost, nil
	}
	err = d.on(deliveryCalls).query(ctx, func(rows pgx.Rows) error {
		var places []int32
		if err := rows.Scan(&places); err != nil {
			return err
		}
		for _, place := range places {
			lost = append(lost, asked[place-1])
		}
		return nil
	}, "SELECT @.renew_deliveries_1($1, $2, $3, $4)", runs, indexes, tokens, lease.Seconds())
	return lost, err
}

var _ engine.Deliveries = (*deliveries)(nil)
