package bolt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// NewFile is a file that takes its place when it is complete. Until then it has a name of its own in the same directory, and is removed if it never gets
// that far. Only its owner may read it.
type NewFile struct {
	*os.File
	path string // its place
}

// CheckPlace reports whether there is a file at the path of a store. It is an error if a process has it open, or if a file cannot be put there.
func CheckPlace(path string) (exists bool, err error) {
	place, err := lockPlace(path)
	if err != nil {
		return false, placeError(path, err)
	}
	place.release()
	return place.exists(), nil
}

// placeError names the path, unless the error does.
func placeError(path string, err error) error {
	var inUse *InUseError
	var exists *ExistsError
	if err == nil || errors.As(err, &inUse) || errors.As(err, &exists) {
		return err
	}
	return fmt.Errorf("the place of the store, %s: %w", path, err)
}

// CreateBackup begins a backup at a path. Without overwrite, a file that is there is left alone.
func CreateBackup(path string, overwrite bool) (*NewFile, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s is a symbolic link: name the file that you mean", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	case !overwrite:
		return nil, &ExistsError{Path: path}
	}
	return createBeside(path)
}

// ExistsError says that there is a file already.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string { return fmt.Sprintf("there is a file %s already", e.Path) }

// partial ends the names of files that are not complete.
const partial = ".partial"

// besideOf is the pattern of the names of files that are to take the place of another one.
func besideOf(path string) string { return "." + filepath.Base(path) + ".*" + partial }

// removeLeft removes what a process that was killed had begun. It has secrets in it.
func removeLeft(path string) {
	names, _ := fs.Glob(os.DirFS(filepath.Dir(path)), besideOf(path)) // a name with a bracket in it has none
	for _, name := range names {
		_ = os.Remove(filepath.Join(filepath.Dir(path), name))
	}
}

func createBeside(path string) (*NewFile, error) {
	file, err := os.CreateTemp(filepath.Dir(path), besideOf(path)) // readable for its owner alone
	if err != nil {
		return nil, ExplainSpace(err)
	}
	return &NewFile{file, path}, nil
}

// Discard removes the file, unless it took its place.
func (f *NewFile) Discard() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// errSwapped says that somebody put another file under the name of one that is not complete. Whoever may write to the directory can do so, and must not
// get at other files through a process that may do more, such as one of root.
var errSwapped = errors.New("another file took the place of the one that was being written, and nothing was changed")

// checkName returns an error if the name is not that of this file any more.
func (f *NewFile) checkName() error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(f.Name()); err != nil || !os.SameFile(mine, named) {
		return errSwapped
	}
	return nil
}

// openAgain opens this file, and no other of its name.
func (f *NewFile) openAgain(name string, flag int, mode os.FileMode) (*os.File, error) {
	mine, err := f.Stat()
	if err != nil {
		return nil, err
	}
	again, err := os.OpenFile(name, flag&^(os.O_CREATE|os.O_TRUNC), mode)
	if err != nil {
		return nil, err
	}
	if opened, err := again.Stat(); err != nil || !os.SameFile(mine, opened) {
		return nil, errors.Join(errSwapped, again.Close())
	}
	return again, nil
}

// finish makes the file survive a power cut.
func (f *NewFile) finish() error {
	err := f.Sync()
	return ExplainSpace(errors.Join(err, f.Close()))
}

// Place checks a backup that was written, and gives it its name. A file that came into being there meanwhile stays, without overwrite.
func (f *NewFile) Place(overwrite bool) (*Checked, error) {
	if err := f.finish(); err != nil {
		return nil, err
	}
	checked, err := Check(f.Name())
	if err != nil {
		return nil, err
	}
	checked.Path = f.path
	if checked.Manifest == nil {
		return nil, errNoEnd
	}
	if overwrite {
		err = os.Rename(f.Name(), f.path)
	} else {
		err = nameOnce(f.Name(), f.path)
	}
	if err != nil {
		return nil, err
	}
	return checked, syncDir(filepath.Dir(f.path))
}

// nameOnce gives a file a name that no other has.
func nameOnce(temp, path string) error {
	err := os.Link(temp, path)
	switch {
	case err == nil:
		return os.Remove(temp)
	case errors.Is(err, fs.ErrExist):
		return &ExistsError{Path: path}
	}
	if _, err := os.Lstat(path); err == nil { // a file system without links
		return &ExistsError{Path: path}
	}
	return os.Rename(temp, path)
}

// Restore puts a backup that was checked in the place of a store's file. A file that is there is refused without overwrite, and with it, is kept
// under another name: kept, which is "" if there was none. It fails if a process has the file open.
func (c *Checked) Restore(path string, overwrite bool) (kept string, err error) {
	defer func() {
		err = placeError(path, err)
	}()
	old, err := lockPlace(path)
	if err != nil {
		return "", err
	}
	defer old.release()
	if old.exists() && !overwrite {
		return "", &ExistsError{Path: old.path}
	}
	if err := os.MkdirAll(filepath.Dir(old.path), 0o700); err != nil {
		return "", err
	}
	if old.exists() { // and so is locked: nobody else is restoring it
		removeLeft(old.path)
	}
	temp, err := createBeside(old.path)
	if err != nil {
		return "", err
	}
	defer temp.Discard()
	if err := c.copyTo(temp); err != nil {
		return "", ExplainSpace(err)
	}
	if err := temp.Sync(); err != nil {
		return "", ExplainSpace(err)
	}
	return old.replace(temp, true)
}

// copyTo copies the database, without the manifest.
func (c *Checked) copyTo(w io.Writer) error {
	file, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, digest), io.NewSectionReader(file, 0, c.Bytes)); err != nil {
		return err
	}
	if !bytes.Equal(digest.Sum(nil), c.digest) {
		return fmt.Errorf("%s was changed since it was checked", c.Path)
	}
	return nil
}

// lockedPlace is where a store's file is or will be. Nobody else opens the file while it is locked.
type lockedPlace struct {
	path    string      // without symbolic links
	info    fs.FileInfo // nil if there is none
	release func()      // unlocks it
}

// lockPlace locks the file at a path, if there is one. Caddy looks again once it gets the lock of a file: if another one took its place, it lets go.
func lockPlace(path string) (*lockedPlace, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return nil, errors.New("it is a symbolic link to a file that is not there")
		}
		return &lockedPlace{path: path, release: func() {}}, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		_ = file.Close()
		return nil, &InUseError{real}
	}
	return &lockedPlace{real, info, sync.OnceFunc(func() { letGo(file) })}, nil
}

func (p *lockedPlace) exists() bool { return p.info != nil }

// keptFormat ends the name of a file that another one took the place of.
const keptFormat = ".before-20060102T150405.000Z"

// replace puts a complete file in this place, with the owner of the old one or of the directory. The old one keeps another name, if keep is set.
func (p *lockedPlace) replace(file *NewFile, keep bool) (kept string, err error) {
	dir := filepath.Dir(p.path)
	like := p.info
	if like == nil {
		if like, err = os.Stat(dir); err != nil {
			return "", err
		}
	}
	if err := giveTo(file.File, like); err != nil {
		return "", err
	}
	if err := file.checkName(); err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", ExplainSpace(err)
	}
	temp := file.Name()
	if !p.exists() {
		return "", errors.Join(nameOnce(temp, p.path), syncDir(dir))
	}
	if runtime.GOOS == "windows" {
		p.release() // where an open file keeps its name
	}
	if keep {
		kept = p.path + time.Now().UTC().Format(keptFormat)
		if err := os.Link(p.path, kept); errors.Is(err, fs.ErrExist) {
			return "", err
		} else if err != nil { // a file system without links
			if err := os.Rename(p.path, kept); err != nil {
				return "", err
			}
		}
	}
	if err := os.Rename(temp, p.path); err != nil {
		return "", err
	}
	return kept, syncDir(dir)
}

// ExplainSpace says that a disk is full in words that name the remedy.
func ExplainSpace(err error) error {
	var explained *spaceError
	if errors.As(err, &explained) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return &spaceError{err}
	}
	return err
}

// spaceError is a disk that is full.
type spaceError struct{ cause error }

func (e *spaceError) Error() string {
	return fmt.Sprintf("there is not enough space for the copy, and nothing was changed: make room, or choose another place (%v)", e.cause)
}

func (e *spaceError) Unwrap() error { return e.cause }
