package bolt

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// A test of kills goes on until it has seen what it is about: on a busy machine a process may be killed before it has done anything.
var kills = flag.Int("kills", 4, "how often a process is killed in each test of kills, at least")

// isChild is in the environment of a process of these tests that is to be killed. It works on killedFile in the directory that
// it is started in.
const isChild, killedFile = "HOOKS_TEST_CHILD", "hooks.db"

// child starts this very test in another process, which says "begin" when it is about to. It is killed after a time from
// then on, unless it has ended. What else it said is returned, and how long it took.
func child(t *testing.T, dir string, killAfter time.Duration) (said []string, took time.Duration, killed bool) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), isChild+"=yes")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var began time.Time
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // what is not a whole line was not said
		}
		if line == "begin\n" {
			began = time.Now()
			defer time.AfterFunc(killAfter, func() { _ = cmd.Process.Kill() }).Stop()
		}
		said = append(said, strings.TrimSuffix(line, "\n"))
	}
	err = cmd.Wait()
	if err != nil && cmd.ProcessState.Exited() {
		t.Fatalf("the child failed: %v\n%s", err, strings.Join(said, "\n"))
	}
	return said, time.Since(began), err != nil
}

// veteran is what is in a file that has been used for long.
type veteran struct{ ended, queued int }

// write makes the file. Half of the runs that have ended, long ago, have a delivery that arrived, and one that was given up
// at the same time. Every hundredth has one that is pending.
func (v veteran) write(t testing.TB, path string) {
	t.Helper()
	s := newBolt(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	var ids local.IDs
	longAgo := time.Now().Add(-30 * 24 * time.Hour)
	err = db.Update(func(tx *bbolt.Tx) error {
		var err error
		put := func(bucket, key, value []byte) { err = errors.Join(err, tx.Bucket(bucket).Put(key, seal(key, value))) }
		for i := range v.ended + v.queued {
			id, idErr := ids.Next(longAgo)
			err = errors.Join(err, idErr)
			run := testRun(fmt.Sprint("chat ", i), strings.Repeat("x", 200))
			run.ID, run.AcceptedAt, run.QueueTime = id.String(), longAgo, 365*24*time.Hour
			data, _ := encodeRun(run) // its input is short, and so is in it
			if i >= v.ended {
				put(runsBucket, id[:], data)
				continue
			}
			put(endedBucket, id[:], encodeEnded(&engine.Record{Run: run, Attempts: 1, StartedAt: longAgo, FinishedAt: longAgo,
				Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true}}, "token"))
			deliver := func(index int, bucket []byte, status engine.DeliveryStatus) {
				key := local.NewDeliveryKey(id, index)
				put(bucket, key[:], encodeDelivery(&engine.Delivery{ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index,
					Callback: "https://example.com/", Status: status, TriedAt: longAgo, CreatedAt: longAgo, Due: longAgo}))
			}
			if i%2 == 0 {
				deliver(0, settledBucket, engine.Delivered)
				deliver(1, deadBucket, engine.Dead)
			}
			if i%100 == 0 {
				deliver(2, outboxBucket, engine.Pending)
			}
			keyID := newTestKey(i)
			err = errors.Join(err, tx.Bucket(keyRunsBucket).Put(id[:], keyID[:]),
				tx.Bucket(keysBucket).Put(keyID[:], append(id[:len(id):len(id)], seal(keyID[:], data)...)))
		}
		return errors.Join(err, tx.Bucket(metaBucket).Put(keyCountKey, binary.AppendUvarint(nil, uint64(v.ended))))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func newTestKey(i int) (key [32]byte) {
	binary.BigEndian.PutUint64(key[:], uint64(i)*0x9E3779B97F4A7C15)
	return key
}

// inside looks into a file that no process has open.
func inside(t *testing.T, path string, look func(tx *bbolt.Tx) error) {
	t.Helper()
	if err := readFile(path, look); err != nil {
		t.Fatal(err)
	}
}

func count(tx *bbolt.Tx, bucket []byte) (n int) {
	_ = tx.Bucket(bucket).ForEach(func(_, _ []byte) error {
		n++
		return nil
	})
	return n
}

func TestKilledWhileMigrating(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	copies := [][]byte{[]byte("first copy"), []byte("second copy"), []byte("third copy")}
	steps := slices.Clone(migrations)
	for _, name := range copies {
		steps = append(steps, func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(name)
			if err != nil {
				return err
			}
			return tx.Bucket(endedBucket).ForEach(b.Put)
		})
	}
	if os.Getenv(isChild) != "" {
		fmt.Println("begin")
		if err := migrateFile(killedFile, steps); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	old, path := filepath.Join(dir, "old.db"), filepath.Join(dir, killedFile)
	v := veteran{ended: 3_000, queued: 10}
	v.write(t, old)
	copyFile(t, old, path)
	_, all, killed := child(t, dir, time.Minute)
	if killed {
		t.Fatal("migrating takes too long")
	}
	after := map[int]int{} // how many steps were done in files whose process was killed
	check := func() (done int) {
		inside(t, path, func(tx *bbolt.Tx) error {
			layout, err := versionOf(tx)
			done = layout - newestLayout(migrations)
			for i, name := range copies {
				if b := tx.Bucket(name); (b != nil) != (i < done) || b != nil && b.Stats().KeyN != v.ended {
					t.Errorf("after %d steps the file has a wrong %s", done, name)
				}
			}
			return errors.Join(err, checkPages(tx))
		})
		return done
	}
	for tries := 0; tries < *kills || len(after) == 0; tries++ { // a quick process may end before it is killed
		copyFile(t, old, path)
		for range 2 { // the second process begins where the first one stopped
			if _, _, killed := child(t, dir, rand.N(all)); killed {
				after[check()]++
			}
		}
		if err := migrateFile(path, steps); err != nil {
			t.Fatal(err)
		}
		if done := check(); done != len(copies) {
			t.Errorf("%d steps are done", done)
		}
	}
	t.Logf("migrating takes %v; steps done in the files of killed processes: %v", all, after)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestKilledWhilePruning(t *testing.T) {
	if os.Getenv(isChild) != "" {
		pruneUntilKilled(t)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, killedFile)
	v := veteran{ended: 5_000, queued: 500}
	v.write(t, path)
	var accepted []string
	var left []int
	for tries := 0; tries < *kills || len(accepted) == 0 || left[tries-1] == v.ended; tries++ {
		said, _, killed := child(t, dir, rand.N(500*time.Millisecond))
		if !killed {
			t.Fatalf("the child ended by itself: %s", said)
		}
		for _, line := range said {
			if id, ok := strings.CutPrefix(line, "accepted "); ok {
				accepted = append(accepted, id)
			}
		}
		s := newBolt(t, path)
		if queued := s.queue.Size().Queued; queued < v.queued+len(accepted) {
			t.Errorf("%d runs are queued, want at least %d", queued, v.queued+len(accepted))
		}
		for _, id := range accepted {
			if !s.queue.Has(uuid.MustParse(id)) {
				t.Fatalf("run %s was accepted and is gone", id)
			}
		}
		if size := s.outbox.Size(); size.Pending != v.ended/100 {
			t.Errorf("%d deliveries are pending, want %d", size.Pending, v.ended/100)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		inside(t, path, func(tx *bbolt.Tx) error {
			left = append(left, count(tx, endedBucket))
			for _, bucket := range [][]byte{settledBucket, deadBucket, outboxBucket} {
				_ = tx.Bucket(bucket).ForEach(func(key, _ []byte) error {
					if tx.Bucket(endedBucket).Get(key[:16]) == nil {
						t.Fatalf("a delivery in %s has no run any more", bucket)
					}
					return nil
				})
			}
			keys, noted := count(tx, keysBucket), binaryOf(tx.Bucket(metaBucket).Get(keyCountKey))
			if keys != noted || keys != count(tx, keyRunsBucket) {
				t.Errorf("there are %d keys, %d by run, and noted are %d", keys, count(tx, keyRunsBucket), noted)
			}
			return checkPages(tx)
		})
	}
	t.Logf("%d runs accepted meanwhile; left of those that had ended after each kill: %v", len(accepted), left)
}

func binaryOf(data []byte) int {
	n, _ := binary.Uvarint(data)
	return int(n)
}

// pruneUntilKilled prunes while runs are accepted, and says which.
func pruneUntilKilled(t *testing.T) {
	s := newBolt(t, killedFile)
	fmt.Println("begin")
	go func() {
		for {
			if _, err := s.Prune(context.Background(), engine.Limits{Retention: time.Second, KeyAge: time.Second}); err != nil {
				fmt.Println("pruning:", err)
				os.Exit(1)
			}
		}
	}()
	for i := 0; ; i++ {
		run := testRun(fmt.Sprint("new chat ", i), "hello")
		if err := s.Runs().Add(context.Background(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("accepted " + run.ID)
	}
}
