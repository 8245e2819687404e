package programs

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// `go mod download` leaves folders that it may not write to, and a program may take away more of its own rights.
func TestFoldersWithoutRightsAreRemoved(t *testing.T) {
	t.Parallel()
	const somebody = 65534
	around, outside := t.TempDir(), t.TempDir()
	turn := filepath.Join(around, "once-1")
	within := filepath.Join(turn, "home", "a", "b")
	if err := os.MkdirAll(within, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(within, "go.mod"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(within, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outside, 0o500); err != nil {
		t.Fatal(err)
	}
	folders := []string{within, filepath.Dir(within), filepath.Join(turn, "home"), turn}
	for i, folder := range folders {
		if err := os.Chmod(folder, []os.FileMode{0, 0o555, 0o300, 0o500}[i]); err != nil {
			t.Fatal(err)
		}
	}
	result := make(chan error)
	go func() {
		if os.Geteuid() == 0 { // who may do everything, unlike this thread, which ends with the goroutine
			runtime.LockOSThread()
			for _, path := range append(folders, filepath.Join(within, "go.mod"), around, outside, filepath.Dir(around)) {
				if err := os.Lchown(path, somebody, somebody); err != nil {
					t.Error(err)
				}
			}
			if err := syscall.Setfsuid(somebody); err != nil {
				t.Error(err)
			}
		}
		if os.RemoveAll(turn) == nil {
			t.Error("the folder could be removed as it was")
		}
		result <- removeFolder(turn)
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(turn); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("a folder that a link leads to has other rights now: %v, %v", info.Mode(), err)
	}
}
