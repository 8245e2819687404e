package runners

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// onceFolders are folders for one turn without memory. Nothing in them outlives it, so that no later turn can recall it.
type onceFolders struct {
	all, work, home, temp string
	owner                 *owner
}

// foldersForOnce makes folders for a turn. The home has copies of files of the lasting one that the program cannot do without: its
// settings and credentials.
func (p *Program) foldersForOnce(lasting string, config []string) (f onceFolders, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a home for a turn without memory: %w", err)
		}
	}()
	if f.owner, err = p.owner(); err != nil {
		return f, err
	}
	if err := p.makePlace(f.owner); err != nil {
		return f, err
	}
	if f.all, err = os.MkdirTemp(p.place, "once-"); err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.remove())
		}
	}()
	f.work, f.home, f.temp = filepath.Join(f.all, "work"), filepath.Join(f.all, "home"), filepath.Join(f.all, "tmp")
	for _, folder := range []string{f.work, f.home, f.temp} {
		if err := makeFolder(folder, nil); err != nil {
			return f, err
		}
	}
	for _, name := range config {
		data, err := readConfig(filepath.Join(lasting, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f.write(name, data)
		}
		if err != nil {
			return f, err
		}
	}
	return f, f.handOver()
}

// handOver gives all to the user that the program runs as. Until then nobody else can put a link there.
func (f *onceFolders) handOver() error {
	if f.owner == nil {
		return nil
	}
	return filepath.WalkDir(f.all, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, f.owner.uid, f.owner.gid)
	})
}

// write writes a file below the home.
func (f *onceFolders) write(name string, data []byte) error {
	const private, privateFile = 0o700, 0o600
	path := filepath.Join(f.home, name)
	if err := os.MkdirAll(filepath.Dir(path), private); err != nil {
		return err
	}
	return os.WriteFile(path, data, privateFile)
}

// remove removes all. A program may have taken away its own rights to do so.
func (f *onceFolders) remove() error { return os.RemoveAll(f.all) }

// readConfig reads a file of settings.
func readConfig(path string) ([]byte, error) {
	const most = 1 << 20
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s is no file of settings", path)
	}
	return io.ReadAll(io.LimitReader(file, most))
}
