//go:build unix

package storefile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Whoever may write to the directory of a store may put a link under the name of the file that root restores or compacts.
func TestALinkInThePlaceOfANewFileLeadsNowhere(t *testing.T) {
	t.Parallel()
	for _, exists := range []bool{false, true} {
		dir, outside := t.TempDir(), t.TempDir()
		path, victim := filepath.Join(dir, "store.db"), filepath.Join(outside, "victim")
		if err := os.WriteFile(victim, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if exists {
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		const nobody = 65534
		if os.Geteuid() == 0 {
			if err := errors.Join(os.Lchown(dir, nobody, nobody), os.Lchown(victim, 0, 0)); err != nil {
				t.Fatal(err)
			}
			if exists {
				if err := os.Lchown(path, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
		}
		before, err := os.Stat(victim)
		if err != nil {
			t.Fatal(err)
		}
		file, err := CreateBeside(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(file.Discard)
		if err := errors.Join(os.Rename(file.Name(), filepath.Join(dir, "stolen")), os.Symlink(victim, file.Name())); err != nil {
			t.Fatal(err)
		}
		if again, err := file.OpenAgain(file.Name(), os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, ErrSwapped) {
			t.Errorf("it was opened: %v, %v", again, err)
		}
		place, err := LockPlace(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = place.Replace(file, true)
		place.Release()
		if !errors.Is(err, ErrSwapped) {
			t.Errorf("it was placed: %v", err)
		}
		after, err := os.Stat(victim)
		if err != nil || after.Sys().(*syscall.Stat_t).Uid != before.Sys().(*syscall.Stat_t).Uid {
			t.Errorf("the file outside has another owner: %+v, %v", after, err)
		}
		if text, err := os.ReadFile(path); exists && string(text) != "old" || !exists && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the store's file is now %q, %v", text, err)
		}
	}
}
