package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// indexBuckets are the buckets whose contents follow from the runs that have ended.
var indexBuckets = [][]byte{notableBucket, byHookBucket, byChatBucket, chatsBucket, chatsByTimeBucket, byRequestBucket}

// checkIndexed checks that the indexes have what follows from the runs that have ended, and nothing else.
func checkIndexed(t *testing.T, s *store) {
	t.Helper()
	err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		want := make(map[string]map[string]string)
		for _, name := range indexBuckets {
			want[string(name)] = make(map[string]string)
		}
		chats := make(map[string]chatRecord)
		isNew, unindexed := newRunsOf(tx), 0
		err := tx.Bucket(endedBucket).ForEach(func(key, data []byte) error {
			record, err := decodeRun(uuid.UUID(key), data)
			if err != nil {
				return err
			}
			id, run := uuid.UUID(key), record.Run
			if run.RequestID != "" { // which is indexed before
				want["by_request"][string(indexKey(run.RequestID, id))] = ""
			}
			if slices.Contains(isNew, id) {
				unindexed++
				return nil
			}
			want["by_hook"][string(indexKey(run.Hook, id))] = ""
			if record.Status != engine.Completed {
				want["notable"][string(indexKey(string(record.Status), id))] = ""
			}
			if local.IsFoundByTime(run, id) {
				return nil
			}
			want["by_chat"][string(indexKey(run.ChatID, id))] = ""
			if ended := newEndedRun(id, run, record.Status); ended.counted {
				chat := chats[run.ChatID]
				chat.add(&ended)
				chats[run.ChatID] = chat
			}
			return nil
		})
		for _, bucket := range [][]byte{runsBucket, askedBucket} {
			err = errors.Join(err, tx.Bucket(bucket).ForEach(func(key, _ []byte) error {
				if request := textOf(unfinishedData(tx, key), runRequestID); request != "" {
					want["by_request"][string(indexKey(request, uuid.UUID(key)))] = ""
				}
				return nil
			}))
		}
		for name, chat := range chats {
			key := chatKey(name)
			want["chats"][string(key)] = string(chat.encode(key))
			if chat.last != uuid.Nil {
				want["chats_by_time"][string(chat.last[:])] = ""
			}
		}
		if len(isNew) != s.newRuns || len(isNew) >= s.segmentSize || unindexed > len(isNew) {
			t.Errorf("%d runs are new, %d of them are there, and %d are counted", len(isNew), unindexed, s.newRuns)
		}
		for name, entries := range want {
			err = errors.Join(err, tx.Bucket([]byte(name)).ForEach(func(key, value []byte) error {
				if name == "by_chat" {
					key = key[segmentPrefixSize:]
				}
				if expected, ok := entries[string(key)]; !ok || expected != string(value) {
					t.Errorf("%s has %x: %x, want %x", name, key, value, expected)
				}
				delete(entries, string(key))
				return nil
			}))
			for key := range entries {
				t.Errorf("%s lacks %x", name, key)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// endSome carries out runs of several hooks and chats, which end in several ways.
func endSome(t *testing.T, s *store, n int) {
	t.Helper()
	statuses := []engine.Status{engine.Completed, engine.Completed, engine.Failed, engine.Completed, engine.TimedOut}
	for i := range n {
		run := testRun(fmt.Sprint("chat ", i%7), "hello")
		run.Hook = fmt.Sprint("hook ", i%3)
		if i%5 > 0 {
			run.RequestID = fmt.Sprint("evt_", i/2)
		}
		if i%4 == 0 {
			run.ChatID, run.NewChat = "hook:"+uuid.Must(uuid.NewV7()).String(), true
		}
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			continue // some tests have it fail
		}
		_ = withdraw(t, s, run, engine.End{Outcome: engine.Outcome{Status: statuses[i%len(statuses)]}})
	}
}

func TestIndexesFollowTheRunsAlsoWhenWritingFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	defer func() { s.Close() }()
	commits := 0
	s.committer.commitTx = func(tx *bbolt.Tx) error {
		if commits++; commits%7 == 0 {
			_ = tx.Rollback()
			return errors.New("the disk is full")
		}
		return tx.Commit()
	}
	retention := engine.Limits{Retention: time.Hour}
	for range 4 {
		endSome(t, s, 40)
		checkIndexed(t, s)
		s.clock.Advance(45 * time.Minute)
		for more := true; more; {
			more, _ = s.Prune(t.Context(), retention)
		}
		checkIndexed(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newBoltAt(t, path, s.clock)
	s.clock.Advance(2 * time.Hour)
	for more := true; more; {
		var err error
		if more, err = s.Prune(t.Context(), retention); err != nil {
			t.Fatal(err)
		}
	}
	checkIndexed(t, s)
	err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		for _, name := range indexBuckets {
			if bytes.Equal(name, byRequestBucket) {
				continue // runs whose end could not be written are still there
			}
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

// Indexes that are damaged lose runs from lists that use them, and nothing else.
func TestDamagedIndexesPreventNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	endSome(t, s, 43)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		var all error
		for _, name := range [][]byte{notableBucket, byHookBucket, byChatBucket, byRequestBucket} {
			first, _ := tx.Bucket(name).Cursor().First()
			first = bytes.Clone(first)
			gone := bytes.Clone(first)
			gone[len(gone)-1]++ // leads to no run
			all = errors.Join(all, tx.Bucket(name).Delete(first), tx.Bucket(name).Put(gone, nil))
		}
		nowhere := uuid.New()
		all = errors.Join(all, tx.Bucket(chatsByTimeBucket).Put(nowhere[:], nil))
		key := chatKey("chat 1")
		return errors.Join(all, tx.Bucket(chatsBucket).Put(key, []byte("damaged")), tx.Bucket(chatsBucket).Put(make([]byte, chatKeySize), nil))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	list := func(query engine.Query) int {
		t.Helper()
		query.Limit = 1000
		page, next, err := s.Runs().List(t.Context(), query)
		if err != nil || next != "" {
			t.Errorf("listing %+v: %q, %v", query, next, err)
		}
		return len(page)
	}
	hooks, statuses := 0, 0
	for i := range 3 {
		hooks += list(engine.Query{Hooks: []string{fmt.Sprint("hook ", i)}})
	}
	for _, status := range []engine.Status{engine.Failed, engine.TimedOut} {
		statuses += list(engine.Query{Statuses: []engine.Status{status}})
	}
	if all := list(engine.Query{}); all != 43 || hooks != 42 || statuses != 16 {
		t.Errorf("%d runs are listed, %d by their hook and %d by their status", all, hooks, statuses)
	}
	chats := func() int {
		t.Helper()
		page, _, err := s.Runs().Chats(t.Context(), engine.ChatQuery{Limit: 100})
		if err != nil {
			t.Error(err)
		}
		return len(page)
	}
	if n := chats(); n != 6 {
		t.Errorf("%d chats are listed", n)
	}
	endSome(t, s, 7)
	if n := chats(); n != 7 {
		t.Errorf("%d chats are listed when each has another run", n)
	}
	s.clock.Advance(2 * time.Hour)
	for more := true; more; {
		if more, err = s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if n := chats() + list(engine.Query{}); n != 0 {
		t.Errorf("%d runs and chats are left", n)
	}
}

// writeSegments makes a file of runs that ended two hours ago, each in a segment of its own. The name of its chat is by its number.
func writeSegments(t *testing.T, path string, n int, chat func(i int) string) {
	t.Helper()
	if err := newBolt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	var ids local.IDs
	at := time.Now().Add(-2 * time.Hour)
	err := withFile(path, func(tx *bbolt.Tx) error {
		write := &transaction{tx: tx}
		for i := range n {
			id, err := ids.Next(at)
			if err != nil {
				return err
			}
			run := testRun(chat(i), "hello")
			run.AcceptedAt = at
			record := &engine.Record{Run: run, FinishedAt: at, Outcome: engine.Outcome{Status: engine.Completed}}
			write.append(endedBucket, id[:], seal(id[:], encodeEnded(record, "token")))
			write.putEntries([]endedRun{newEndedRun(id, run, engine.Completed)})
		}
		return write.failure
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The segments before a page have to be opened for it, and may be more than a list looks at.
func TestAListOfAChatGetsToItsEndOverManySegments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	const runs = local.ListLooksAt + 500
	writeSegments(t, path, runs, func(i int) string { return fmt.Sprint("chat ", i%5) })
	s := newBolt(t, path)
	defer s.Close()
	for _, oldestFirst := range []bool{false, true} {
		query := engine.Query{ChatID: "chat 1", Limit: 1000, OldestFirst: oldestFirst}
		listed, pages := 0, 0
		for ; pages == 0 || query.Cursor != "" && pages < 10; pages++ {
			page, next, err := s.Runs().List(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			listed += len(page)
			query.Cursor = next
		}
		if listed != runs/5 || query.Cursor != "" {
			t.Errorf("%d of %d runs on %d pages, the oldest first: %v", listed, runs/5, pages, oldestFirst)
		}
	}
}

// Nobody can do anything while a step of pruning is made, so it must not look into all segments for each run.
func TestPruningLooksIntoFewSegments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	const runs = 2 * local.PruneStep
	writeSegments(t, path, runs, func(i int) string { return fmt.Sprint("chat ", i) })
	s := newBolt(t, path)
	defer s.Close()
	before := s.db.Stats()
	if _, err := s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	after := s.db.Stats()
	checkIndexed(t, s)
	looks := after.TxStats.GetCursorCount() - before.TxStats.GetCursorCount()
	if most := int64(40 * local.PruneStep); looks > most {
		t.Errorf("%d places were looked at to forget %d runs, want %d at most", looks, local.PruneStep, most)
	}
}

// The entries of a run go with it although the rest of the run is damaged.
func TestARunThatIsDamagedLeavesNoEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	endSome(t, s, 40)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err := withFile(path, func(tx *bbolt.Tx) (err error) {
		damaged := make(map[string][]byte)
		_ = tx.Bucket(endedBucket).ForEach(func(key, data []byte) error {
			data = bytes.Clone(data)
			data[0]++ // the checksum
			damaged[string(key)] = data
			return nil
		})
		for key, data := range damaged {
			err = errors.Join(err, tx.Bucket(endedBucket).Put([]byte(key), data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	s.clock.Advance(2 * time.Hour)
	for more := true; more; {
		if more, err = s.Prune(t.Context(), engine.Limits{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	checkIndexed(t, s)
}

// To write the entries of many runs takes room that a disk may not have while it has enough for everything else.
func TestRunsEndAlsoIfTheirEntriesCannotBeWritten(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	full, refused := true, 0
	s.committer.commitTx = func(tx *bbolt.Tx) error {
		if indexes := tx.Bucket(newRunsBucket).Stats().KeyN == 0 && tx.Bucket(endedBucket).Stats().KeyN > 0; indexes && full {
			refused++
			_ = tx.Rollback()
			return errors.New("the disk is full")
		}
		return tx.Commit()
	}
	const runs = 30
	for i := range runs {
		run := testRun("chat", "hello")
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		for tries := 1; withdraw(t, s, run, engine.End{Outcome: engine.Outcome{Status: engine.Failed}}) != nil; tries++ {
			if tries == 3 {
				t.Fatalf("run %d does not end", i)
			}
		}
	}
	if page, _, err := s.Runs().List(t.Context(), engine.Query{ChatID: "chat", Limit: 100}); err != nil || len(page) != runs {
		t.Errorf("%d of %d runs are listed, %v", len(page), runs, err)
	}
	if most := runs / s.segmentSize; refused == 0 || refused > most {
		t.Errorf("the entries were tried to be written %d times, want %d at most", refused, most)
	}
	full = false
	endSome(t, s, 20)
	checkIndexed(t, s)
}

// A database that was compacted counts its transactions anew.
func TestNewRunsAreFoundInAFileThatWasCompacted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	endSome(t, s, 4)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err := withFile(path, func(tx *bbolt.Tx) (err error) {
		// As if they had been left by transactions of numbers that come again.
		for i, id := range newRunsOf(tx) {
			err = errors.Join(err, tx.Bucket(newRunsBucket).Put(binary.BigEndian.AppendUint64(nil, uint64(tx.ID()+6+i)), id[:]))
		}
		for key, _ := tx.Bucket(newRunsBucket).Cursor().First(); binary.BigEndian.Uint64(key) < uint64(tx.ID()+6); key, _ = tx.Bucket(newRunsBucket).Cursor().First() {
			err = errors.Join(err, tx.Bucket(newRunsBucket).Delete(key))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	s.segmentSize = 1000
	endSome(t, s, 10)
	for _, chat := range []string{"chat 1", "chat 2", "chat 3"} {
		page, _, err := s.Runs().List(t.Context(), engine.Query{ChatID: chat, Limit: 100})
		if want := map[string]int{"chat 1": 2, "chat 2": 3, "chat 3": 2}[chat]; err != nil || len(page) != want {
			t.Errorf("%d runs of %s are listed, want %d; %v", len(page), chat, want, err)
		}
	}
}
