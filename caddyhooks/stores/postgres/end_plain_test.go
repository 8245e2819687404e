//go:build real

package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Whichever way a run ends, the same is stored.
func TestAPlainEndIsLikeAnother(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	batch := engine.Batch{Max: 1, Lease: time.Hour}
	var rows [2]string
	for way, care := range []care{careOfLocked, careOfPlain} {
		chat := fmt.Sprint("chat ", way)
		first, second := newAdded(chat, ""), newAdded(chat, "")
		first.History = time.Hour
		for _, run := range []*engine.Run{first, second} {
			if err := s.runs.Add(t.Context(), run, engine.Terms{}); err != nil {
				t.Fatal(err)
			}
		}
		claims, _, err := s.runs.Claim(t.Context(), batch)
		if err != nil || len(claims) != 1 {
			t.Fatalf("claimed %d runs: %v", len(claims), err)
		}
		e, err := newEnding(claims[0], engine.End{
			Outcome: engine.Outcome{Status: engine.Completed, Text: "an answer"},
			Session: engine.Session{Runner: chat, ID: "session"},
			Spent:   []engine.LedgerEntry{{Account: chat, Span: time.Hour, Keep: time.Hour, Runs: 1}},
		})
		if err != nil || !e.isPlain() {
			t.Fatalf("it is not a plain end: %v", err)
		}
		if care == careOfPlain {
			if err := s.exec(t.Context(), "ALTER FUNCTION @.end_runs_1 RENAME TO not_called"); err != nil {
				t.Fatal(err)
			}
		}
		call := &turnover{end: e, next: batch}
		answer, err := s.runs.claiming.ask(t.Context(), []*turnover{call}, newAsks([]*turnover{call}), care)
		if err != nil || answer.ends[0] != "ended" || len(answer.byAsk[1]) != 1 || answer.byAsk[1][0].Run.ID != second.ID {
			t.Fatalf("care %v: %+v, %v", care, answer, err)
		}
		if err := s.query(t.Context(), func(row pgx.Rows) error { return row.Scan(&rows[way]) }, `
			SELECT concat_ws(' ', d.seq IS NOT NULL, d.hook, d.runner, d.status, d.started_at >= d.accepted_at, d.finished_at >= d.started_at, d.attempts, d.token = $2, d.named, d.past,
				coalesce(d.folded_into::text, '-'), d.folded, coalesce(d.request, '-'), d.run, d.ending, t.until - d.finished_at, t.bytes, t.told, x.id,
				l.runs, q.head, q.node, q.starts)
			FROM @.done d JOIN @.told t ON t.id = d.id JOIN @.session x ON x.chat = d.chat JOIN @.ledger l ON l.account = d.chat JOIN @.queue q ON q.chat = d.chat
			WHERE d.chat = $1`, chat, claims[0].Token); err != nil {
			t.Fatal(err)
		}
		checkQueue(t, s, 0)
		if n := s.number(t, "SELECT sum(running) FROM @.counter"); n != way+1 {
			t.Errorf("%d runs are counted, want %d", n, way+1)
		}
	}
	if rows[0] != rows[1] || rows[0] == "" {
		t.Errorf("a plain end stores\n%s\nand another one\n%s", rows[1], rows[0])
	}
}

// A plain end that is repeated has the others of its batch end in another way, which still locks no chat against those who add to it.
func TestARepeatedEndDoesNotHoldUpWhoAdds(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	var ends []*turnover
	for _, chat := range []string{"repeated", "followed", "followed"} {
		if err := s.runs.Add(t.Context(), newAdded(chat, ""), engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	claims, _, err := s.runs.Claim(t.Context(), engine.Batch{Max: 2, Lease: time.Hour})
	if err != nil || len(claims) != 2 {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	for _, claim := range claims {
		e, err := newEnding(claim, end)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, &turnover{end: e})
	}
	if _, err := s.runs.End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	adds := dialTest(t, s) // somebody who has added to the chat, and whose transaction is not over
	execAll(t, adds, s, "BEGIN", "SELECT pg_advisory_xact_lock_shared(@.chat_lock_1('followed'))")
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := s.runs.claiming.carryOutTogether(ctx, ends); err != nil {
		t.Fatalf("they wait for whoever adds: %v", err)
	}
	execAll(t, adds, s, "COMMIT")
	for i, end := range ends {
		if end.err != nil || end.state != turnoverAnswered {
			t.Errorf("end %d: %v", i, end.err)
		}
	}
	checkQueue(t, s, 1)
}
