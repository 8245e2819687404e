package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// endWithHistory adds a run that keeps its input, and ends it.
func endWithHistory(t *testing.T, s *store, message string, history time.Duration) (*engine.Run, error) {
	t.Helper()
	run := testRun("chat", message)
	run.History = history
	if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
		return run, err
	}
	return run, withdraw(t, s, run, engine.End{Outcome: engine.Outcome{Status: engine.Failed}})
}

// checkCounted checks that what is counted of the history is what is there, and that all of it is found by its age.
func checkCounted(t *testing.T, s *store) {
	t.Helper()
	var size int64
	err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		if saved := inputBytesOf(tx); saved != s.inputBytes {
			t.Errorf("%d bytes are noted in the file, and %d in memory", saved, s.inputBytes)
		}
		aged := make(map[uuid.UUID]bool)
		return errors.Join(
			tx.Bucket(inputAgesBucket).ForEach(func(_, ids []byte) error {
				for ; len(ids) > 0; ids = ids[16:] {
					aged[uuid.UUID(ids[:16])] = true
				}
				return nil
			}),
			tx.Bucket(inputBucket).ForEach(func(key, data []byte) error {
				if tx.Bucket(endedBucket).Get(key) == nil {
					return nil
				}
				size += inputSize(data)
				if !aged[uuid.UUID(key)] {
					t.Errorf("what run %x was told is not found by its age", key)
				}
				return nil
			}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if size != s.inputBytes {
		t.Errorf("%d bytes are counted, and there are %d", s.inputBytes, size)
	}
}

func TestTheHistoryIsCountedAlsoWhenWritingFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	defer func() { s.Close() }()
	commits := 0
	s.committer.commitTx = func(tx *bbolt.Tx) error {
		if commits++; commits%5 == 0 {
			_ = tx.Rollback()
			return errors.New("the disk is full")
		}
		return tx.Commit()
	}
	ended := 0
	for i := range 60 {
		if _, err := endWithHistory(t, s, strings.Repeat("x", 100*i), time.Hour+time.Duration(i%4)); err == nil {
			ended++
		}
		if i%7 == 0 {
			_, _ = s.Prune(t.Context(), engine.Limits{HistoryBytes: 20_000})
		}
	}
	if ended < 10 {
		t.Fatalf("only %d runs have ended", ended)
	}
	checkCounted(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	checkCounted(t, s)
	s.clock.Advance(2 * time.Hour)
	if more, err := s.Prune(t.Context(), engine.Limits{}); more || err != nil {
		t.Errorf("pruning: %v, %v", more, err)
	}
	checkCounted(t, s)
	if s.inputBytes != 0 {
		t.Errorf("%d bytes are left", s.inputBytes)
	}
}

func TestDamagedHistoryIsReportedAndForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	var runs []*engine.Run
	for i := range 4 {
		run, err := endWithHistory(t, s, fmt.Sprint("message ", i), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		damaged, gone := uuid.MustParse(runs[0].ID), uuid.MustParse(runs[1].ID)
		return errors.Join(tx.Bucket(inputBucket).Put(damaged[:], []byte("damaged")), tx.Bucket(inputBucket).Delete(gone[:]))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	if _, err := s.Runs().Get(t.Context(), runs[0].ID); !errors.Is(err, errDamaged) {
		t.Errorf("getting a run whose message is damaged: %v", err)
	}
	for i, want := range []engine.Kept{engine.KeptNothing, engine.KeptWhole, engine.KeptWhole} {
		if record, err := s.Runs().Get(t.Context(), runs[i+1].ID); err != nil || record.Kept != want {
			t.Errorf("run %d: %q is kept, %v", i+1, record.Kept, err)
		}
	}
	s.clock.Advance(2 * time.Hour)
	if more, err := s.Prune(t.Context(), engine.Limits{}); more || err != nil {
		t.Errorf("pruning: %v, %v", more, err)
	}
	for _, run := range runs {
		if record, err := s.Runs().Get(t.Context(), run.ID); err != nil || record.Kept != engine.KeptNothing {
			t.Errorf("after pruning: %+v, %v", record, err)
		}
	}
	err = s.view(t.Context(), func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{inputBucket, inputAgesBucket} {
			if key, _ := tx.Bucket(name).Cursor().First(); key != nil {
				t.Errorf("%s still has %x", name, key)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A run's input is part of it: a file in which that is damaged, or missing, is refused like one with a damaged run.
func TestAFileIsRefusedInWhichARunLacksWhatItIsTold(t *testing.T) {
	for name, damage := range map[string]func(input *bbolt.Bucket, id []byte) error{
		"damaged": func(input *bbolt.Bucket, id []byte) error { return input.Put(id, []byte("damaged")) },
		"missing": func(input *bbolt.Bucket, id []byte) error { return input.Delete(id) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hooks.db")
			s := newBolt(t, path)
			run := testRun("chat", strings.Repeat("x", inputApartFrom))
			if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			id := uuid.MustParse(run.ID)
			err = db.Update(func(tx *bbolt.Tx) error { return damage(tx.Bucket(inputBucket), id[:]) })
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), run.ID) {
				t.Errorf("opening it: %v", err)
			}
		})
	}
}

// Without history nothing is left of a run's input.
func TestRunsWithoutHistoryLeaveNothing(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	addRuns(t, s, 100, 10)
	finishAll(t, s)
	for _, message := range []string{"hello", strings.Repeat("x", inputApartFrom)} {
		if _, err := endWithHistory(t, s, message, 0); err != nil {
			t.Fatal(err)
		}
	}
	err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{runsBucket, inputBucket, inputAgesBucket} {
			if key, _ := tx.Bucket(name).Cursor().First(); key != nil {
				t.Errorf("%s still has %x", name, key)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	checkCounted(t, s)
}
