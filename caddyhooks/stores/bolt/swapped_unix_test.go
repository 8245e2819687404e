//go:build unix

package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

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
