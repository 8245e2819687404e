package programs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OnceFolders are folders for one turn without memory. Nothing in them outlives it, so that no later turn can recall it.
type OnceFolders struct {
	all, Work, Home, Temp string
	owner                 *owner
	release               func()
}

// FoldersForOnce makes folders for a turn. The home has copies of files of the lasting one that the program cannot do without: its
// settings and credentials.
func (p *Program) FoldersForOnce(lasting string, config []string) (f OnceFolders, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a home for a turn without memory: %w", err)
		}
	}()
	if f.owner, err = p.Owner(); err != nil {
		return f, err
	}
	if err := p.makePlace(f.owner); err != nil {
		return f, err
	}
	if f.all, f.release, err = MakeTurnFolder(p.place, onceFolder); err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Remove())
		}
	}()
	f.Work, f.Home, f.Temp = filepath.Join(f.all, "work"), filepath.Join(f.all, "home"), filepath.Join(f.all, "tmp")
	for _, folder := range []string{f.Work, f.Home, f.Temp} {
		if err := makeFolder(folder, nil); err != nil {
			return f, err
		}
	}
	for _, name := range config {
		data, err := ReadConfig(lasting, name, f.owner)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f.Write(name, data)
		}
		if err != nil {
			return f, err
		}
	}
	return f, f.HandOver()
}

// LastingHome is a home that stays, for write and handOver. top is the folder below it that is handed over.
func LastingHome(home, top string, as *owner) *OnceFolders {
	return &OnceFolders{all: filepath.Join(home, top), Home: home, owner: as}
}

// HandOver gives all to the user that the program runs as. That user may put links there, and none is followed out of the folder.
func (f *OnceFolders) HandOver() error {
	if f.owner == nil {
		return nil
	}
	around, err := os.OpenRoot(filepath.Dir(f.all))
	if err != nil {
		return err
	}
	defer around.Close()
	name := filepath.Base(f.all)
	root, err := around.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return root.Lchown(path, f.owner.uid, f.owner.gid)
	})
	return errors.Join(err, around.Lchown(name, f.owner.uid, f.owner.gid))
}

// Read reads a file of settings below the home.
func (f *OnceFolders) Read(name string) ([]byte, error) { return ReadConfig(f.Home, name, f.owner) }

// Write writes a file below the home.
func (f *OnceFolders) Write(name string, data []byte) error {
	const private, privateFile = 0o700, 0o600
	if f.owner == nil {
		path := filepath.Join(f.Home, name)
		if err := os.MkdirAll(filepath.Dir(path), private); err != nil {
			return err
		}
		return os.WriteFile(path, data, privateFile)
	}
	root, err := os.OpenRoot(f.Home)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), private); err != nil {
		return err
	}
	return root.WriteFile(name, data, privateFile)
}

// Remove removes all.
func (f *OnceFolders) Remove() error {
	defer f.release()
	return removeFolder(f.all)
}

// ReadConfig reads a file of settings below a home. In a home of another user, no link is followed out of it: Caddy may read more than
// that user.
func ReadConfig(home, name string, as *owner) ([]byte, error) {
	const most = 1 << 20
	file, err := openBelow(home, name, as)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s is not a settings file", filepath.Join(home, name))
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// openBelow opens a file, and does not wait for the writer of a pipe.
func openBelow(home, name string, as *owner) (*os.File, error) {
	const mode = os.O_RDONLY | syscall.O_NONBLOCK
	if as == nil {
		return os.OpenFile(filepath.Join(home, name), mode, 0)
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(name, mode, 0)
}
