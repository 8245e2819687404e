package bolt

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// TestQuestionsOnAFullDisk has every write of a question fail once. Then all is as it was before, in the file and in memory.
func TestQuestionsOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	ctx, lease := t.Context(), engine.Batch{Max: 1, Lease: time.Hour}
	run := testRun("chat", "")
	run.QueueTime = time.Minute
	if err := s.Runs().Add(ctx, run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	claim := func() *engine.Claim {
		t.Helper()
		claims, _, err := s.Runs().Claim(ctx, lease)
		if err != nil || len(claims) != 1 {
			t.Fatalf("claimed %d runs: %v", len(claims), err)
		}
		return claims[0]
	}
	type state struct {
		Record    *engine.Record
		Backlog   engine.Backlog
		Open      []*engine.Question
		OpenCount int
		Pending   int
		Asked     bool
	}
	look := func() (now state) {
		t.Helper()
		var err, backlogErr, listErr error
		now.Record, err = s.Runs().Get(ctx, run.ID)
		now.Backlog, backlogErr = s.Runs().Backlog(ctx)
		now.Open, _, listErr = s.Questions().List(ctx, 10, "")
		now.OpenCount, _ = s.Questions().Count(ctx)
		now.Pending, _, _ = s.Deliveries().Count(ctx)
		now.Backlog.Oldest, now.Asked = 0, s.queue.HasAsked(uuid.MustParse(run.ID))
		if err := errors.Join(err, backlogErr, listErr); err != nil {
			t.Fatal(err)
		}
		return now
	}
	// once fails at first, and is done then.
	once := func(name string, do func() error) {
		t.Helper()
		before := look()
		s.committer.commitTx = func(tx *bbolt.Tx) error { return errors.Join(errors.New("the disk is full"), tx.Rollback()) }
		if err := do(); err == nil {
			t.Fatalf("%s did not fail", name)
		}
		s.committer.commitTx = (*bbolt.Tx).Commit
		if after := look(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s failed, and left %+v, which was %+v", name, after, before)
		}
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if after := look(); reflect.DeepEqual(after, before) {
			t.Errorf("%s changed nothing", name)
		}
	}
	delivery := func(index int) *engine.Delivery {
		return &engine.Delivery{ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index, Callback: "https://example.com/"}
	}
	first := claim()
	once("asking", func() error {
		return s.Questions().Ask(ctx, first, &engine.Question{Kind: engine.AskPermission}, delivery(100))
	})
	once("putting aside", func() error {
		question := &engine.Question{Kind: engine.AskStart, For: time.Hour, Number: 1}
		_, err := s.Runs().End(ctx, first, engine.End{Requeue: true, WaitingFor: "x", Question: question, Deliveries: []*engine.Delivery{delivery(102)}}, lease)
		return err
	})
	once("answering", func() error {
		_, err := s.Questions().Answer(ctx, engine.QuestionID(run.ID, 1), engine.Answer{Text: "yes"}, delivery(103))
		return err
	})
	second := claim()
	once("putting aside again", func() error {
		_, err := s.Runs().End(ctx, second, engine.End{Requeue: true, WaitingFor: "x", Question: &engine.Question{Kind: engine.AskAgent, Number: 2}}, lease)
		return err
	})
	once("an early answer", func() error {
		_, err := s.Questions().Answer(ctx, engine.QuestionID(run.ID, 3), engine.Answer{Text: "yes"})
		return err
	})
	once("ending a run that is put aside", func() error {
		return withdraw(t, s, run, engine.End{Outcome: engine.Outcome{Status: engine.Cancelled}, Deliveries: []*engine.Delivery{delivery(0)}})
	})
	if now := look(); now.Record.Status != engine.Cancelled || len(now.Record.Questions) != 4 || len(now.Record.Deliveries) != 4 || now.OpenCount != 0 || now.Pending != 4 {
		t.Errorf("at the end it is %+v", now)
	}
}

// TestRunsPutAsideCostNothingToAccept accepts runs beside others that are put aside. No more pages are written than without those, also after the
// file was opened again.
func TestRunsPutAsideCostNothingToAccept(t *testing.T) {
	t.Parallel()
	const waiting = 100
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	pages := func() (n int64) {
		t.Helper()
		before := s.db.Stats().TxStats
		if err := s.Runs().Add(t.Context(), testRun("another chat", "hello"), engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		after := s.db.Stats().TxStats
		n = after.GetWrite() - before.GetWrite()
		finishAll(t, s)
		return n
	}
	want := pages()
	check := func(when string, backlog engine.Backlog) {
		t.Helper()
		now, err := s.Runs().Backlog(t.Context())
		now.Oldest = 0
		if n := pages(); n != want || err != nil || now != backlog {
			t.Errorf("%s it takes %d pages to accept a run, want %d; the backlog is %+v, %v", when, n, want, now, err)
		}
	}
	addRuns(t, s, waiting, 50)
	claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: waiting, Lease: time.Hour})
	for _, claim := range claims {
		end := engine.End{Requeue: true, WaitingFor: "x", Question: &engine.Question{Kind: engine.AskStart, For: time.Hour}}
		_, endErr := s.Runs().End(t.Context(), claim, end, engine.Batch{})
		err = errors.Join(err, endErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("beside runs that are put aside", engine.Backlog{Waiting: waiting})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	check("after the file was opened again", engine.Backlog{Waiting: waiting})
}
