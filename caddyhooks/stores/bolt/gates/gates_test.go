package gates

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

// open makes a file with the buckets of gates.
func open(t *testing.T) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "gates.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	update(t, db, func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket(AgesBucket); err != nil {
			return err
		}
		_, err := tx.CreateBucket(Bucket)
		return err
	})
	return db
}

func update(t *testing.T, db *bbolt.DB, change func(tx *bbolt.Tx) error) {
	t.Helper()
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
}

// sizes are how many states, ages and counted states there are.
func sizes(t *testing.T, db *bbolt.DB) (states, ages int, counted uint64) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		states, ages, counted = tx.Bucket(Bucket).Stats().KeyN, tx.Bucket(AgesBucket).Stats().KeyN, tx.Bucket(Bucket).Sequence()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return states, ages, counted
}

func state(run int, until time.Time) gate.State {
	return gate.State{Until: until, First: gate.First{RunID: fmt.Sprint(run), ChatID: "chat", Action: "agent"}}
}

// However many values there are, no more than most are kept, and those go first that were written first, however long they would be kept.
func TestNumberOfStatesIsBounded(t *testing.T) {
	t.Parallel()
	db := open(t)
	const most = 1000
	begin := time.Unix(1_000_000, 0)
	id := func(i int) [32]byte { return gate.NewID(gate.Once, "hook", fmt.Sprint(i)) }
	until := func(i int) time.Time { // those before are kept for longer
		if i < 19*most {
			return begin.Add(1000 * time.Hour)
		}
		return begin.Add(time.Duration(i) * time.Second)
	}
	for from := 0; from < 20*most; from += most {
		update(t, db, func(tx *bbolt.Tx) error {
			for i := from; i < from+most; i++ {
				for later := range 2 { // a state that is put again is still one
					now := begin.Add(time.Duration(i)*time.Millisecond + time.Duration(later))
					if err := Put(tx, id(i), state(i, until(i)), now, most); err != nil {
						return err
					}
					if got := Get(tx, id(i)); got.First.RunID != fmt.Sprint(i) {
						t.Fatalf("a state that was put is %+v", got)
					}
				}
			}
			return nil
		})
		if states, ages, counted := sizes(t, db); states != most || ages != most || counted != most {
			t.Fatalf("%d states, %d ages and %d counted", states, ages, counted)
		}
	}
	update(t, db, func(tx *bbolt.Tx) error {
		if got := Get(tx, id(19*most)); got.First.RunID != fmt.Sprint(19*most) {
			t.Errorf("a young state is %+v", got)
		}
		if got := Get(tx, id(19*most-1)); got.First.RunID != "" {
			t.Errorf("an old state is %+v", got)
		}
		return nil
	})
	half := begin.Add(19*most*time.Second + most/2*time.Second - 1)
	var from []byte
	for steps := 0; steps == 0 || from != nil; steps++ {
		if steps > 20 {
			t.Fatal("pruning does not come to an end")
		}
		update(t, db, func(tx *bbolt.Tx) (err error) {
			from, _, err = Prune(tx, half, from, most/10)
			return err
		})
	}
	if states, ages, counted := sizes(t, db); states != most/2 || ages != most/2 || counted != most/2 {
		t.Errorf("after pruning %d states, %d ages and %d counted", states, ages, counted)
	}
}

func TestDamagedStatesBeginAnew(t *testing.T) {
	t.Parallel()
	db := open(t)
	id := gate.NewID(gate.Once, "hook", "a")
	until := time.Unix(1_000_000, 0)
	update(t, db, func(tx *bbolt.Tx) error { return Put(tx, id, state(1, until), until, 10) })
	for at := range encode(id[:], new(gate.State), until) {
		update(t, db, func(tx *bbolt.Tx) error {
			good := tx.Bucket(Bucket).Get(id[:])
			record := append([]byte(nil), good...)
			record[at] ^= 1
			if Check(id[:], record) == nil || Check(id[:], good) != nil {
				t.Errorf("byte %d", at)
			}
			if err := tx.Bucket(Bucket).Put(id[:], record); err != nil {
				return err
			}
			if got := Get(tx, id); got.First.RunID != "" {
				t.Errorf("a damaged state is %+v", got)
			}
			return Put(tx, id, state(1, until), until, 10)
		})
	}
}
