package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func (d *deliveries) Count(ctx context.Context) (pending, dead int, err error) {
	err = d.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&pending, &dead) },
		"SELECT coalesce(sum(pending), 0)::bigint, coalesce(sum(dead), 0)::bigint FROM @.counter")
	return pending, dead, err
}

// CountByChannel asks for the sums first, and mostly that is all: nothing is dead, and little is pending. There are no counters by
// channel. Nodes of earlier releases would not keep them, and every end of a run would write to them. So rows are counted, by indexes
// that are there, up to a bound.
func (d *deliveries) CountByChannel(ctx context.Context) (map[string]engine.Undelivered, error) {
	pending, dead, err := d.Count(ctx)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]engine.Undelivered)
	if pending > 0 {
		if err := d.countPending(ctx, pending, counts); err != nil {
			return nil, err
		}
	}
	if dead > 0 {
		if err := d.countDead(ctx, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// countPending goes from channel to channel through the index delivery_channel, which has nothing but their pending deliveries. All
// others are callbacks.
func (d *deliveries) countPending(ctx context.Context, all int, counts map[string]engine.Undelivered) error {
	callbacks, isCut := all, false
	err := d.query(ctx, func(rows pgx.Rows) error {
		var to engine.Destination
		var n int
		err := rows.Scan(&to.Host, &n)
		counts[to.Channel()] = engine.Undelivered{Pending: n}
		callbacks -= n
		isCut = isCut || n == engine.MaxCounted
		return err
	}, `WITH RECURSIVE channel (host) AS (
			(SELECT host FROM @.delivery WHERE chat IS NOT NULL AND status = 'pending' ORDER BY host LIMIT 1)
			UNION ALL
			SELECT (SELECT d.host FROM @.delivery d WHERE d.chat IS NOT NULL AND d.status = 'pending' AND d.host > c.host ORDER BY d.host LIMIT 1)
			FROM channel c WHERE c.host IS NOT NULL)
		SELECT c.host, (SELECT count(*) FROM (
			SELECT FROM @.delivery d WHERE d.chat IS NOT NULL AND d.status = 'pending' AND d.host = c.host ORDER BY d.due, d.seq LIMIT $1) x)
		FROM channel c WHERE c.host IS NOT NULL`, engine.MaxCounted)
	if err != nil {
		return err
	}
	if isCut { // so the rest of a channel is among them
		if callbacks, err = d.countReadyCallbacks(ctx); err != nil {
			return err
		}
	}
	if callbacks > 0 {
		counts[""] = engine.Undelivered{Pending: callbacks}
	}
	return nil
}

// countReadyCallbacks counts callbacks that wait, up to a bound. Those that are under way are few.
func (d *deliveries) countReadyCallbacks(ctx context.Context) (n int, err error) {
	err = d.query(ctx, func(rows pgx.Rows) error { return rows.Scan(&n) },
		"SELECT count(*) FROM (SELECT chat FROM @.delivery WHERE ready_at IS NOT NULL ORDER BY host, ready_at, seq LIMIT $1) d WHERE d.chat "+
			"IS NULL", engine.MaxCounted)
	return n, err
}

// countDead looks at the newest deliveries that were given up.
func (d *deliveries) countDead(ctx context.Context, counts map[string]engine.Undelivered) error {
	return d.query(ctx, func(rows pgx.Rows) error {
		var to engine.Destination
		var n int
		err := rows.Scan(&to.Host, &n)
		count := counts[to.Channel()]
		count.Dead = n
		counts[to.Channel()] = count
		return err
	}, `SELECT CASE WHEN d.chat IS NOT NULL THEN d.host ELSE '' END AS channel, count(*)
		FROM (SELECT host, chat FROM @.delivery WHERE status = 'dead' ORDER BY run DESC, index DESC LIMIT $1) d GROUP BY 1`, engine.MaxCounted)
}
