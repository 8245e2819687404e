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

// asideID is the id of a run that fillAside made.
func asideID(n int) string { return fmt.Sprintf("01900006-0000-7000-8000-%012x", n) }

// fillAside makes runs that are put aside, and others that have ended and that are ready.
func fillAside(t *testing.T, s *store, from, to int) {
	t.Helper()
	fillRuns(t, s, from, to)
	if from < to {
		fillOnlyAside(t, s, from, to)
	}
}

// fillOnlyAside makes runs that are put aside, and are older than all others: half of them for people, and half with a time. Each has
// a question that was answered, too, and was asked later.
func fillOnlyAside(t testing.TB, s *store, from, to int) {
	t.Helper()
	const id = "('01900006-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
	for _, statement := range []string{
		`INSERT INTO @.queue (id, seq, chat, head, question, asked, due_at, waiting_for, kind, hook, runner, accepted_at, size, named, run)
			SELECT ` + id + `, nextval('@.run_seq'), 'aside ' || n, true, 0, 100, CASE WHEN n % 4 < 2 THEN now() + interval '1 day' END, 'somebody', 1,
				CASE WHEN n % 5000 = 1 THEN 'rare' ELSE 'agent' END, '', to_timestamp(1718000000), 5, true, '{"action":"agent","message":"hello"}'
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.question (run, number, seq, people, asked_at, record)
			SELECT ` + id + `, 0, nextval('@.question_seq'), n % 2 = 0, now(), CASE WHEN n % 2 = 0 THEN '{"kind":"start"}' ELSE '{"kind":"agent"}' END::json
			FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.question (run, number, seq, people, asked_at, answered_at, record)
			SELECT ` + id + `, 1, nextval('@.question_seq'), true, now(), now(), '{"kind":"start"}' FROM generate_series($1::int, $2::int - 1) n`,
		`INSERT INTO @.counter AS c (node, lane, waiting, asking) VALUES ('fill', 2, $2::int - $1::int, ($2::int - $1::int) / 2)
			ON CONFLICT (node, lane) DO UPDATE SET waiting = c.waiting + excluded.waiting, asking = c.asking + excluded.asking`,
	} {
		execForLong(t, s, statement, from, to)
	}
}

func TestQuestionsTakeNoLongerIfManyRunsArePutAside(t *testing.T) {
	t.Parallel()
	explains(t, fillAside, func(t *testing.T, s *store, n int) {
		ctx := t.Context()
		must := func(err error, unless ...error) {
			t.Helper()
			for _, known := range unless {
				if errors.Is(err, known) {
					return
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			run := &engine.Run{ChatID: fmt.Sprint("call ", n, i/2), Hook: "agent", QueueTime: time.Millisecond}
			must(s.Runs().Add(ctx, run, engine.Terms{Limits: engine.Limits{Queue: 10_000_000, Chat: 10}}))
			_, err := s.Questions().Answer(ctx, engine.QuestionID(run.ID, 0), engine.Answer{Text: "early"})
			must(err)
		}
		must(s.Runs().Add(ctx, &engine.Run{ChatID: fmt.Sprint("aside ", n), Hook: "agent"}, engine.Terms{Limits: engine.Limits{Chat: 100}}))
		for range 3 {
			claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 4, Lease: time.Hour})
			must(err)
			for i, claim := range claims {
				number := len(claim.Questions)
				if number > 0 && claim.Questions[number-1].AskedAt.IsZero() {
					number--
				}
				question := &engine.Question{Number: number, Kind: engine.AskInput, For: time.Hour, State: []byte("state")}
				delivery := &engine.Delivery{RunID: claim.Run.ID, Index: engine.QuestionDeliveryIndex(number, false), Callback: "http://127.0.0.1:1/"}
				switch i {
				case 0:
					must(s.Questions().Ask(ctx, claim, question, delivery))
					_, err = s.Runs().End(ctx, claim, engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{Max: 1, Lease: time.Hour})
				case 1:
					_, err = s.Runs().End(ctx, claim, engine.End{Requeue: true}, engine.Batch{})
				default:
					_, err = s.Runs().End(ctx, claim, engine.End{Requeue: true, Question: question, Deliveries: []*engine.Delivery{delivery}}, engine.Batch{})
					must(err)
					_, err = s.Questions().Answer(ctx, question.ID(), engine.Answer{Text: "yes"}, delivery)
					must(err, engine.ErrNotFound) // it has no run here
					_, err = s.Questions().Answer(ctx, engine.QuestionID(claim.Run.ID, number), engine.Answer{Text: "yes"}, delivery)
					if errors.Is(err, engine.ErrAnswered) {
						err = nil
					}
				}
				must(err)
			}
		}
		id := engine.QuestionID(asideID(n), 0)
		_, err := s.Questions().Answer(ctx, id, engine.Answer{Text: "yes"})
		must(err, engine.ErrNotFound)
		_, err = s.Questions().Answer(ctx, id, engine.Answer{Text: "yes"})
		must(err, engine.ErrNotFound, engine.ErrAnswered)
		_, err = s.Questions().Get(ctx, id)
		must(err, engine.ErrNotFound)
		_, err = s.Runs().End(ctx, &engine.Claim{Run: &engine.Run{ID: asideID(n + 500)}}, engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}}, engine.Batch{})
		must(err, engine.ErrClaimLost)
		page, next, err := s.Questions().List(ctx, 20, "")
		must(err)
		if len(page) == 20 {
			_, _, err = s.Questions().List(ctx, 20, next)
			must(err)
		}
		_, err = s.Questions().Count(ctx)
		must(err)
		_, err = s.Runs().Backlog(ctx)
		must(err)
		_, _, err = s.Runs().Overdue(ctx, 2)
		must(err)
		must(s.Runs().Resume(ctx))
	})
}

func TestListingTakesNoLongerIfManyRunsArePutAside(t *testing.T) {
	t.Parallel()
	explainsUpTo(t, local.ListLooksAt+1000, fillAside, func(t *testing.T, s *store, n int) {
		waiting := []engine.Status{engine.Waiting}
		for i, query := range []engine.Query{
			{}, {Statuses: waiting}, {Statuses: waiting, Cursor: asideID(500)}, {Statuses: append(waiting, engine.Running)}, {Statuses: append(waiting, engine.Failed)},
			{Statuses: []engine.Status{engine.Queued}}, {Statuses: []engine.Status{engine.Queued, engine.Waiting}},
			{Hooks: []string{"rare"}}, {Hooks: []string{"rare"}, Statuses: waiting}, {Hooks: []string{"none", "agent"}, Statuses: waiting},
			{Hooks: []string{"agent"}, Statuses: []engine.Status{engine.Queued}}, {ChatID: fmt.Sprint("aside ", n), Statuses: waiting}, {Prefix: asideID(n)},
		} {
			query.Limit, query.OldestFirst = 20, n%2 == 0
			if _, _, err := s.runs.List(t.Context(), query); err != nil {
				t.Fatalf("query %d: %v", i, err)
			}
		}
	})
}
