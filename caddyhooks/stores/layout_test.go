package stores

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var writeLayout = flag.Bool("write-layout", false, "write a new testdata/layout-<n>.db for the present version of the layout")

// writeLayoutFile writes a file that has something of everything. Once a version has been released, its file must stay.
func writeLayoutFile(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(s.SaveSettings(t.Context(), []byte(`{"enabled":true}`)))
	add := func(chat, message string) {
		run := testRun(chat, message)
		run.Metadata = []byte(`{"host":"web-3"}`)
		run.Key = &engine.Key{ID: [32]byte([]byte(message + "                                ")[:32]), Body: [32]byte{1}}
		check(s.Add(t.Context(), run, engine.Limits{}))
	}
	claim := func() *engine.Claim {
		claims, err := s.Claim(t.Context(), engine.Want{Runs: 1, Lease: time.Minute})
		check(err)
		return claims[0]
	}
	add("ended", "ended")
	ended := claim()
	deliveries := []*engine.Delivery{
		{ID: "msg_1", RunID: ended.Run.ID, Index: 0, Status: engine.Pending, Callback: "https://example.com/", Body: "pending", Due: time.Now()},
		{ID: "msg_2", RunID: ended.Run.ID, Index: 1, Status: engine.Pending, Channel: "notes", To: "me", Body: "arrived", Due: time.Now().Add(-time.Hour)},
		{ID: engine.DeliveryID(ended.Run.ID, 2), RunID: ended.Run.ID, Index: 2, Status: engine.Pending, Channel: "notes", To: "you", Body: "dead", Due: time.Now().Add(-2 * time.Hour)},
	}
	_, err := s.Finish(t.Context(), ended, engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "hi", HasText: true},
		Deliveries: deliveries, At: time.Now()}, engine.Want{})
	check(err)
	due, _, err := s.ClaimDeliveries(t.Context(), time.Now(), 2)
	check(err)
	due[0].Status, due[0].Attempt, due[0].LastStatus, due[0].LastAnswer = engine.Dead, 8, 500, "oops"
	check(s.SettleDelivery(t.Context(), due[0]))
	due[1].Status, due[1].Attempt = engine.Delivered, 1
	check(s.SettleDelivery(t.Context(), due[1]))
	add("busy", "interrupted")
	claim()
	add("busy", "queued")
	check(s.Close())

	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	from, err := bolt.Open(path, 0o600, nil)
	check(err)
	to, err := bolt.Open(name, 0o644, nil)
	check(err)
	check(bolt.Compact(to, from, 0))
	check(to.Close())
	check(from.Close())
}

// checkLayoutFile checks that all that writeLayoutFile wrote is there.
func checkLayoutFile(t *testing.T, s engine.Store, version int) {
	t.Helper()
	if settings, err := s.Settings(t.Context()); err != nil || string(settings) != `{"enabled":true}` {
		t.Errorf("the settings are %s, %v", settings, err)
	}
	claims, err := s.Claim(t.Context(), engine.Want{Runs: 10, Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d runs, %v", len(claims), err)
	}
	first := claims[0]
	if first.Run.Message != "interrupted" || first.Attempt != 2 || string(first.Run.Metadata) != `{"host":"web-3"}` {
		t.Errorf("the first run is %+v, attempt %d", first.Run, first.Attempt)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, At: time.Now()}
	next, err := s.Finish(t.Context(), first, end, engine.Want{Runs: 1, Lease: time.Minute})
	if err != nil || len(next) != 1 || next[0].Run.Message != "queued" || next[0].Attempt != 1 {
		t.Errorf("the next one is %+v, %v", next, err)
	}
	due, _, err := s.ClaimDeliveries(t.Context(), time.Now(), 10)
	if err != nil || len(due) != 1 || due[0].ID != "msg_1" || due[0].Body != "pending" {
		t.Fatalf("due are %+v, %v", due, err)
	}
	record, err := s.Get(t.Context(), due[0].RunID)
	if err != nil || record.Outcome.Text != "hi" || len(record.Deliveries) != min(version+1, 3) || record.Deliveries[1].Status != engine.Delivered {
		t.Errorf("the run that has ended is %+v, %v", record, err)
	}
	if version > 1 { // the file of the first version has none
		dead, err := s.Delivery(t.Context(), engine.DeliveryID(record.Run.ID, 2))
		if err != nil || dead.Status != engine.Dead || dead.Attempt != 8 || dead.LastStatus != 500 || dead.LastAnswer != "oops" || dead.Body != "dead" {
			t.Errorf("the delivery that was given up is %+v, %v", dead, err)
		}
	}
	again := testRun("ended", "ended")
	again.Key = record.Run.Key
	var duplicate *engine.DuplicateError
	if err := s.Add(t.Context(), again, engine.Limits{}); !errors.As(err, &duplicate) || duplicate.First.ID != due[0].RunID || !duplicate.SameBody {
		t.Errorf("adding a run with a known key: %v", err)
	}
}

// TestDeadDeliveriesOfTheFirstLayoutAreFound makes a file as the first version wrote it, which kept those that were given
// up among those that had arrived.
func TestDeadDeliveriesOfTheFirstLayoutAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	writeLayoutFile(t, path)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		err := tx.Bucket(deadBucket).ForEach(func(key, value []byte) error { return tx.Bucket(settledBucket).Put(key, value) })
		return errors.Join(err, tx.DeleteBucket(deadBucket), putVersion(tx, 1))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := newBolt(t, path)
	defer s.Close()
	checkLayoutFile(t, s, 2)
	for status, want := range map[engine.DeliveryStatus]int{engine.Dead: 1, engine.Delivered: 1, engine.Pending: 1, "": 3} {
		if page, _, err := s.ListDeliveries(t.Context(), engine.DeliveryQuery{Status: status, Limit: 10}); err != nil || len(page) != want {
			t.Errorf("%d deliveries are listed as %q, want %d (%v)", len(page), status, want, err)
		}
	}
}

// A file of an old layout that is damaged must be left alone, and must not take the process down, as every other one.
func TestADamagedFileOfAnOldLayoutIsLeftAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	addRuns(t, s, 2000, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The free list is not in it, as in one that was not closed.
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return errors.Join(tx.DeleteBucket(deadBucket), putVersion(tx, 1), tx.Bucket(metaBucket).Put(freelistKey, []byte{1}))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for page := 4; page < len(data)/4096; page += 7 {
		damaged := slices.Clone(data)
		copy(damaged[page*4096:(page+1)*4096], bytes.Repeat([]byte{0xAA}, 4096))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openBolt(path)
		if err == nil {
			s.Close() // the page was a free one
			continue
		}
		refused++
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(after, damaged) {
			t.Fatalf("with page %d damaged the file was changed", page)
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}
