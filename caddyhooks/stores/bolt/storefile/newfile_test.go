package storefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFilesReplacedWithinAMillisecondAreAllKept(t *testing.T) {
	t.Parallel()
	place := &Place{Path: filepath.Join(t.TempDir(), "store.db")}
	now := time.Now().UTC()
	for _, content := range []string{"first", "second", "third"} {
		if err := os.WriteFile(place.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		kept, err := place.keepOld(now)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(place.Path); err != nil { // another file takes its place
			t.Fatal(err)
		}
		defer func() {
			if data, err := os.ReadFile(kept); err != nil || string(data) != content {
				t.Errorf("%s has %q, %v, not %q", kept, data, err, content)
			}
		}()
	}
}
