package bolt

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// isMarked reports whether a run is known to have been run again.
func isMarked(t *testing.T, s *store, id string) (marked bool) {
	t.Helper()
	key := uuid.MustParse(id)
	err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		marked = tx.Bucket(againBucket).Get(key[:]) != nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return marked
}

func TestARunAndTheMarkOfItsFirstAreWrittenTogether(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	first, err := endWithHistory(t, s, "hello", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	again := testRun("chat", "hello")
	again.AgainOf = first.ID
	s.committer.commitTx = func(tx *bbolt.Tx) error { return errors.Join(errors.New("the disk is full"), tx.Rollback()) }
	if err := s.Runs().Add(t.Context(), again, engine.Terms{Once: true}); err == nil {
		t.Fatal("it was written to a disk that is full")
	}
	if page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 10}); err != nil || len(page) != 1 || isMarked(t, s, first.ID) {
		t.Errorf("there are %d runs, %v, or the first one is marked", len(page), err)
	}
	s.committer.commitTx = (*bbolt.Tx).Commit
	if err := s.Runs().Add(t.Context(), again, engine.Terms{Once: true}); err != nil {
		t.Fatal(err)
	}
	if !isMarked(t, s, first.ID) {
		t.Error("the first run is not marked")
	}
	s.clock.Advance(2 * time.Hour)
	if _, err := s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if isMarked(t, s, first.ID) {
		t.Error("the run is forgotten, and its mark is not")
	}
	checkCounted(t, s)
}
