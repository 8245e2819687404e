package bolt

import (
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// Nobody waits long for a step of pruning, also if it finds nothing to delete.
func TestAStepOfPruningLooksAtSomeRuns(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	id := func(n int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(n)) }
	err := s.committer.do(t.Context(), &change{apply: func(t *transaction) error {
		for n := range 2*pruneLooksAt + 1 {
			t.put(endedBucket, id(n), nil)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.db.View(func(tx *bbolt.Tx) error {
		var from []byte
		for _, want := range []string{string(id(pruneLooksAt)), string(id(2 * pruneLooksAt)), ""} {
			old, next, more := oldRuns(tx, from, time.Now(), time.Unix(0, 0))
			if len(old) != 0 || string(next) != want || more != (want != "") {
				t.Errorf("from %x it is %d old runs, then %x, more %v; want %x", from, len(old), next, more, want)
			}
			from = next
		}
		return nil
	})
}
