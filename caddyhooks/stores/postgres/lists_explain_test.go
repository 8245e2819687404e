//go:build real

package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// filledID is the id of a run that fillHistory made.
func filledID(n int, ended bool) string {
	kind := 8
	if ended {
		kind = 7
	}
	return fmt.Sprintf("0190000%d-0000-7000-8000-%012x", kind, n)
}

// fillHistory makes runs that have ended and, later ones, that have not. Of both, half are in one chat, and the others in one each, of which
// somebody named every other one. There are few runs of the hook rare, few that failed, and ten that are carried out.
func fillHistory(t *testing.T, s *store, from, to int) {
	t.Helper()
	if from == to {
		return
	}
	const chat = "CASE WHEN n % 2 = 0 THEN 'long' ELSE 'chat ' || n END"
	const hook = "CASE WHEN n % 5000 = 1 THEN 'rare' ELSE 'agent' END"
	for _, statement := range []string{

		`INSERT INTO @.done (id, seq, chat, hook, runner, status, accepted_at, started_at, finished_at, attempts, named, past, folded_into, request, run, ending)
			SELECT ('01900007-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, nextval('@.run_seq'), ` + chat + `, ` + hook + `, '',
				CASE WHEN n % 3000 = 3 THEN 'failed' ELSE 'completed' END, to_timestamp(1718000000 + n), to_timestamp(1718000000 + n), to_timestamp(1718000000 + n), 1,
				n % 4 <> 1, n % 7 <> 0, CASE WHEN n % 100 = 99 THEN ('01900007-0000-7000-8000-' || lpad(to_hex(n - 1), 12, '0'))::uuid END, 'evt_' || n / 2,
				'{"action":"agent","history":1000}', '{"status":"completed","text":"an answer"}'
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.told (id, at, until, bytes, told)
			SELECT ('01900007-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, to_timestamp(1718000000 + n), to_timestamp(1718000000 + n) + interval '1000 years', 10, '{"message":"hello"}'
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.delivery (run, index, seq, host, status, created_at, due, record)
			SELECT ('01900007-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0, nextval('@.delivery_seq'), 'https://example.com:443', 'delivered', now(), now(), '{}'
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, size, named, request, run, node, lease_until, starts)
			SELECT ('01900008-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, nextval('@.run_seq'), ` + chat + `, n % 2 = 1 OR n = 0,
				CASE WHEN n > 20 AND n % 2 = 1 THEN nextval('@.turn_seq') END, 1, ` + hook + `, '', now(), 5, n % 4 <> 1, 'evt_' || n / 2, '{"action":"agent","message":"hello"}',
				CASE WHEN n < 20 AND n % 2 = 1 THEN 'a' END, CASE WHEN n < 20 AND n % 2 = 1 THEN now() + interval '1 day' END, 0
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.key (id, body, at, run, first) SELECT sha256(('fill ' || n)::bytea), sha256('body'), to_timestamp(1718000000 + n), gen_random_uuid(), '{}'
			FROM generate_series($1::int, $2::int - 1) n ON CONFLICT DO NOTHING`,
		`INSERT INTO @.session (runner, chat, id, named_at, age_at) SELECT '', 'chat ' || n, 'one', to_timestamp(1718000000 + n), to_timestamp(1718000000 + n)
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.counter AS c (node, lane, queued, keys, told_bytes) VALUES ('', 1, $2::int - $1::int, $2::int - $1::int, 10 * ($2::int - $1::int))
			ON CONFLICT (node, lane) DO UPDATE SET queued = c.queued + excluded.queued, keys = c.keys + excluded.keys, told_bytes = c.told_bytes + excluded.told_bytes`,
	} {
		execForLong(t, s, statement, from, to)
	}
}

func TestReadingTakesNoLongerInALargeStore(t *testing.T) {
	t.Parallel()
	explains(t, fillHistory, func(t *testing.T, s *store, n int) {
		ctx := t.Context()
		for _, id := range []string{filledID(n, true), filledID(n, false), filledID(99, true), filledID(1<<30, true)} {
			if _, err := s.runs.Get(ctx, id); err != nil && !errors.Is(err, engine.ErrNotFound) {
				t.Fatal(err)
			}
			if _, err := s.runs.Unfinished(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		for _, chat := range []string{"long", fmt.Sprint("chat ", n), "none"} {
			if _, err := s.runs.Past(ctx, chat, 20, 1000); err != nil {
				t.Fatal(err)
			}
			if _, err := s.sessions.Get(ctx, "", chat); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.runs.Backlog(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

func TestListingTakesNoLongerInALargeStore(t *testing.T) {
	t.Parallel()
	explainsUpTo(t, local.ListLooksAt+1000, fillHistory, func(t *testing.T, s *store, n int) {
		failed, completed, running, queued := []engine.Status{engine.Failed}, []engine.Status{engine.Completed}, []engine.Status{engine.Running}, []engine.Status{engine.Queued}
		agent, rare := []string{"agent"}, []string{"rare", "none"}
		for i, query := range []engine.Query{
			{}, {OldestFirst: true}, {Input: true, Replies: true, Deliveries: true}, {Cursor: filledID(500, true)}, {Prefix: filledID(n, true)},
			{ChatID: "long"}, {ChatID: "long", Statuses: failed}, {ChatID: fmt.Sprint("chat ", 2*n+1)}, {ChatID: "none"}, {ChatID: "long", Hooks: rare},
			{Hooks: agent}, {Hooks: rare}, {Hooks: rare, Cursor: filledID(1<<20, true)}, {Hooks: []string{"none"}},
			{Statuses: failed}, {Statuses: completed}, {Statuses: running}, {Statuses: queued}, {Statuses: append(queued, engine.TimedOut)},
			{Hooks: rare, Statuses: failed}, {Hooks: rare, Statuses: completed}, {Hooks: rare, Statuses: queued},
			{RequestID: fmt.Sprint("evt_", n)}, {RequestID: "evt_1", ChatID: "long", Statuses: failed}, {RequestID: "none", Hooks: agent},
			{Runners: []string{""}}, {Since: time.Unix(1718000000, 0), Until: time.Unix(1718000500, 0)},
		} {
			query.Limit = 20
			if n%2 == 0 {
				query.OldestFirst = !query.OldestFirst
			}
			if _, _, err := s.runs.List(t.Context(), query); err != nil {
				t.Fatalf("query %d: %v", i, err)
			}
		}
	})
}

func TestListingChatsTakesNoLongerInALargeStore(t *testing.T) {
	t.Parallel()
	explainsUpTo(t, 2*countedRuns, fillHistory, func(t *testing.T, s *store, _ int) {
		for _, query := range []engine.ChatQuery{{Input: true}, {Cursor: filledID(0, false)}, {Text: "none"}} {
			query.Limit = 20
			if _, _, err := s.runs.Chats(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestForgettingTakesNoLongerInALargeStore(t *testing.T) {
	t.Parallel()
	explainsUpTo(t, 3*pruneStep, fillHistory, func(t *testing.T, s *store, n int) {
		for _, limits := range []engine.Limits{
			{}, {Retention: time.Since(time.Unix(1718000000, 0))}, {Retention: time.Hour}, {KeyAge: time.Hour}, {Keys: 10}, {History: time.Hour}, {HistoryBytes: 10},
		} {
			if _, err := s.Prune(t.Context(), limits); err != nil {
				t.Fatal(err)
			}
		}
	})
}
