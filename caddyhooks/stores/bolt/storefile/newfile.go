// Package storefile is about files of stores and of backups: how a new one takes its place when it is complete, and how a backup says what
// it is. It knows nothing of what is in a store, and imports no part of the project but pages.
package storefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// NewFile is a file that takes its place when it is complete. Until then it has a name of its own in the same directory, and is removed if
// it never gets that far. Only its owner may read it.
type NewFile struct {
	*os.File
	path string // its place
}

// PlaceError names the path, unless the error does.
func PlaceError(path string, err error) error {
	var inUse *InUseError
	var exists *ExistsError
	if err == nil || errors.As(err, &inUse) || errors.As(err, &exists) {
		return err
	}
	return fmt.Errorf("the place of the store, %s: %w", path, err)
}

// Create begins a backup at a path. Without overwrite, a file that is there is left alone.
func Create(path string, overwrite bool) (*NewFile, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s is a symbolic link: name the file that you mean", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case !overwrite:
		return nil, &ExistsError{Path: path}
	}
	return CreateBeside(path)
}

// FolderError says why a file cannot be begun. The error itself has the name of a temporary file, which nobody knows.
func FolderError(path string, err error) error {
	var failed *fs.PathError
	switch folder := filepath.Dir(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s: %w", folder, fs.ErrNotExist)
	case errors.As(err, &failed):
		return fmt.Errorf("no file can be made in the folder %s: %w", folder, failed.Err)
	default:
		return err
	}
}

// ExistsError says that there is a file already.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string { return fmt.Sprintf("there is a file %s already", e.Path) }

// InUseError says that a process has a file open.
type InUseError struct{ Path string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("the file %s is in use: stop Caddy first", e.Path)
}

// ErrNotRegular is why nothing but a file is read: to read from a pipe or a device might never end.
var ErrNotRegular = errors.New("it is not a file")

// LockTimeout is how long a lock is waited for. Tests shorten it.
var LockTimeout = 2 * time.Second

// partial ends the names of files that are not complete.
const partial = ".partial"

// besideOf is the pattern of the names of files that are to take the place of another one.
func besideOf(path string) string { return "." + filepath.Base(path) + ".*" + partial }

// RemoveLeft removes what a process that was killed had begun. It has secrets in it.
func RemoveLeft(path string) {
	names, _ := fs.Glob(os.DirFS(filepath.Dir(path)), besideOf(path)) // a name with a bracket in it has none
	for _, name := range names {
		_ = os.Remove(filepath.Join(filepath.Dir(path), name))
	}
}

// CreateBeside begins a file that is to take the place of another one.
func CreateBeside(path string) (*NewFile, error) {
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

// ErrSwapped says that somebody put another file under the name of one that is not complete. Whoever may write to the directory can do so,
// and must not get at other files through a process that may do more, such as one of root.
var ErrSwapped = errors.New("another file took the place of the one that was being written, and nothing was changed")

// checkName returns an error if the name is not that of this file any more.
func (f *NewFile) checkName() error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(f.Name()); err != nil || !os.SameFile(mine, named) {
		return ErrSwapped
	}
	return nil
}

// OpenAgain opens this file, and no other of its name.
func (f *NewFile) OpenAgain(name string, flag int, mode os.FileMode) (*os.File, error) {
	mine, err := f.Stat()
	if err != nil {
		return nil, err
	}
	again, err := os.OpenFile(name, flag&^(os.O_CREATE|os.O_TRUNC), mode)
	if err != nil {
		return nil, err
	}
	if opened, err := again.Stat(); err != nil || !os.SameFile(mine, opened) {
		return nil, errors.Join(ErrSwapped, again.Close())
	}
	return again, nil
}

// Finish makes the file survive a power cut.
func (f *NewFile) Finish() error {
	err := f.Sync()
	return ExplainSpace(errors.Join(err, f.Close()))
}

// TakeName gives the file its name. A file that came into being there meanwhile stays, without overwrite.
func (f *NewFile) TakeName(overwrite bool) error {
	var err error
	if overwrite {
		err = os.Rename(f.Name(), f.path)
	} else {
		err = nameOnce(f.Name(), f.path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(f.path))
}

// Path is the place that the file is for.
func (f *NewFile) Path() string { return f.path }

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

// Place is where a store's file is or will be. Nobody else opens the file while it is locked.
type Place struct {
	Path    string      // without symbolic links
	Info    fs.FileInfo // nil if there is none
	Release func()      // unlocks it
}

// LockPlace locks the file at a path, if there is one. Caddy looks again once it gets the lock of a file: if another one took its place, it
// lets go.
func LockPlace(path string) (*Place, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return nil, errors.New("it is a symbolic link to a file that is not there")
		}
		return &Place{Path: path, Release: func() {}}, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		_ = file.Close()
		return nil, &InUseError{real}
	}
	return &Place{real, info, sync.OnceFunc(func() { LetGo(file) })}, nil
}

// Exists reports whether there is a file.
func (p *Place) Exists() bool { return p.Info != nil }

// keptFormat ends the name of a file that another one took the place of.
const keptFormat = ".before-20060102T150405.000Z"

// Replace puts a complete file in this place, with the owner of the old one or of the directory. The old one keeps another name, if keep is
// set.
func (p *Place) Replace(file *NewFile, keep bool) (kept string, err error) {
	dir := filepath.Dir(p.Path)
	like := p.Info
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
	if !p.Exists() {
		return "", errors.Join(nameOnce(temp, p.Path), SyncDir(dir))
	}
	if runtime.GOOS == "windows" {
		p.Release() // where an open file keeps its name
	}
	if keep {
		if kept, err = p.keepOld(time.Now().UTC()); err != nil {
			return "", err
		}
	}
	if err := os.Rename(temp, p.Path); err != nil {
		return "", err
	}
	return kept, SyncDir(dir)
}

// keepOld gives the file in this place a name with the time. Several can be replaced within a millisecond.
func (p *Place) keepOld(now time.Time) (kept string, err error) {
	for ; ; now = now.Add(time.Millisecond) {
		kept = p.Path + now.Format(keptFormat)
		err := os.Link(p.Path, kept)
		if err == nil {
			return kept, nil
		}
		if _, taken := os.Lstat(kept); taken == nil {
			continue
		}
		return kept, os.Rename(p.Path, kept) // a file system without links
	}
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

// SyncDir makes a new name in a directory survive a power cut.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // has no such thing
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// LetGo unlocks and closes a file behind a database's back.
func LetGo(file *os.File) {
	if file != nil {
		_ = unlock(file)
		_ = file.Close()
	}
}
