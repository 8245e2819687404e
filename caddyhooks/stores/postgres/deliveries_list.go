package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

func (d *deliveries) List(ctx context.Context, query engine.DeliveryQuery) (page []*engine.Delivery, next string, err error) {
	first, end, err := local.DeliveryRange(&query)
	if err != nil || query.Limit <= 0 {
		return nil, "", err
	}
	var channel, host *string
	statuses := []string{}
	for _, status := range query.Statuses {
		statuses = append(statuses, string(status))
	}
	looksAt := query.Limit + 1
	if query.Channel != "" {
		text := codec.Escape(query.Channel)
		channel, looksAt = &text, local.ListLooksAt
	}
	if query.Host != "" {
		text := codec.Escape(query.Host)
		host, looksAt = &text, local.ListLooksAt
	}
	if len(statuses) > 0 {
		looksAt = local.ListLooksAt // one that has arrived is found among the others
	}
	err = d.query(ctx, func(rows pgx.Rows) error {
		var row deliveryRow
		if err := rows.Scan(row.fields()...); err != nil {
			return err
		}
		if row.record == nil {
			next = engine.DeliveryID(row.run.UUID.String(), int(*row.index))
			return nil
		}
		delivery, err := row.delivery()
		page = append(page, delivery)
		return err
	}, "SELECT "+deliveryColumns+" FROM @.list_deliveries_1($1, $2, $3, $4, $5, $6, $7, $8)", statuses, channel, host, first.Run().String(),
		end.Run().String(), end.Index(), query.Limit, looksAt)
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

func (d *deliveries) Paused(ctx context.Context, most int) (paused []engine.PausedHost, err error) {
	err = d.query(ctx, func(rows pgx.Rows) error {
		var host engine.PausedHost
		err := rows.Scan(&host.Host, &host.Until)
		host.Host = codec.Unescape(host.Host)
		paused = append(paused, host)
		return err
	}, "SELECT host, until FROM @.paused_hosts_1($1)", max(most, 0))
	return paused, err
}

func (d *deliveries) Waits(ctx context.Context, of []*engine.Delivery) ([]engine.DeliveryWait, error) {
	waits := make([]engine.DeliveryWait, len(of))
	runs, indexes, places := []string{}, []int32{}, []int{}
	for i, delivery := range of {
		if run, ok := deliveryRun(delivery); ok {
			runs, indexes, places = append(runs, run), append(indexes, int32(delivery.Index)), append(places, i)
		}
	}
	err := d.query(ctx, func(rows pgx.Rows) error {
		var (
			nth      int
			obstacle string
			until    *time.Time
		)
		if err := rows.Scan(&nth, &obstacle, &until); err != nil {
			return err
		}
		wait := &waits[places[nth-1]]
		wait.For = engine.Obstacle(obstacle)
		if until != nil {
			wait.Until = *until
		}
		return nil
	}, "SELECT nth, obstacle, until FROM @.delivery_waits_1($1, $2)", runs, indexes)
	return waits, err
}
