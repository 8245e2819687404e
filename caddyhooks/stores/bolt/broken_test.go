package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// soon fails the test if f does not return.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s takes for ever", what)
	}
}

// wantBroken checks that nothing can be done with a store, and that it closes.
func wantBroken(t *testing.T, s *store, path string) {
	t.Helper()
	before := contentsOf(t, path)
	for name, f := range map[string]func(context.Context) error{
		"adding": func(ctx context.Context) error { return s.Runs().Add(ctx, testRun("new", ""), engine.Terms{}) },
		"getting": func(ctx context.Context) error {
			_, err := s.Runs().Get(ctx, "018f0000-0000-7000-8000-000000000000")
			return err
		},
		"listing": func(ctx context.Context) error {
			_, _, err := s.Runs().List(ctx, engine.Query{Limit: 10})
			return err
		},
		"pruning": func(ctx context.Context) error {
			_, err := s.Prune(ctx, engine.Limits{Retention: time.Hour})
			return err
		},
		"loading settings": func(ctx context.Context) error {
			_, _, err := s.Settings().Load(ctx)
			return err
		},
		"saving settings": func(ctx context.Context) error {
			_, err := s.Settings().Save(ctx, []byte("{}"), []byte("a change"), 0)
			return err
		},
		"listing changes": func(ctx context.Context) error {
			_, _, err := s.Settings().Changes(ctx, 10, "")
			return err
		},
		"counting": func(ctx context.Context) error {
			_, err := s.Runs().Queued(ctx)
			return err
		},
		"counting deliveries": func(ctx context.Context) error {
			_, err := s.Deliveries().CountByChannel(ctx)
			return err
		},
		"measuring": func(ctx context.Context) error {
			_, err := s.Size(ctx)
			return err
		},
		"listing deliveries": func(ctx context.Context) error {
			_, _, err := s.Deliveries().List(ctx, engine.DeliveryQuery{Limit: 10})
			return err
		},
	} {
		soon(t, name, func() {
			var broken *engine.StoreBrokenError
			if err := f(context.Background()); !errors.As(err, &broken) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "goroutine") {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
	soon(t, "closing", func() { _ = s.Close() })
	if !bytes.Equal(before, contentsOf(t, path)) {
		t.Error("the file was changed")
	}
}

func TestAPanicBreaksTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	addRuns(t, s, 10, 1)
	release := holdUp(s)
	results := make(chan error, 2)
	go func() { results <- s.Runs().Add(context.Background(), testRun("with it", ""), engine.Terms{}) }()
	go func() {
		results <- s.committer.do(context.Background(), &change{apply: func(*transaction) error { panic("a torn page") }})
	}()
	release(2)
	for range 2 {
		var broken *engine.StoreBrokenError
		if err := <-results; !errors.As(err, &broken) || !strings.Contains(err.Error(), "a torn page") || !bytes.Contains(broken.Stack, []byte("goroutine")) {
			t.Errorf("got %v", err)
		}
	}
	wantBroken(t, s, path)

	// There is nothing wrong with the file.
	again := newBolt(t, path)
	defer again.Close()
	if n := finishAll(t, again); n != 10 {
		t.Errorf("%d runs are there", n)
	}
}

// TestAPanicThatKeepsTheLocksOfTheDatabaseHangsNobody damages both meta pages, after which the database panics with its locks
// held as soon as a transaction begins.
func TestAPanicThatKeepsTheLocksOfTheDatabaseHangsNobody(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"a read", "a change"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hooks.db")
			s := newBolt(t, path)
			addRuns(t, s, 10, 1)
			overwrite(t, path, 0, make([]byte, 2*4096))
			soon(t, first, func() {
				var err error
				if first == "a read" {
					_, _, err = s.Runs().List(context.Background(), engine.Query{Limit: 10})
				} else {
					err = s.Runs().Add(context.Background(), testRun("chat", ""), engine.Terms{})
				}
				var broken *engine.StoreBrokenError
				if !errors.As(err, &broken) {
					t.Errorf("got %v", err)
				}
			})
			wantBroken(t, s, path)
			start := time.Now()
			_, err := Open(path)
			if err == nil || !strings.Contains(err.Error(), "nothing in it was changed") {
				t.Errorf("opening it again, after %s: got %v", time.Since(start), err)
			}
		})
	}
}

func TestAFileThatIsCutShortWhileItIsOpenBreaksTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	addRuns(t, s, 200, 10)
	if err := os.Truncate(path, 2*4096); err != nil {
		t.Fatal(err)
	}
	soon(t, "adding", func() {
		var broken *engine.StoreBrokenError
		if err := s.Runs().Add(context.Background(), testRun("chat", ""), engine.Terms{}); !errors.As(err, &broken) {
			t.Errorf("got %v", err)
		}
	})
	wantBroken(t, s, path)
}

// TestARunThatIsDamagedMeanwhileBreaksTheStore: the file would be refused when it is opened again, and so would be all that
// was accepted after that.
func TestARunThatIsDamagedMeanwhileBreaksTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	if err := s.Runs().Add(t.Context(), testRun("chat", "do not change this"), engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	data := contentsOf(t, path)
	for at := bytes.Index(data, []byte("do not change")); at >= 0; at = bytes.Index(data, []byte("do not change")) {
		overwrite(t, path, at, []byte("do change"))
		data = contentsOf(t, path)
	}
	var broken *engine.StoreBrokenError
	if _, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Minute}); !errors.As(err, &broken) {
		t.Errorf("got %v", err)
	}
	wantBroken(t, s, path)
}

func overwrite(t *testing.T, path string, at int, with []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(with, int64(at)); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	release := holdUp(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	soon(t, "adding", func() {
		if err := s.Runs().Add(ctx, testRun("chat", ""), engine.Terms{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	release(0)
	if n := finishAll(t, s); n != 0 {
		t.Error("the run is there, and its caller was told that it is not")
	}
}

// TestADiskThatHangsHoldsNobody lets a transaction take for ever while it is being written.
func TestADiskThatHangsHoldsNobody(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	addRuns(t, s, 1, 1)
	hang := make(chan struct{})
	s.committer.commitTx = func(tx *bbolt.Tx) error {
		<-hang
		return tx.Commit()
	}
	s.committer.maxWrite = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	soon(t, "claiming", func() {
		if claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 1, Lease: time.Hour}); len(claims) > 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", claims, err)
		}
	})
	soon(t, "reading", func() {
		if page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: 10}); err != nil || len(page) != 1 {
			t.Errorf("got %v, %v", page, err)
		}
	})
	close(hang)
	// Nobody was told of the claim, so it does not hold, nor count.
	var claims []*engine.Claim
	for range 10 {
		var err error
		if claims, _, err = s.Runs().Claim(t.Context(), engine.Batch{Max: 1, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if len(claims) > 0 {
			break
		}
		<-s.Watch().Claimable()
	}
	if len(claims) != 1 || claims[0].Attempt != 1 {
		t.Errorf("claimed %+v", claims)
	}
}

func TestADamagedNumberOfKeysIsSurvived(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	newBolt(t, path).Close()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCountKey, binary.AppendUvarint(nil, 1<<40))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := newBolt(t, path)
	defer s.Close()
	run := testRun("chat", "")
	run.Key = &engine.Key{ID: [32]byte{1}}
	if err := s.Runs().Add(t.Context(), run, engine.Terms{Limits: engine.Limits{Keys: 10}}); err != nil {
		t.Error(err)
	}
}

// What tests know of the pages of a file.
const (
	pageHeader    = 16
	elementHeader = 16
	branchFlag    = 1
)

// TestAFileThatTheDatabaseWouldSpoilIsRefused damages files in ways that the database does not notice when it opens them.
func TestAFileThatTheDatabaseWouldSpoilIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	addRuns(t, s, 1000, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sound := contentsOf(t, path)
	u64 := binary.NativeEndian.Uint64
	meta := sound[pageHeader:]
	if other := sound[4096+pageHeader:]; u64(other[48:]) > u64(meta[48:]) {
		meta = other
	}
	root, freelist := int(u64(meta[16:])), int(u64(meta[32:]))
	branch := 0
	if err := readFile(path, func(tx *bbolt.Tx) error {
		branch = int(tx.Bucket(runsBucket).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if flags := binary.NativeEndian.Uint16(sound[branch*4096+8:]); flags != branchFlag {
		t.Fatalf("the runs are in a page with the flags %d", flags)
	}
	for name, damage := range map[string]func(data []byte){
		"a page in use is listed as free":        func(data []byte) { binary.NativeEndian.PutUint64(data[freelist*4096+pageHeader:], uint64(root)) },
		"the list of free pages has no end":      func(data []byte) { binary.NativeEndian.PutUint32(data[freelist*4096+12:], 1<<31) },
		"a branch refers to itself":              func(data []byte) { binary.NativeEndian.PutUint64(data[branch*4096+pageHeader+8:], uint64(branch)) },
		"a branch has another key than its leaf": func(data []byte) { lastKeyOf(data[branch*4096:])[15]-- },
	} {
		t.Run(name, func(t *testing.T) {
			data := bytes.Clone(sound)
			damage(data)
			path := filepath.Join(t.TempDir(), "hooks.db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			soon(t, "opening", func() {
				database, err := Open(path)
				if err == nil {
					database.Store().Close()
				}
				if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "nothing in it was changed") {
					t.Errorf("got %v", err)
				}
			})
			if !bytes.Equal(data, contentsOf(t, path)) {
				t.Error("the file was changed")
			}
		})
	}
}

// lastKeyOf is the last key of a branch page.
func lastKeyOf(page []byte) []byte {
	at := pageHeader + elementHeader*(int(binary.NativeEndian.Uint16(page[10:]))-1)
	return page[at+int(binary.NativeEndian.Uint32(page[at:])):][:binary.NativeEndian.Uint32(page[at+4:])]
}
