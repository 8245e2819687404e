//go:build real

package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestRunIsPutAsideUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	s := newPostgres(t)
	ctx := t.Context()
	t.Cleanup(func() { _ = s.Close() })
	run := &engine.Run{ChatID: "a", QueueTime: time.Minute}
	if err := s.Runs().Add(ctx, run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	batch := engine.Batch{Max: 1, Lease: time.Hour}
	claims, _, err := s.Runs().Claim(ctx, batch)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	delivery := &engine.Delivery{ID: engine.DeliveryID(run.ID, 100), RunID: run.ID, Index: 100, Channel: "ops", To: "1", Question: "q", Body: "?"}
	end := engine.End{Requeue: true, WaitingFor: "x", Question: &engine.Question{Kind: engine.AskStart, For: time.Hour, Text: "?"}, Deliveries: []*engine.Delivery{delivery}}
	for range 2 {
		next, err := s.Runs().End(ctx, claims[0], end, batch)
		record, _ := s.Runs().Get(ctx, run.ID)
		backlog, _ := s.Runs().Backlog(ctx)
		if len(next) > 0 || err != nil || record.Status != engine.Waiting || record.WaitingFor != "x" || len(record.Questions) != 1 || len(record.Deliveries) != 1 ||
			backlog != (engine.Backlog{Waiting: 1}) {
			t.Errorf("%v, %v, %+v, %+v", next, err, record, backlog)
		}
	}
	listed, _, err := s.Runs().List(ctx, engine.Query{Statuses: []engine.Status{engine.Waiting}, Limit: 10})
	if err != nil || len(listed) != 1 {
		t.Errorf("listed %v: %v", listed, err)
	}
	open, _, _ := s.Questions().List(ctx, 10, "")
	if n, err := s.Questions().Count(ctx); n != 1 || err != nil || len(open) != 1 {
		t.Fatal(n, open, err)
	}
	if _, err := s.Questions().Answer(ctx, open[0].ID(), engine.Answer{Text: "yes"}); err != nil {
		t.Fatal(err)
	}
	if q, err := s.Questions().Answer(ctx, open[0].ID(), engine.Answer{Text: "no"}); !errors.Is(err, engine.ErrAnswered) || q.Answer.Text != "yes" {
		t.Fatal(q, err)
	}
	claims, _, err = s.Runs().Claim(ctx, batch)
	if err != nil || len(claims) != 1 || len(claims[0].Questions) != 1 || claims[0].Questions[0].Answer.Text != "yes" {
		t.Fatal(claims, err)
	}
	if err := s.Questions().Ask(ctx, claims[0], &engine.Question{Number: 1, Kind: engine.AskPermission, State: []byte("s")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Runs().End(ctx, claims[0], engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, batch); err != nil {
		t.Fatal(err)
	}
	record, err := s.Runs().Get(ctx, run.ID)
	if err != nil || len(record.Questions) != 2 || record.Questions[1].Answer.Via != engine.AnsweredByEnd || len(record.Deliveries) != 1 {
		t.Fatal(record, err)
	}
	if n, err := s.Questions().Count(ctx); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}
