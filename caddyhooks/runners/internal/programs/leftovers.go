package programs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The beginnings of the names of folders for one turn.
const (
	onceFolder = "once-"
	TurnFolder = "turn-"
)

// MakeTurnFolder makes a folder for one turn. It is locked until release is called or Caddy is gone, so that one that was left behind
// can be recognised.
func MakeTurnFolder(around, beginning string) (path string, release func(), err error) {
	if path, err = os.MkdirTemp(around, beginning); err != nil {
		return "", nil, err
	}
	release, ok := LockFolder(path)
	if !ok {
		release = func() {}
	}
	return path, release, nil
}

// searchedFolders are the folders in which leftovers were looked for since Caddy was started, each with a *sync.Once.
var searchedFolders sync.Map

// removeLeftovers removes the folders of turns that nobody removed, since Caddy was killed. It is done before the first turn.
func removeLeftovers(around string) {
	once, _ := searchedFolders.LoadOrStore(around, new(sync.Once))
	once.(*sync.Once).Do(func() {
		found, _ := os.ReadDir(around) // without it there is nothing to remove
		for _, entry := range found {
			if !strings.HasPrefix(entry.Name(), onceFolder) && !strings.HasPrefix(entry.Name(), TurnFolder) {
				continue
			}
			path := filepath.Join(around, entry.Name())
			if release, ok := LockFolder(path); ok {
				_ = removeFolder(path) // what cannot be removed is no reason against a turn
				release()
			}
		}
	})
}

// removeFolder removes a folder of a turn. Programs leave folders there that nobody may write to, as `go mod download` does. No link is
// followed out of it.
func removeFolder(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	around, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer around.Close()
	name := filepath.Base(path)
	_ = fs.WalkDir(around.FS(), name, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = around.Chmod(path, 0o700) // if that fails, so does RemoveAll
		}
		return nil
	})
	return around.RemoveAll(name)
}
