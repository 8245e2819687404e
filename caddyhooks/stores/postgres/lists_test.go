//go:build real

package postgres

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// endInDatabase makes runs with the numbers from up to to that have ended in one chat, a second after one another.
func endInDatabase(t *testing.T, s *store, chat string, from, to int) {
	t.Helper()
	execForLong(t, s, `INSERT INTO @.done (id, seq, chat, hook, runner, status, accepted_at, started_at, finished_at, attempts, named, past, run, ending)
		SELECT ('01900007-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, nextval('@.run_seq'), $1, 'agent', '', 'completed', to_timestamp(1718000000 + n),
			to_timestamp(1718000000 + n), to_timestamp(1718000000 + n), 1, true, false, '{"action":"agent"}', '{"status":"completed"}'
		FROM generate_series($2::int, $3::int - 1) n`, chat, from, to)
}

func TestFewChatsAreListedAtOnceHoweverManyRunsTheyHave(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	const runs = 4 * chatLooks
	endInDatabase(t, s, "old", 0, 1)
	endInDatabase(t, s, "older than the last", 1, 2)
	endInDatabase(t, s, "busy", 2, runs)
	for _, chat := range []string{"queued", "queued later"} {
		if err := s.runs.Add(t.Context(), newAdded(chat, ""), engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	query := engine.ChatQuery{Limit: 4}
	for pages := 1; ; pages++ {
		page, next, err := s.runs.Chats(t.Context(), query)
		if err != nil || pages > 2 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, chat := range page {
			got = append(got, fmt.Sprint(chat.ChatID, " ", chat.Runs))
		}
		if next == "" {
			break
		}
		query.Cursor = next
	}
	if want := []string{"queued later 1", "queued 1", fmt.Sprint("busy ", runs-2), "older than the last 1", "old 1"}; !slices.Equal(got, want) {
		t.Errorf("the chats are %q, want %q", got, want)
	}
}

func TestRunsOfALongChatAreAllListed(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	const queued, ended = 1500, 300 // more than are looked at as a whole
	endInDatabase(t, s, "long", 0, ended)
	fillRuns(t, s, 0, 2*queued) // half of them are in this chat
	execForLong(t, s, "DELETE FROM @.done WHERE finished_at > to_timestamp(1719000000)")
	for _, oldestFirst := range []bool{false, true} {
		seen := make(map[string]bool)
		query := engine.Query{ChatID: "long", Limit: 200, OldestFirst: oldestFirst}
		for last := ""; ; {
			page, next, err := s.runs.List(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range page {
				if last != "" && (record.Run.ID > last) != oldestFirst {
					t.Fatalf("run %s is listed after %s", record.Run.ID, last)
				}
				last = record.Run.ID
				seen[last] = true
			}
			if next == "" {
				break
			}
			query.Cursor = next
		}
		if len(seen) != queued+ended {
			t.Errorf("%d runs are listed, want %d", len(seen), queued+ended)
		}
	}
}

func TestRunsThatHaveToStayDoNotKeepOthersFromBeingForgotten(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	const held, old = 2*pruneStep + 100, 50
	endInDatabase(t, s, "a", 0, held+old)
	execForLong(t, s, `INSERT INTO @.delivery (run, index, seq, host, status, created_at, due, record)
		SELECT id, 0, nextval('@.delivery_seq'), 'https://example.com:443', 'pending', now(), now(), '{}' FROM @.done ORDER BY id LIMIT $1::int`, held)
	steps := 0
	for more := true; more; steps++ {
		var err error
		if more, err = s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil || steps > 10 {
			t.Fatalf("step %d: %v", steps, err)
		}
	}
	if left := s.number(t, "SELECT count(*)::int FROM @.done"); left != held {
		t.Errorf("%d runs are left after %d steps, want %d", left, steps, held)
	}
	// What is over now is found by the next pass.
	execForLong(t, s, "UPDATE @.delivery SET status = 'delivered' WHERE run = $1", filledID(7, true))
	for more := true; more; {
		var err error
		if more, err = s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.runs.Get(t.Context(), filledID(7, true)); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("the run is still there: %v", err)
	}
	if left := s.number(t, "SELECT count(*)::int FROM @.done"); left != held-1 {
		t.Errorf("%d runs are left, want %d", left, held-1)
	}
}

func TestTheRunThatAFoldHasItsEndFromStaysWithIt(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	endInDatabase(t, s, "a", 0, 3)
	execForLong(t, s, "UPDATE @.done SET folded = 3 WHERE id = $1", filledID(0, true))
	execForLong(t, s, "UPDATE @.done SET folded_into = $1, ending = NULL, finished_at = to_timestamp(1718000000) WHERE id <> $1", filledID(0, true))
	execForLong(t, s, `INSERT INTO @.delivery (run, index, seq, host, status, created_at, due, record)
		VALUES ($1, 0, nextval('@.delivery_seq'), 'https://example.com:443', 'pending', now(), now(), '{}')`, filledID(2, true))
	forget := func() (left []string) {
		if _, err := s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
		page, _, err := s.runs.List(t.Context(), engine.Query{Limit: 10, OldestFirst: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page {
			if record.Outcome.Status != engine.Completed {
				t.Errorf("run %s has lost its end", record.Run.ID)
			}
			left = append(left, record.Run.ID)
		}
		return left
	}
	if left := forget(); !slices.Equal(left, []string{filledID(0, true), filledID(2, true)}) {
		t.Errorf("left are %v", left)
	}
	execForLong(t, s, "UPDATE @.delivery SET status = 'delivered'")
	if left := forget(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestNodesThatForgetTogetherCountRight(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	nodes := []*store{s, joinTestStore(t, s), joinTestStore(t, s)}
	const runs = 3 * pruneStep
	fillHistory(t, s, 0, runs)
	var pruning sync.WaitGroup
	for _, node := range nodes {
		pruning.Go(func() {
			for range 4 {
				if _, err := node.Prune(t.Context(), engine.Limits{Retention: time.Hour, Keys: 10, HistoryBytes: 100}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	pruning.Wait()
	for more := true; more; {
		var err error
		if more, err = s.Prune(t.Context(), engine.Limits{Retention: time.Hour, Keys: 10, HistoryBytes: 100}); err != nil {
			t.Fatal(err)
		}
	}
	for what, want := range map[string]int{
		"SELECT count(*)::int FROM @.done":           0,
		"SELECT count(*)::int FROM @.told":           0,
		"SELECT count(*)::int FROM @.delivery":       0,
		"SELECT count(*)::int FROM @.session":        0,
		"SELECT count(*)::int FROM @.key":            10,
		"SELECT sum(keys)::int FROM @.counter":       10,
		"SELECT sum(told_bytes)::int FROM @.counter": 0,
		"SELECT sum(queued)::int FROM @.counter":     runs,
	} {
		if got := s.number(t, what); got != want {
			t.Errorf("%s is %d, want %d", what, got, want)
		}
	}
}

// A pgbouncer in transaction mode may know no prepared statements, and then nobody says of what types arguments are.
func TestRunsAreReadWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	plain := newTestStore(t)
	fillHistory(t, plain, 0, 300)
	n, err := parseDSN(pgtest.Shared(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	n.Config.DefaultQueryExecMode = pgx.QueryExecModeExec
	d := newDatabase(n, plain.schema)
	if err := d.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newStore(d)
	t.Cleanup(func() { _ = s.Close() })
	ctx, minute := t.Context(), engine.Minute{At: time.Unix(1718000040, 0), Part: 1 << 63, Accepted: 3}
	for what, call := range map[string]func() (int, error){
		"a run": func() (int, error) { r, err := s.runs.Get(ctx, filledID(9, true)); return r.Attempts, err },
		"runs":  func() (int, error) { page, _, err := s.runs.List(ctx, engine.Query{Limit: 10}); return len(page), err },
		"chats": func() (int, error) {
			page, _, err := s.runs.Chats(ctx, engine.ChatQuery{Limit: 5, Text: "chat"})
			return len(page), err
		},
		"the past":  func() (int, error) { past, err := s.runs.Past(ctx, "long", 5, 1000); return len(past), err },
		"a session": func() (int, error) { id, err := s.sessions.Get(ctx, "", "chat 1"); return len(id), err },
		"queued":    func() (int, error) { return s.runs.Queued(ctx) },
		"unfinished": func() (int, error) {
			is, err := s.runs.Unfinished(ctx, filledID(9, false))
			return map[bool]int{true: 1}[is], err
		},
		"some runs": func() (int, error) {
			page, _, err := s.runs.List(ctx, engine.Query{ChatID: "long", Hooks: []string{"agent"}, Statuses: []engine.Status{engine.Completed, engine.Queued}, Text: "hello", Limit: 10})
			return len(page), err
		},
		"minutes": func() (int, error) {
			if err := s.minutes.Save(ctx, minute); err != nil {
				return 0, err
			}
			loaded, err := s.minutes.Load(ctx, time.Time{})
			return len(loaded), err
		},
	} {
		if found, err := call(); err != nil || found == 0 {
			t.Errorf("%s: %d, %v", what, found, err)
		}
	}
	for _, limits := range []engine.Limits{{}, {Retention: time.Hour, Keys: 5, KeyAge: time.Hour, History: engine.NoHistory, HistoryBytes: 10}} {
		if _, err := s.Prune(ctx, limits); err != nil {
			t.Error(err)
		}
	}
}
