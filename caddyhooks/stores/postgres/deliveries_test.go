//go:build real

package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// addDeliveries adds one delivery for each of some destinations, as the ends of runs do.
func addDeliveries(t testing.TB, s *store, to ...engine.Delivery) (ids []string) {
	t.Helper()
	var (
		runs, names, hosts, records []string
		indexes                     []int32
		chats                       []*string
		bodies                      [][]byte
	)
	for _, d := range to {
		run, err := uuid.NewV7()
		if err != nil {
			t.Fatal(err)
		}
		d.RunID, d.ID = run.String(), engine.DeliveryID(run.String(), 0)
		record, err := codec.EncodeDelivery(&d)
		if err != nil {
			t.Fatal(err)
		}
		ids, names = append(ids, d.ID), append(names, d.ID)
		runs, indexes, records, bodies = append(runs, d.RunID), append(indexes, 0), append(records, record), append(bodies, []byte("a body"))
		hosts, chats = append(hosts, codec.Escape(d.Destination().Host)), append(chats, chatColumn(d.Destination()))
	}
	for _, call := range []struct {
		sql       string
		arguments []any
	}{
		{"SELECT @.test_add_deliveries($1, $2, $3, $4, $5, $6, $7)", []any{runs, indexes, names, hosts, chats, records, bodies}},
	} {
		if err := s.exec(t.Context(), call.sql, call.arguments...); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// newDeliveryStore opens a schema of its own, with a function that adds deliveries as the ends of runs do.
func newDeliveryStore(t testing.TB) *store {
	t.Helper()
	s := newTestStore(t)
	addDeliveriesFunction(t, s)
	return s
}

func addDeliveriesFunction(t testing.TB, s *store) {
	t.Helper()
	err := s.exec(t.Context(), `CREATE FUNCTION @.test_add_deliveries(p_runs text[], p_indexes int[], p_ids text[], p_hosts text[], p_chats text[],
		p_records text[], p_bodies bytea[]) RETURNS void LANGUAGE plpgsql SET search_path = `+pgx.Identifier{s.schema}.Sanitize()+` AS $$
		BEGIN
			PERFORM add_deliveries_1(p_runs, p_indexes, p_ids, p_hosts, p_chats, p_records, p_bodies, clock_1());
			PERFORM bump_1('test', 2, 0, 0, cardinality(p_runs), 0, 0, 0);
		END $$`)
	if err != nil {
		t.Fatal(err)
	}
}

// checkDeliveries expects that hosts, chats and figures are as they should be.
func checkDeliveries(t testing.TB, s *store) {
	t.Helper()
	for what, statement := range map[string]string{
		"callbacks that nobody can claim": "SELECT count(*) FROM @.delivery WHERE status = 'pending' AND chat IS NULL AND lease_until IS NULL AND ready_at IS DISTINCT FROM due",
		"chats that wait without a head": `SELECT count(*) FROM (SELECT DISTINCT host, chat FROM @.delivery WHERE status = 'pending' AND chat IS NOT NULL) c
			WHERE NOT EXISTS (SELECT FROM @.delivery d WHERE d.host = c.host AND d.chat = c.chat AND (d.ready_at IS NOT NULL OR d.lease_until IS NOT NULL))
			AND NOT EXISTS (SELECT FROM @.delivery_news n WHERE n.host = c.host AND n.chat = c.chat)`,
		"heads that are not the first": `SELECT count(*) FROM @.delivery d WHERE chat IS NOT NULL AND ready_at IS NOT NULL AND EXISTS (
			SELECT FROM @.delivery e WHERE e.host = d.host AND e.chat = d.chat AND e.status = 'pending' AND (e.due, e.seq) < (d.due, d.seq))`,
		"heads of chats with one under way": `SELECT count(*) FROM @.delivery d WHERE chat IS NOT NULL AND ready_at IS NOT NULL AND EXISTS (
			SELECT FROM @.delivery e WHERE e.host = d.host AND e.chat = d.chat AND e.lease_until IS NOT NULL)`,
		"deliveries with a place but not pending": "SELECT count(*) FROM @.delivery WHERE status <> 'pending' AND (ready_at IS NOT NULL OR lease_until IS NOT NULL OR holds)",
		"hosts that nobody looks at": `SELECT count(*) FROM (SELECT host, min(ready_at) AS ready_at FROM @.delivery WHERE ready_at IS NOT NULL GROUP BY host) d LEFT JOIN @.host h USING (host)
			WHERE NOT EXISTS (SELECT FROM @.delivery_news n WHERE n.host = d.host) AND h.next_at IS DISTINCT FROM greatest(d.ready_at, h.until)
			AND (SELECT count(*) FROM @.delivery u WHERE u.host = d.host AND u.lease_until > @.clock_1()) < coalesce(h.at_once, 16)`,
		"throttles of nothing":                `SELECT count(*) FROM @.host h WHERE (until IS NOT NULL OR at_once IS NOT NULL) AND NOT EXISTS (SELECT FROM @.delivery d WHERE d.host = h.host AND status = 'pending')`,
		"pauses of nothing":                   `SELECT count(*) FROM @.chat_pause p WHERE NOT EXISTS (SELECT FROM @.delivery d WHERE d.host = p.host AND d.chat = p.chat AND status = 'pending')`,
		"pending more than there are counted": "SELECT (SELECT count(*) FROM @.delivery WHERE status = 'pending') - (SELECT coalesce(sum(pending), 0) FROM @.counter)",
		"dead more than there are counted":    "SELECT (SELECT count(*) FROM @.delivery WHERE status = 'dead') - (SELECT coalesce(sum(dead), 0) FROM @.counter)",
	} {
		if n := s.number(t, statement); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}

// callbacks are n deliveries to a host.
func callbacks(n int, host string) (all []engine.Delivery) {
	for range n {
		all = append(all, engine.Delivery{Callback: fmt.Sprintf("https://%s/callback", host)})
	}
	return all
}

func claimDeliveries(t testing.TB, s *store, n int) []*engine.Delivery {
	t.Helper()
	due, _, err := s.deliveries.Claim(t.Context(), engine.DeliveryBatch{Max: n, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return due
}

func TestDeliveriesAreClaimedAndSettled(t *testing.T) {
	t.Parallel()
	s := newDeliveryStore(t)
	addDeliveries(t, s, append(callbacks(20, "busy.example"), callbacks(3, "calm.example")...)...)
	due := claimDeliveries(t, s, 100)
	if len(due) != 19 {
		t.Fatalf("got %d deliveries, want 16 of one host and 3 of the other", len(due))
	}
	for _, d := range due {
		d.Status = engine.Delivered
		if err := s.deliveries.Settle(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if due := claimDeliveries(t, s, 100); len(due) != 4 {
		t.Errorf("got %d more, want 4", len(due))
	}
	if pending, dead, err := s.deliveries.Count(t.Context()); pending != 4 || dead != 0 || err != nil {
		t.Errorf("%d are pending and %d dead, want 4 and 0: %v", pending, dead, err)
	}
	checkDeliveries(t, s)
}
