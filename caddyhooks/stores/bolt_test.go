package stores

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

	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/storetest"
)

func newBolt(t testing.TB, path string) *boltStore {
	t.Helper()
	s, err := openBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBoltKeepsTheContractOfStores(t *testing.T) {
	storetest.Run(t,
		func(t *testing.T) engine.Store { return newBolt(t, filepath.Join(t.TempDir(), "hooks.db")) },
		storetest.Options{Reopen: func(t *testing.T, s engine.Store) engine.Store {
			path := s.(*boltStore).db.Path()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return newBolt(t, path)
		}})
}

func testRun(chat, message string) *engine.Run {
	return &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: message, Timeout: time.Minute, AcceptedAt: time.Now()}
}

// addRuns stores n runs, from so many goroutines at once.
func addRuns(t testing.TB, s engine.Store, n, goroutines int) {
	t.Helper()
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := range n / goroutines {
				if err := s.Add(context.Background(), testRun(fmt.Sprintf("%d:%d", g, i), "hello"), engine.Limits{}); err != nil {
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
	want := engine.Want{Runs: 500, Lease: time.Minute}
	claims, err := s.Claim(context.Background(), want)
	if err != nil {
		t.Fatal(err)
	}
	for len(claims) > 0 {
		var group sync.WaitGroup
		for _, claim := range claims {
			group.Go(func() {
				end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true}, At: time.Now()}
				if _, err := s.Finish(context.Background(), claim, end, engine.Want{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		finished += len(claims)
		if claims, err = s.Claim(context.Background(), want); err != nil {
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
	_, err := openBolt(path)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "Another Caddy is probably running") {
		t.Errorf("got %v", err)
	}
}

func TestManyChangesShareATransaction(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	last := func() (id int) {
		err := s.db.View(func(tx *bolt.Tx) error {
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
		err = readFile(copied, func(tx *bolt.Tx) error {
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
		want, _, err := s.List(t.Context(), engine.Query{Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := again.List(t.Context(), engine.Query{Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d runs, want %d", name, len(got), len(want))
		}
		if err := again.Add(t.Context(), testRun("chat", "after"), engine.Limits{}); err != nil {
			t.Error(err)
		}
		err = again.db.View(func(tx *bolt.Tx) error {
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
		if err := s.Add(t.Context(), testRun("chat", big), engine.Limits{}); err != nil {
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
func holdUp(s *boltStore) (release func(n int)) {
	hold, held := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.committer.do(&change{apply: func(*transaction) error {
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
	lease := engine.Want{Runs: 1, Lease: time.Minute}
	claim := func(chat string) *engine.Claim {
		t.Helper()
		run := testRun(chat, "")
		if err := s.Add(t.Context(), run, engine.Limits{}); err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(t.Context(), lease)
		if err != nil || len(claims) != 1 || claims[0].Run.ID != run.ID {
			t.Fatal(claims, err)
		}
		return claims[0]
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, At: time.Now()}
	toFinish, toRelease, delivering := claim("a"), claim("b"), claim("c")
	withDelivery := end
	withDelivery.Deliveries = []*engine.Delivery{{ID: "msg", RunID: delivering.Run.ID, Status: engine.Pending, Due: time.Now()}}
	if _, err := s.Finish(t.Context(), delivering, withDelivery, engine.Want{}); err != nil {
		t.Fatal(err)
	}
	deliveries, _, err := s.ClaimDeliveries(t.Context(), time.Now(), 1)
	if err != nil || len(deliveries) != 1 {
		t.Fatal(deliveries, err)
	}
	behind, middle, keyed := testRun("a", "behind the first"), testRun("a", "to be withdrawn"), testRun("d", "")
	keyed.Key = &engine.Key{ID: [32]byte{1}}
	for _, run := range []*engine.Run{behind, middle, testRun("a", "the last"), keyed} {
		if err := s.Add(t.Context(), run, engine.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		t.Helper()
		page, _, err := s.List(t.Context(), engine.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d queued, %d in a, %d held, %d keys, outbox %d;", s.queue.lanes.Queued(), s.queue.lanes.QueuedIn("a"),
			len(s.queue.held), s.keyCount, len(s.outbox.letters))
		for _, record := range page {
			text += fmt.Sprintf(" %s %s %d;", record.Run.ID, record.Status, record.Attempts)
		}
		return text
	}
	var next []*engine.Claim
	var settled engine.Delivery
	changes := map[string]func() error{
		"add":      func() error { return s.Add(t.Context(), testRun("e", ""), engine.Limits{}) },
		"add more": func() error { return s.Add(t.Context(), testRun("a", ""), engine.Limits{}) },
		"add with a key": func() error {
			run := testRun("f", "")
			run.Key = &engine.Key{ID: [32]byte{2}}
			return s.Add(t.Context(), run, engine.Limits{Keys: 1})
		},
		"finish and claim": func() (err error) {
			next, err = s.Finish(t.Context(), toFinish, end, engine.Want{Runs: 2, Lease: time.Minute})
			return err
		},
		"release":  func() error { return s.Release(t.Context(), toRelease) },
		"withdraw": func() error { return s.Withdraw(t.Context(), middle.ID, end) },
		"settle": func() error {
			settled = *deliveries[0]
			settled.Due = time.Now().Add(time.Hour)
			return s.SettleDelivery(t.Context(), &settled)
		},
		"save settings": func() error { return s.SaveSettings(t.Context(), []byte("{}")) },
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
		start("last", func() error { return s.committer.do(&change{apply: last}) })
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
	for name, err := range together(func(*transaction) error { panic("a torn page") }) {
		if err == nil || !strings.Contains(err.Error(), "a torn page") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if after := state(); after != before {
		t.Errorf("the panic left\n%s, before it was\n%s", after, before)
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
	if record, err := s.Get(t.Context(), toRelease.Run.ID); err != nil || record.Attempts > 1 {
		t.Errorf("the run that was put back is %+v, %v", record, err)
	}
}

// TestMemoryFollowsATransactionThatIsInEffectThoughItFailed has the last sync of a transaction fail, after which it can be
// read but may not survive a power cut. Callers are told that it failed, and what they ask next goes by what is in the file.
func TestMemoryFollowsATransactionThatIsInEffectThoughItFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	var fail atomic.Bool
	s.committer.commitTx = func(tx *bolt.Tx) error {
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
	lease := engine.Want{Runs: 1, Lease: time.Minute}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, At: time.Now()}

	run := testRun("chat", "")
	run.Key = &engine.Key{ID: [32]byte{1}}
	failing("add", func() error { return s.Add(t.Context(), run, engine.Limits{}) })
	again := testRun("chat", "")
	again.Key = run.Key
	var duplicate *engine.DuplicateError
	if err := s.Add(t.Context(), again, engine.Limits{}); !errors.As(err, &duplicate) || duplicate.First.ID != run.ID {
		t.Fatalf("adding it again: got %v", err)
	}
	for range 10 { // which must not count as starts of the run
		failing("claim", func() error {
			_, err := s.Claim(t.Context(), lease)
			return err
		})
	}
	claims, err := s.Claim(t.Context(), lease)
	if err != nil || len(claims) != 1 || claims[0].Run.ID != run.ID || claims[0].Attempt != 1 {
		t.Fatalf("claiming it again: got %v, %v", claims, err)
	}
	withDelivery := end
	withDelivery.Deliveries = []*engine.Delivery{{ID: "msg", RunID: run.ID, Status: engine.Pending, Due: time.Now()}}
	failing("finish", func() error {
		_, err := s.Finish(t.Context(), claims[0], withDelivery, lease)
		return err
	})
	if _, err := s.Finish(t.Context(), claims[0], withDelivery, lease); !errors.Is(err, engine.ErrClaimLost) {
		t.Errorf("finishing it again: got %v", err)
	}
	due, _, err := s.ClaimDeliveries(t.Context(), time.Now(), 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("due are %v, %v", due, err)
	}
	due[0].Due = time.Now().Add(-time.Second)
	failing("settle", func() error { return s.SettleDelivery(t.Context(), due[0]) })
	if err := s.SettleDelivery(t.Context(), due[0]); err != nil {
		t.Errorf("settling it again: %v", err)
	}
	if due, _, err := s.ClaimDeliveries(t.Context(), time.Now(), 10); err != nil || len(due) != 1 {
		t.Errorf("due are %v, %v", due, err)
	}
	withdrawn, kept := testRun("chat", "withdrawn"), testRun("chat", "kept")
	for _, run := range []*engine.Run{withdrawn, kept} {
		if err := s.Add(t.Context(), run, engine.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	failing("withdraw", func() error { return s.Withdraw(t.Context(), withdrawn.ID, end) })
	if err := s.Withdraw(t.Context(), withdrawn.ID, end); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("withdrawing it again: %v", err)
	}
	for range 2 { // as it is, and when the file has been opened again
		claims, err = s.Claim(t.Context(), engine.Want{Runs: 10, Lease: time.Minute})
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
	<-s.Claimable()
	s.committer.commitTx = func(*bolt.Tx) error { return errors.New("the disk is full") }
	if _, err := s.Claim(t.Context(), engine.Want{Runs: 1, Lease: time.Minute}); err == nil {
		t.Fatal("the claim was stored")
	}
	select {
	case <-s.Claimable():
		t.Error("the run is offered again, which a disk that is full would make an endless loop")
	default:
	}
	s.committer.commitTx = (*bolt.Tx).Commit
	if n := finishAll(t, s); n != 1 {
		t.Errorf("%d runs could be finished afterwards", n)
	}
}

func TestAClockThatWasAheadOnceDoesNotStopPruning(t *testing.T) {
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	ahead, err := s.queue.ids.Next(time.Now().AddDate(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	s.queue.ids.After(ahead)
	addRuns(t, s, 10, 1)
	finishAll(t, s)
	if _, err := s.Prune(t.Context(), time.Now().Add(48*time.Hour), engine.Limits{Retention: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if page, _, err := s.List(t.Context(), engine.Query{Limit: 10}); err != nil || len(page) > 0 {
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
			errs[i] = s.Add(context.Background(), run, engine.Limits{})
		})
	}
	group.Go(func() {
		_ = s.committer.do(&change{apply: func(tr *transaction) error {
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
	step := func(n int, err error) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			ran = append(ran, n)
			if putErr := tx.Bucket(metaBucket).Put(fmt.Append(nil, "step ", n), []byte("done")); putErr != nil {
				return putErr
			}
			return err
		}
	}
	state := func() (version int, steps string) {
		err := readFile(path, func(tx *bolt.Tx) (err error) {
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
	base := append([]func(*bolt.Tx) error{}, migrations...)
	first := layoutVersion

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
	_, err = openBolt(path)
	if err == nil || !strings.Contains(err.Error(), "newer version of caddyhooks") {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

// TestFilesOfOldLayoutsAreRead opens a file of every version there has been, as that version wrote it.
func TestFilesOfOldLayoutsAreRead(t *testing.T) {
	for version := 1; version <= layoutVersion; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			name := filepath.Join("testdata", fmt.Sprintf("layout-%d.db", version))
			if *writeLayout && version == layoutVersion {
				writeLayoutFile(t, name)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "hooks.db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s := newBolt(t, path)
			defer s.Close()
			checkLayoutFile(t, s, version)
		})
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
		if more, err = s.Prune(t.Context(), time.Now(), limits); err != nil {
			t.Fatal(err)
		}
	}
	if steps != 1 {
		t.Errorf("%d steps although all runs are too young", steps)
	}
	steps = 0
	for more := true; more; steps++ {
		var err error
		if more, err = s.Prune(t.Context(), time.Now().Add(2*time.Hour), limits); err != nil {
			t.Fatal(err)
		}
	}
	if steps < 3000/pruneStep || steps > 3000/pruneStep+2 {
		t.Errorf("%d steps for 3000 runs", steps)
	}
	if page, _, err := s.List(t.Context(), engine.Query{Limit: 10}); err != nil || len(page) > 0 {
		t.Errorf("left are %v, %v", page, err)
	}
}

func TestAMissingDirectoryIsMadeAndABadOneIsReported(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openBolt(filepath.Join(file, "hooks.db")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: got %v", err)
	}
	if _, err := openBolt(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: got %v", err)
	}
}
