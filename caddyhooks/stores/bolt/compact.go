package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// Compacted is a file that was written anew.
type Compacted struct {
	Before, After int64 // bytes
	Summary       Summary
}

// compactStep is how many bytes of records are written in one transaction.
const compactStep = 16 << 20

// Compact writes a file anew without its free pages. No process may have it open. The new file takes the place of the old one when it is
// complete and has been checked to have the same records; until then the old one stays as it is. note is told now and then how long the new
// one is.
func Compact(path string, note func(bytes int64)) (done *Compacted, err error) {
	err = guarded(func() (err error) {
		done, err = compact(path, note)
		return err
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, &storefile.InUseError{Path: path}
	}
	if err != nil {
		return nil, fmt.Errorf("compacting %s: %w", path, storefile.ExplainSpace(err))
	}
	return done, nil
}

func compact(path string, note func(bytes int64)) (*Compacted, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	checked := &Checked{Path: path}
	if err := checked.check(); err != nil {
		return nil, explainCheck(err)
	}
	if checked.Manifest != nil {
		return nil, errors.New("it is a backup, and stays as it is; restore it, and compact the file of the store")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// As one that writes, it keeps out all others. It does not write.
	from, err := openForWriting(path, boltOptions(false))
	if err != nil {
		return nil, err
	}
	defer from.Close()
	storefile.RemoveLeft(path)
	temp, err := storefile.CreateBeside(path)
	if err != nil {
		return nil, err
	}
	defer temp.Discard()
	if err := copyRecords(temp, from, checked.txID, note); err != nil {
		return nil, err
	}
	copied, err := Check(temp.Name())
	if err != nil {
		return nil, err
	}
	copied.Summary.FreeBytes, checked.Summary.FreeBytes = 0, 0
	if !reflect.DeepEqual(copied.Summary, checked.Summary) {
		return nil, fmt.Errorf("the copy has other records than the file (%+v, not %+v), and nothing was changed", copied.Summary,
			checked.Summary)
	}
	after, err := temp.Stat()
	if err != nil {
		return nil, err
	}
	place := &storefile.Place{Path: path, Info: info, Release: func() { _ = from.Close() }}
	if _, err := place.Replace(temp, false); err != nil {
		return nil, err
	}
	return &Compacted{Before: info.Size(), After: after.Size(), Summary: copied.Summary}, nil
}

// copyRecords writes all records of a database to a new one, and compares them.
func copyRecords(file *storefile.NewFile, from *bbolt.DB, txID int, note func(bytes int64)) error {
	var want []byte
	err := from.View(func(tx *bbolt.Tx) error {
		if tx.ID() != txID {
			return errBusy // since it was checked
		}
		want = recordsOf(tx)
		return nil
	})
	if err != nil {
		return err
	}
	to, err := bbolt.Open(file.Name(), 0o600, &bbolt.Options{Timeout: storefile.LockTimeout, PageSize: from.Info().PageSize,
		FreelistType: bbolt.FreelistMapType, NoSync: true,
		OpenFile: file.OpenAgain})
	if err != nil {
		return err
	}
	stop := tellSize(file.Name(), note)
	err = bbolt.Compact(to, from, compactStep)
	stop()
	var got []byte
	if err == nil {
		// Its list of free pages is written.
		err = to.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Delete(freelistKey) })
	}
	if err == nil {
		err = to.View(func(tx *bbolt.Tx) error {
			got = recordsOf(tx)
			return nil
		})
	}
	if err == nil {
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("the copy has other records than the file, and nothing was changed")
	}
	return nil
}

// tellSize tells the size of a file that is being written, until stop is called.
func tellSize(path string, note func(bytes int64)) (stop func()) {
	end, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(tellEvery)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				if info, err := os.Stat(path); err == nil {
					note(info.Size())
				}
			}
		}
	}()
	return func() {
		close(end)
		<-over
	}
}

// tellEvery is how often progress is told.
const tellEvery = 200 * time.Millisecond

// recordsOf is a digest of all keys and values. Whether the list of free pages is written says nothing about them.
func recordsOf(tx *bbolt.Tx) []byte {
	digest := sha256.New()
	write := func(data []byte) { // which never fails
		_, _ = digest.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
		_, _ = digest.Write(data)
	}
	_ = tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		write(name)
		return b.ForEach(func(key, value []byte) error {
			if !bytes.Equal(name, metaBucket) || !bytes.Equal(key, freelistKey) {
				write(key)
				write(value)
			}
			return nil
		})
	})
	return digest.Sum(nil)
}
