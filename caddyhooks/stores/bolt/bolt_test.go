package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func TestMain(m *testing.M) {
	storefile.LockTimeout = 500 * time.Millisecond // tests of files that are in use wait for it
	os.Exit(m.Run())
}

func newBolt(t testing.TB, path string) *store {
	t.Helper()
	return newBoltAt(t, path, new(local.Clock))
}

// newBoltAt opens a file as a process does whose clock is not that of this one.
func newBoltAt(t testing.TB, path string, clock *local.Clock) *store {
	t.Helper()
	database, err := open(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	if _, isTest := t.(*testing.T); isTest {
		database.segmentSize = 5 // or few tests would see a segment
	}
	return database.Store().(*store)
}

// withdraw ends a run that is queued.
func withdraw(t *testing.T, s engine.Store, run *engine.Run, end engine.End) error {
	_, err := s.Runs().End(t.Context(), &engine.Claim{Run: run}, end, engine.Batch{})
	return err
}

func testRun(chat, message string) *engine.Run {
	return &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: message, Timeout: time.Minute}
}

// addRuns stores n runs, from so many goroutines at once.
func addRuns(t testing.TB, s engine.Store, n, goroutines int) {
	t.Helper()
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := range n / goroutines {
				if err := s.Runs().Add(context.Background(), testRun(fmt.Sprintf("%d:%d", g, i), "hello"), engine.Terms{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// finishAll claims and ends whatever is queued.
func finishAll(t testing.TB, s engine.Store) (finished int) {
	t.Helper()
	want := engine.Batch{Max: 500, Lease: time.Minute}
	claims, _, err := s.Runs().Claim(context.Background(), want)
	if err != nil {
		t.Fatal(err)
	}
	for len(claims) > 0 {
		var group sync.WaitGroup
		for _, claim := range claims {
			group.Go(func() {
				end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true}}
				if _, err := s.Runs().End(context.Background(), claim, end, engine.Batch{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		finished += len(claims)
		if claims, _, err = s.Runs().Claim(context.Background(), want); err != nil {
			t.Fatal(err)
		}
	}
	return finished
}

func TestTheFileIsTheOperatorsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "caddy", "hooks", "default.db")
	newBolt(t, path).Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %o", info.Mode().Perm())
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(files) > 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

func TestAFileIsOpenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	first := newBolt(t, path)
	defer first.Close()
	_, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "Another Caddy is probably running") {
		t.Errorf("got %v", err)
	}
}

func TestManyChangesShareATransaction(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	last := func() (id int) {
		err := s.db.View(func(tx *bbolt.Tx) error {
			id = tx.ID()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := last()
	addRuns(t, s, 2000, 200)
	if transactions := last() - before; transactions > 1000 {
		t.Errorf("2000 runs from 200 callers at once took %d transactions", transactions)
	}
}

// TestTheFreelistIsNotWrittenWhenItIsLong goes through the states that the list of free pages can be in, and opens the file
// in each of them as a crash would leave it.
func TestTheFreelistIsNotWrittenWhenItIsLong(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "hooks.db")
	s := newBolt(t, path)
	s.db.NoSync = true // it is about what is in the file
	crashed := func(name string, wantSkipped bool) {
		t.Helper()
		copied := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			t.Fatal(err)
		}
		err = readFile(copied, func(tx *bbolt.Tx) error {
			if skipped := tx.Bucket(metaBucket).Get(freelistKey) != nil; skipped != wantSkipped {
				t.Errorf("%s: the list is left out: %v", name, skipped)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		again := newBolt(t, copied)
		defer again.Close()
		want, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := again.Runs().List(t.Context(), engine.Query{Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d runs, want %d", name, len(got), len(want))
		}
		if err := again.Runs().Add(t.Context(), testRun("chat", "after"), engine.Terms{}); err != nil {
			t.Error(err)
		}
		err = again.db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	addRuns(t, s, 10, 1)
	crashed("short.db", false)

	big := strings.Repeat("x", 64<<10)
	for range 300 {
		if err := s.Runs().Add(t.Context(), testRun("chat", big), engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	finishAll(t, s) // which frees some 5,000 pages
	addRuns(t, s, 10, 1)
	crashed("long.db", true)

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	crashed("closed.db", false)
}

// holdUp keeps the committer from taking changes. release lets it go on when n of them wait, and will be made together.
func holdUp(s *store) (release func(n int)) {
	hold, held := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.committer.do(context.Background(), &change{apply: func(*transaction) error {
			close(held)
			<-hold
			return nil
		}})
	}()
	<-held
	return func(n int) {
		for waiting := 0; waiting < n; runtime.Gosched() {
			s.committer.mu.Lock()
			waiting = len(s.committer.waiting)
			s.committer.mu.Unlock()
		}
		close(hold)
	}
}

// TestAFailedTransactionChangesNothing makes all kinds of changes in one transaction that fails, and then again in one
// that does not.
func TestAFailedTransactionChangesNothing(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	lease := engine.Batch{Max: 1, Lease: time.Minute}
	claim := func(chat string) *engine.Claim {
		t.Helper()
		run := testRun(chat, "")
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		claims, _, err := s.Runs().Claim(t.Context(), lease)
		if err != nil || len(claims) != 1 || claims[0].Run.ID != run.ID {
			t.Fatal(claims, err)
		}
		return claims[0]
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	toFinish, toRelease, delivering := claim("a"), claim("b"), claim("c")
	withDelivery := end
	withDelivery.Deliveries = []*engine.Delivery{{ID: "msg", RunID: delivering.Run.ID, Status: engine.Pending}}
	if _, err := s.Runs().End(t.Context(), delivering, withDelivery, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	deliveries, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 1, Lease: time.Minute})
	if err != nil || len(deliveries) != 1 {
		t.Fatal(deliveries, err)
	}
	behind, middle, keyed := testRun("a", "behind the first"), testRun("a", "to be withdrawn"), testRun("d", "")
	keyed.Key = &engine.Key{ID: [32]byte{1}}
	for _, run := range []*engine.Run{behind, middle, testRun("a", "the last"), keyed} {
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		t.Helper()
		page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		changes, _, err := s.Settings().Changes(t.Context(), 100, "")
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v, %d in a, %d keys, outbox %d, settings %d, changes %s;", s.queue.Size(), s.queue.QueuedIn("a"), s.keyCount,
			s.outbox.Size().Pending, s.revision, descriptions(changes))
		for _, record := range page {
			text += fmt.Sprintf(" %s %s %d;", record.Run.ID, record.Status, record.Attempts)
		}
		return text
	}
	// The settings are saved in the same transaction, before or after.
	addAtAnyRevision := func(run *engine.Run, limits engine.Limits) error {
		err := s.Runs().Add(t.Context(), run, engine.Terms{Limits: limits})
		if errors.Is(err, engine.ErrSettingsChanged) {
			err = s.Runs().Add(t.Context(), run, engine.Terms{Limits: limits, Settings: 1})
		}
		return err
	}
	var next []*engine.Claim
	var settled engine.Delivery
	changes := map[string]func() error{
		"add":      func() error { return addAtAnyRevision(testRun("e", ""), engine.Limits{}) },
		"add more": func() error { return addAtAnyRevision(testRun("a", ""), engine.Limits{}) },
		"add with a key": func() error {
			run := testRun("f", "")
			run.Key = &engine.Key{ID: [32]byte{2}}
			return addAtAnyRevision(run, engine.Limits{Keys: 1})
		},
		"finish and claim": func() (err error) {
			next, err = s.Runs().End(t.Context(), toFinish, end, engine.Batch{Max: 2, Lease: time.Minute})
			return err
		},
		"requeue": func() error {
			_, err := s.Runs().End(t.Context(), toRelease, engine.End{Requeue: true}, engine.Batch{})
			return err
		},
		"withdraw": func() error { return withdraw(t, s, middle, end) },
		"settle": func() error {
			settled = *deliveries[0]
			return s.Deliveries().Settle(t.Context(), &settled, time.Hour)
		},
		"save settings": func() error {
			_, err := s.Settings().Save(t.Context(), []byte("{}"), []byte("a change"), 0)
			return err
		},
	}
	// together makes all changes in one transaction.
	together := func(last func(*transaction) error) map[string]error {
		t.Helper()
		release := holdUp(s)
		var mu sync.Mutex
		var group sync.WaitGroup
		results := make(map[string]error)
		start := func(name string, f func() error) {
			group.Go(func() {
				err := f()
				mu.Lock()
				defer mu.Unlock()
				results[name] = err
			})
		}
		for name, f := range changes {
			start(name, f)
		}
		start("last", func() error { return s.committer.do(t.Context(), &change{apply: last}) })
		release(len(changes) + 1)
		group.Wait()
		return results
	}

	before := state()
	for name, err := range together(func(tr *transaction) error {
		tr.note(errors.New("the disk is full"))
		return nil
	}) {
		if err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if after := state(); after != before {
		t.Errorf("the failure left\n%s, before it was\n%s", after, before)
	}
	for name, err := range together(func(*transaction) error { return nil }) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(next) != 2 {
		t.Fatalf("%d runs were claimed after the one that ended, want 2", len(next))
	}
	for _, claim := range next {
		if claim.Run.ChatID == "a" && claim.Run.ID != behind.ID {
			t.Errorf("after the first run of a comes %q", claim.Run.Message)
		}
	}
	if record, err := s.Runs().Get(t.Context(), toRelease.Run.ID); err != nil || record.Attempts > 1 {
		t.Errorf("the run that was put back is %+v, %v", record, err)
	}
}

// TestMemoryFollowsATransactionThatIsInEffectThoughItFailed has the last sync of a transaction fail, after which it can be
// read but may not survive a power cut. Callers are told that it failed, and what they ask next goes by what is in the file.
func TestMemoryFollowsATransactionThatIsInEffectThoughItFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	var fail atomic.Bool
	s.committer.commitTx = func(tx *bbolt.Tx) error {
		err := tx.Commit()
		if fail.Load() {
			return errors.New("input/output error")
		}
		return err
	}
	failing := func(what string, f func() error) {
		t.Helper()
		fail.Store(true)
		defer fail.Store(false)
		if err := f(); err == nil || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	lease := engine.Batch{Max: 1, Lease: time.Minute}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}

	run := testRun("chat", "")
	run.Key = &engine.Key{ID: [32]byte{1}}
	failing("add", func() error { return s.Runs().Add(t.Context(), run, engine.Terms{}) })
	again := testRun("chat", "")
	again.Key = run.Key
	var duplicate *engine.DuplicateError
	if err := s.Runs().Add(t.Context(), again, engine.Terms{}); !errors.As(err, &duplicate) {
		t.Fatalf("adding it again: got %v", err)
	}
	run.ID = duplicate.First.ID
	for range 10 { // which must not count as starts of the run
		failing("claim", func() error {
			_, _, err := s.Runs().Claim(t.Context(), lease)
			return err
		})
	}
	claims, _, err := s.Runs().Claim(t.Context(), lease)
	if err != nil || len(claims) != 1 || claims[0].Run.ID != run.ID || claims[0].Attempt != 1 {
		t.Fatalf("claiming it again: got %v, %v", claims, err)
	}
	withDelivery := end
	withDelivery.Deliveries = []*engine.Delivery{{ID: "msg", RunID: run.ID, Status: engine.Pending}}
	failing("finish", func() error {
		_, err := s.Runs().End(t.Context(), claims[0], withDelivery, lease)
		return err
	})
	if next, err := s.Runs().End(t.Context(), claims[0], withDelivery, lease); err != nil || len(next) > 0 {
		t.Errorf("finishing it again: got %v, %v", next, err)
	}
	due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 10, Lease: time.Minute})
	if err != nil || len(due) != 1 {
		t.Fatalf("due are %v, %v", due, err)
	}
	failing("settle", func() error { return s.Deliveries().Settle(t.Context(), due[0], 0) })
	if err := s.Deliveries().Settle(t.Context(), due[0], 0); err != nil {
		t.Errorf("settling it again: %v", err)
	}
	if due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 10, Lease: time.Minute}); err != nil || len(due) != 1 {
		t.Errorf("due are %v, %v", due, err)
	}
	withdrawn, kept := testRun("chat", "withdrawn"), testRun("chat", "kept")
	for _, run := range []*engine.Run{withdrawn, kept} {
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	failing("withdraw", func() error { return withdraw(t, s, withdrawn, end) })
	if err := withdraw(t, s, withdrawn, end); !errors.Is(err, engine.ErrClaimLost) {
		t.Errorf("withdrawing it again: %v", err)
	}
	for range 2 { // as it is, and when the file has been opened again
		claims, _, err = s.Runs().Claim(t.Context(), engine.Batch{Max: 10, Lease: time.Minute})
		if err != nil || len(claims) != 1 || claims[0].Run.ID != kept.ID {
			t.Errorf("claimed %v, %v", claims, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = newBolt(t, path)
	}
	s.Close()
}

func TestAFailedClaimDoesNotAskToBeTriedAtOnce(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	addRuns(t, s, 1, 1)
	<-s.Watch().Claimable()
	s.committer.commitTx = func(*bbolt.Tx) error { return errors.New("the disk is full") }
	if _, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute}); err == nil {
		t.Fatal("the claim was stored")
	}
	select {
	case <-s.Watch().Claimable():
		t.Error("the run is offered again, which a disk that is full would make an endless loop")
	default:
	}
	s.committer.commitTx = (*bbolt.Tx).Commit
	if n := finishAll(t, s); n != 1 {
		t.Errorf("%d runs could be finished afterwards", n)
	}
}

func TestAClockThatWasAheadOnceDoesNotStopPruning(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	ahead, err := s.ids.Next(time.Now().AddDate(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	s.ids.After(ahead)
	addRuns(t, s, 10, 1)
	finishAll(t, s)
	s.clock.Advance(48 * time.Hour)
	if _, err := s.Prune(t.Context(), engine.Limits{Retention: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 10}); err != nil || len(page) > 0 {
		t.Errorf("%d runs are kept, %v", len(page), err)
	}
}

// TestADuplicateOfARunThatWasNotStoredIsNone puts two runs with one key into a transaction that fails.
func TestADuplicateOfARunThatWasNotStoredIsNone(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	release := holdUp(s)
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		group.Go(func() {
			run := testRun("chat", "")
			run.Key = &engine.Key{ID: [32]byte{1}}
			errs[i] = s.Runs().Add(context.Background(), run, engine.Terms{})
		})
	}
	group.Go(func() {
		_ = s.committer.do(context.Background(), &change{apply: func(tr *transaction) error {
			tr.note(errors.New("the disk is full"))
			return nil
		}})
	})
	release(3)
	group.Wait()
	for _, err := range errs {
		var duplicate *engine.DuplicateError
		if err == nil || errors.As(err, &duplicate) {
			t.Errorf("got %v", err)
		}
	}
}

func TestMigrationsRunOnceInOrderOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	addRuns(t, s, 5, 1)
	s.Close()
	var ran []int
	step := func(n int, err error) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			ran = append(ran, n)
			if putErr := tx.Bucket(metaBucket).Put(fmt.Append(nil, "step ", n), []byte("done")); putErr != nil {
				return putErr
			}
			return err
		}
	}
	state := func() (version int, steps string) {
		err := readFile(path, func(tx *bbolt.Tx) (err error) {
			version, err = versionOf(tx)
			for n := 1; n < 5; n++ {
				if tx.Bucket(metaBucket).Get(fmt.Append(nil, "step ", n)) != nil {
					steps += fmt.Sprint(n)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return version, steps
	}
	base := append([]func(*bbolt.Tx) error{}, migrations...)
	first := newestLayout(migrations)

	err := migrateFile(path, append(base, step(1, nil), step(2, errors.New("no room"))))
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v", err)
	}
	if version, steps := state(); version != first+1 || steps != "1" {
		t.Errorf("after a failure in the second step the file is of version %d, with the steps %s", version, steps)
	}
	ran = nil
	if err := migrateFile(path, append(base, step(1, nil), step(2, nil), step(3, nil))); err != nil {
		t.Fatal(err)
	}
	if version, steps := state(); version != first+3 || steps != "123" || fmt.Sprint(ran) != "[2 3]" {
		t.Errorf("version %d, steps %s, of which now %v", version, steps, ran)
	}

	// A program that knows less leaves such a file alone.
	before, _ := os.ReadFile(path)
	_, err = Open(path)
	if err == nil || !strings.Contains(err.Error(), "newer version of caddyhooks") {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

func TestPruningLooksAtEachRunOnceAPass(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	addRuns(t, s, 3000, 100)
	if n := finishAll(t, s); n != 3000 {
		t.Fatalf("%d runs were finished", n)
	}
	limits := engine.Limits{Retention: time.Hour}
	steps := 0
	for more := true; more; steps++ {
		var err error
		if more, err = s.Prune(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
	}
	if steps != 1 {
		t.Errorf("%d steps although all runs are too young", steps)
	}
	steps = 0
	s.clock.Advance(2 * time.Hour)
	for more := true; more; steps++ {
		var err error
		if more, err = s.Prune(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
	}
	if steps < 3000/local.PruneStep || steps > 3000/local.PruneStep+2 {
		t.Errorf("%d steps for 3000 runs", steps)
	}
	if page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 10}); err != nil || len(page) > 0 {
		t.Errorf("left are %v, %v", page, err)
	}
}

func TestAMissingDirectoryIsMadeAndABadOneIsReported(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "hooks.db")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: got %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: got %v", err)
	}
}
