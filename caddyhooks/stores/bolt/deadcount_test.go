package bolt

import (
	"encoding/binary"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/counts"
)

// A file that an earlier version wrote to has the sum alone, and one that is damaged has anything.
func TestDeadDeliveriesAreCountedAgainIfTheirNumbersAreMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	for i, channel := range []string{"team", "team", "", "ops"} {
		run := testRun("chat", "")
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		d := &engine.Delivery{ID: engine.DeliveryID(run.ID, 0), RunID: run.ID, Channel: channel, To: "somebody", Status: engine.Pending, Body: "long"}
		if channel == "" {
			d.Callback = "https://example.com"
		}
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, Deliveries: []*engine.Delivery{d}}
		if _, err := s.Runs().End(t.Context(), &engine.Claim{Run: run}, end, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
		due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 1, Lease: time.Hour})
		if err != nil || len(due) != 1 {
			t.Fatalf("claimed %d deliveries, %v", len(due), err)
		}
		if due[0].Status = engine.Dead; i == 3 {
			due[0].Status = engine.Delivered
		}
		if err := s.Deliveries().Settle(t.Context(), due[0], 0); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]engine.Undelivered{"": {Dead: 1}, "team": {Dead: 2}}
	check := func(what string) {
		t.Helper()
		if got, err := s.Deliveries().CountByChannel(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: counted %v (%v), want %v", what, got, err, want)
		}
	}
	check("at first")
	sum := binary.AppendUvarint(nil, 3)
	for what, data := range map[string][]byte{
		"nothing": nil, "the sum alone": sum, "another sum": counts.ByChannel{"team": 2}.Encode(),
		"half of it": append(sum, 4, 't', 'e'), "no number": append(sum, 1, 't'), "too many": append(sum, 1, 't', 200),
	} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			if data == nil {
				return tx.Bucket(metaBucket).Delete(deadCountKey)
			}
			return tx.Bucket(metaBucket).Put(deadCountKey, data)
		})
		if err != nil || db.Close() != nil {
			t.Fatal(err)
		}
		s = newBolt(t, path)
		if what != "another sum" { // which makes sense, and is not looked into
			check(what)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
