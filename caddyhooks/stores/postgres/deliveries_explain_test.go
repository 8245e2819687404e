//go:build real

package postgres

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// fillDeliveries makes deliveries: most wait for a host and for a chat that are blocked, others wait for hosts of their own, have arrived
// or were given up.
func fillDeliveries(t *testing.T, s *store, from, to int) {
	t.Helper()
	execForLong(t, s, fmt.Sprintf(`
		INSERT INTO @.delivery (run, index, seq, host, chat, status, created_at, due, ready_at, tried_at, record, body)
		SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 0, nextval('@.delivery_seq'), host, chat, status, at, at,
			CASE WHEN status = 'pending' AND (chat IS NULL OR chat <> 'busy') THEN at END, CASE WHEN status <> 'pending' THEN at END, '{}', 'body'
		FROM (
			SELECT i,
				CASE WHEN i %% 10 < 4 THEN 'https://blocked.example:443' WHEN i %% 10 = 4 THEN 'channel/blocked' WHEN i %% 10 = 5 THEN 'channel/many'
					WHEN i %% 10 = 8 THEN 'https://later' || i || '.example:443' ELSE 'https://host' || i %% 500 || '.example:443' END AS host,
				CASE WHEN i %% 10 = 4 THEN 'busy' WHEN i %% 10 = 5 THEN 'chat ' || i END AS chat,
				CASE WHEN i %% 10 IN (6, 9) THEN 'delivered' WHEN i %% 10 = 7 THEN 'dead' ELSE 'pending' END AS status,
				@.clock_1() + CASE WHEN i %% 10 IN (5, 8) THEN interval '10 hours' ELSE interval '-10 hours' END AS at
			FROM generate_series(%d::bigint, %d - 1) i) d`, from, to))
	execForLong(t, s, `
		INSERT INTO @.host (host, until, next_at)
		SELECT host, CASE WHEN host LIKE '%blocked%' THEN @.clock_1() + interval '5 hours' END, greatest(min(ready_at), CASE WHEN host LIKE '%blocked%' THEN @.clock_1() + interval '5 hours' END)
		FROM @.delivery WHERE status = 'pending' GROUP BY host ON CONFLICT DO NOTHING`)
	execForLong(t, s, "ANALYZE @.delivery, @.host, @.chat_pause, @.delivery_news")
}

func TestDeliveriesTakeNoLongerIfThereAreMany(t *testing.T) {
	explains(t, func(t *testing.T, s *store, from, to int) {
		if from == 0 && to == 0 {
			addDeliveriesFunction(t, s)
		}
		fillDeliveries(t, s, from, to)
	}, func(t *testing.T, s *store, n int) {
		var all []engine.Delivery
		for i := range 3 {
			all = append(all, callbacks(6, fmt.Sprintf("new%d-%d.example", n, i))...)
			all = append(all, engine.Delivery{Channel: fmt.Sprint("new ", n), To: fmt.Sprint("chat ", i)}, engine.Delivery{Channel: "blocked", To: "busy"})
		}
		ids := addDeliveries(t, s, all...)
		ctx := t.Context()
		fail := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		due := claimDeliveries(t, s, 50)
		if len(due) < 21 {
			t.Fatalf("got %d deliveries", len(due))
		}
		_, err := s.deliveries.Renew(ctx, due, time.Hour)
		fail("renewing", err)
		overdue, _, err := s.deliveries.Claim(ctx, engine.DeliveryBatch{Max: 10, Lease: time.Hour, Host: "https://blocked.example:443", DueFor: time.Hour})
		fail("claiming overdue ones", err)
		more, _, err := s.deliveries.Claim(ctx, engine.DeliveryBatch{Max: 10, Lease: time.Hour, Host: "channel/blocked", DueFor: 0})
		fail("claiming overdue ones", err)
		var settling sync.WaitGroup
		for i, d := range append(due, append(overdue, more...)...) {
			d.Status = []engine.DeliveryStatus{engine.Delivered, engine.Pending, engine.Dead}[i%3]
			var throttles []engine.Throttle
			if i%5 == 0 && i < len(due) {
				throttles = []engine.Throttle{{To: d.Destination(), Pause: time.Duration(i%2) * time.Minute}, {To: engine.Destination{Host: "https://blocked.example:443"}, Pause: time.Hour},
					{To: engine.Destination{Host: "channel/blocked", Chat: "busy"}, Pause: time.Hour}, {To: engine.Destination{Host: "channel/blocked"}, Pause: time.Hour}}
			}
			settling.Go(func() {
				if err := s.deliveries.Settle(ctx, d, time.Duration(i%2)*time.Hour, throttles...); err != nil {
					t.Error(err)
				}
			})
		}
		settling.Wait()
		_, err = s.deliveries.Retry(ctx, due[2].ID, nil)
		fail("retrying", err)
		fail("dropping", s.deliveries.Drop(ctx, due[5].ID))
		_, err = s.deliveries.Waits(ctx, append(due, more...))
		fail("waits", err)
		_, err = s.deliveries.Paused(ctx, 10)
		fail("paused", err)
		_, err = s.deliveries.Get(ctx, due[0].ID)
		fail("getting", err)
		_, _, err = s.deliveries.Count(ctx)
		fail("counting", err)
		for _, query := range []engine.DeliveryQuery{
			{Limit: 20}, {Limit: 20, Cursor: ids[0]}, {Limit: 20, Statuses: []engine.DeliveryStatus{engine.Pending}},
			{Limit: 20, Statuses: []engine.DeliveryStatus{engine.Dead}}, {Limit: 20, Statuses: []engine.DeliveryStatus{engine.Dead, engine.Pending}, Cursor: ids[3]},
		} {
			_, _, err = s.deliveries.List(ctx, query)
			fail("listing", err)
		}
		fail("looking", s.exec(ctx, "SELECT @.deliveries_due_1()"))
	})
}

// Counting looks at a bounded number of deliveries of each of the two channels, of callbacks and of those that were given up.
func TestCountingDeliveriesTakesNoLongerIfThereAreMany(t *testing.T) {
	explainsUpTo(t, 2*engine.MaxCounted, func(t *testing.T, s *store, from, to int) {
		fillDeliveries(t, s, from, to)
		execForLong(t, s, `INSERT INTO @.counter (node, lane, pending, dead) SELECT 'test', 0, count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'dead') FROM @.delivery
			ON CONFLICT (node, lane) DO UPDATE SET pending = EXCLUDED.pending, dead = EXCLUDED.dead`)
	}, func(t *testing.T, s *store, _ int) {
		if _, err := s.deliveries.CountByChannel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestManyDeliveriesAreCountedUpToABound(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	const more = engine.MaxCounted + 10
	execForLong(t, s, fmt.Sprintf(`
		INSERT INTO @.delivery (run, index, seq, host, chat, status, created_at, due, ready_at, record)
		SELECT gen_random_uuid(), 0, i, CASE WHEN i %% 3 = 0 THEN 'https://a.example:443' ELSE 'channel/' || i %% 3 END, CASE WHEN i %% 3 > 0 THEN 'chat' END,
			CASE WHEN i > 3 * %[1]d THEN 'dead' ELSE 'pending' END, now(), now(), CASE WHEN i %% 3 = 0 AND i <= 3 * %[1]d THEN now() END, '{}'
		FROM generate_series(1, 3 * %[1]d + 5) i`, more))
	execForLong(t, s, fmt.Sprintf("INSERT INTO @.counter (node, lane, pending, dead) VALUES ('test', 0, 3 * %d, 5)", more))
	got, err := s.deliveries.CountByChannel(t.Context())
	want := map[string]engine.Undelivered{"": {Pending: engine.MaxCounted, Dead: 1}, "1": {Pending: engine.MaxCounted, Dead: 2}, "2": {Pending: engine.MaxCounted, Dead: 2}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}
