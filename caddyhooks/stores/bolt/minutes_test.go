package bolt

import (
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// A minute is there for plots alone, so one that is damaged costs nothing but itself.
func TestADamagedMinuteIsPassedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hooks.db")
	s := newBolt(t, path)
	at := time.Date(2026, 5, 17, 10, 0, 0, 0, time.UTC)
	for i := range 3 {
		minute := engine.Minute{At: at.Add(time.Duration(i) * time.Minute), Part: uint64(i), Accepted: int64(i + 1)}
		if err := s.Minutes().Save(t.Context(), minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		minutes := tx.Bucket(minutesBucket)
		cursor := minutes.Cursor()
		cursor.First()
		key, data := cursor.Next()
		damaged := append([]byte{}, data...)
		damaged[len(damaged)-1]++
		if err := minutes.Put([]byte("short"), damaged); err != nil {
			return err
		}
		return minutes.Put(append([]byte{}, key...), damaged)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = newBolt(t, path)
	defer s.Close()
	got, err := s.Minutes().Load(t.Context(), at)
	if err != nil || len(got) != 2 || got[0].Accepted != 1 || got[1].Accepted != 3 {
		t.Errorf("got %+v, %v; want the first and the last minute", got, err)
	}
}

func TestAMinuteTakesAFewHundredBytes(t *testing.T) {
	t.Parallel()
	minute := engine.Minute{At: time.Now(), Accepted: 600_000, Completed: 590_000, Failed: 10_000, Answered2xx: 600_000, Answered4xx: 12_000, Queued: 500, Oldest: time.Minute}
	for i := 5; i < 15; i++ {
		minute.Durations[i] = 60_000
	}
	minute.Hooks = make(map[string]engine.HookMinute)
	for _, name := range []string{"github-issues", "alerts", "stripe-invoices", "wake", "agent"} {
		hook := engine.HookMinute{Accepted: 120_000, Failed: 2000, Last: time.Now()}
		for i := 3; i < 7; i++ {
			hook.Durations[i] = 30_000
		}
		minute.Hooks[name] = hook
	}
	if size := len(encodeMinute(minuteKey(&minute, "node"), &minute)); size > 500 {
		t.Errorf("a busy minute of five hooks takes %d bytes", size)
	}
}

// FuzzDecodeMinute reads minutes whose checksum is right and whose contents are not.
func FuzzDecodeMinute(f *testing.F) {
	minute := engine.Minute{At: time.Now(), Part: 3, Accepted: 7, Hooks: map[string]engine.HookMinute{"a": {Accepted: 7}}}
	minute.Durations[3] = 9
	key := minuteKey(&minute, "node")
	f.Add(encodeMinute(key, &minute)[4:])
	f.Fuzz(func(t *testing.T, contents []byte) {
		if _, err := decodeMinute(key, seal(key, append(make([]byte, 4), contents...))); err != nil {
			t.Skip()
		}
	})
}
