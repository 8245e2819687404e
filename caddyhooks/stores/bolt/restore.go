package bolt

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// CheckPlace reports whether there is a file at the path of a store. It is an error if a process has it open, or if a file cannot be put
// there.
func CheckPlace(path string) (exists bool, err error) {
	place, err := storefile.LockPlace(path)
	if err != nil {
		return false, storefile.PlaceError(path, err)
	}
	place.Release()
	return place.Exists(), nil
}

// PlaceBackup checks a backup that was written, and gives it its name. A file that came into being there meanwhile stays, without
// overwrite.
func PlaceBackup(file *storefile.NewFile, overwrite bool) (*Checked, error) {
	if err := file.Finish(); err != nil {
		return nil, err
	}
	checked, err := Check(file.Name())
	if err != nil {
		return nil, err
	}
	checked.Path = file.Path()
	if checked.Manifest == nil {
		return nil, storefile.ErrNoEnd
	}
	return checked, file.TakeName(overwrite)
}

// Restore puts a backup that was checked in the place of a store's file. A file that is there is refused without overwrite, and with it, is
// kept under another name: kept, which is "" if there was none. It fails if a process has the file open.
func (c *Checked) Restore(path string, overwrite bool) (kept string, err error) {
	defer func() {
		err = storefile.PlaceError(path, err)
	}()
	old, err := storefile.LockPlace(path)
	if err != nil {
		return "", err
	}
	defer old.Release()
	if old.Exists() && !overwrite {
		return "", &storefile.ExistsError{Path: old.Path}
	}
	if err := os.MkdirAll(filepath.Dir(old.Path), 0o700); err != nil {
		return "", err
	}
	if old.Exists() { // and so is locked: nobody else is restoring it
		storefile.RemoveLeft(old.Path)
	}
	temp, err := storefile.CreateBeside(old.Path)
	if err != nil {
		return "", err
	}
	defer temp.Discard()
	if err := c.copyTo(temp); err != nil {
		return "", storefile.ExplainSpace(err)
	}
	if err := temp.Sync(); err != nil {
		return "", storefile.ExplainSpace(err)
	}
	return old.Replace(temp, true)
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
