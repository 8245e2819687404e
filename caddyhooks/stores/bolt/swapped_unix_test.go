//go:build unix

package bolt

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
		file, err := createBeside(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(file.Discard)
		if err := errors.Join(os.Rename(file.Name(), filepath.Join(dir, "stolen")), os.Symlink(victim, file.Name())); err != nil {
			t.Fatal(err)
		}
		if again, err := file.openAgain(file.Name(), os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, errSwapped) {
			t.Errorf("it was opened: %v, %v", again, err)
		}
		place, err := lockPlace(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = place.replace(file, true)
		place.release()
		if !errors.Is(err, errSwapped) {
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

func TestAReplacedFileKeepsItsOwner(t *testing.T) {
	t.Parallel()
	const somebody = 65534
	checked, err := Check(backupFile(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hooks", "store.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	want := uint32(os.Geteuid()) // who may not give files away
	if want == 0 {
		want = somebody
		if err := os.Chown(filepath.Dir(path), somebody, somebody); err != nil {
			t.Fatal(err)
		}
	}
	wantOwner := func(what string) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the file is %+v, %v", what, info.Sys(), err)
		}
	}
	for range 2 {
		if _, err := checked.Restore(path, true); err != nil {
			t.Fatal(err)
		}
		wantOwner("restored")
	}
	if _, err := Compact(path, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	wantOwner("compacted")
}

func TestWhatAKilledRestoreLeftIsRemovedByTheNext(t *testing.T) {
	t.Parallel()
	checked, err := Check(backupFile(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	if _, err := checked.Restore(path, false); err != nil {
		t.Fatal(err)
	}
	left, other := filepath.Join(dir, ".store.db.123.partial"), filepath.Join(dir, ".other.db.123.partial")
	for name, again := range map[string]func() error{
		"restore": func() error { _, err := checked.Restore(path, true); return err },
		"compact": func() error { _, err := Compact(path, func(int64) {}); return err },
	} {
		for _, file := range []string{left, other} {
			if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := again(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s leaves what a killed one left: %v", name, err)
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("%s removes what belongs to another store: %v", name, err)
		}
	}
}
