package bolt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/ledger"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// Summary is how much a file has of everything.
type Summary struct {
	Unfinished int            `json:"unfinished"` // runs that are carried out when Caddy starts with the file
	Ended      int            `json:"ended"`
	ByStatus   map[string]int `json:"byStatus"` // of runs that have ended
	Pending    int            `json:"pending"`  // deliveries
	Delivered  int            `json:"delivered"`
	Dead       int            `json:"dead"`
	Keys       int            `json:"keys"`
	Sessions   int            `json:"sessions"`
	Questions  int            `json:"questions"`
	Open       int            `json:"openQuestions"` // those that people have to answer
	History    int            `json:"history"`       // runs whose message is kept
	Revision   int64          `json:"revision"`      // of the live settings
	Changes    int            `json:"changes"`       // of the live settings
	Minutes    int            `json:"minutes"`       // that were counted
	Damaged    int            `json:"damaged"`       // records that cannot be read
	FreeBytes  int64          `json:"freeBytes"`
}

// Deliveries is how many there are.
func (s *Summary) Deliveries() int { return s.Pending + s.Delivered + s.Dead }

// Checked is a file that was looked at as a whole.
type Checked struct {
	Path     string
	Manifest *storefile.Manifest // nil if it was not made by a backup
	Bytes    int64               // of the pages, without what is behind them
	Layout   int
	Summary  Summary

	digest []byte // of the database
	txID   int
}

var errTooShort = errors.New("it is too short for a backup or the file of a store")

// Check looks at all of a file: a backup, or that of a store that is not in use. It is only read.
func Check(path string) (*Checked, error) {
	c := &Checked{Path: path}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, explainCheck(err))
	}
	return c, nil
}

func (c *Checked) check() error {
	info, err := os.Stat(c.Path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return storefile.ErrNotRegular
	}
	if info.Size() < smallestFile {
		return errTooShort
	}
	file, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	if c.Manifest, err = storefile.ReadManifest(file, info.Size()); err != nil {
		return err
	}
	return readFile(c.Path, func(tx *bbolt.Tx) error {
		c.Bytes = tx.Size()
		if c.Manifest != nil && c.Manifest.Bytes != c.Bytes {
			return fmt.Errorf("%w: its end is that of %d bytes, and it has %d", errDamaged, c.Manifest.Bytes, c.Bytes)
		}
		if err := checkNotSparse(info, c.Bytes); err != nil {
			return err
		}
		return c.checkContents(tx, file)
	})
}

// checkNotSparse refuses a file that has next to nothing of its pages on the disk. To read all of it might take hours.
func checkNotSparse(info fs.FileInfo, size int64) error {
	const (
		large = 1 << 30
		least = 100 // a file system that compresses needs more than one byte for so many
	)
	if there := storefile.Allocated(info); there > 0 && size > large && there < size/least {
		return fmt.Errorf("only %d KB of the %d GB that it claims to have are on the disk: it is a sparse file, which no backup and no store is",
			there>>10, size>>30)
	}
	return nil
}

// checkContents is called while the lock of the file is held.
func (c *Checked) checkContents(tx *bbolt.Tx, file io.ReaderAt) (err error) {
	digest := sha256.New()
	if _, err := io.Copy(digest, io.NewSectionReader(file, 0, c.Bytes)); err != nil {
		return err
	}
	c.digest = digest.Sum(nil)
	if c.Manifest != nil && !bytes.Equal(c.digest, c.Manifest.SHA256) {
		return fmt.Errorf("%w: its checksum is wrong", errDamaged)
	}
	c.txID = tx.ID()
	if err := checkPages(tx); err != nil { // before the database looks at anything but the meta pages
		return err
	}
	if c.Layout, err = versionOf(tx); err != nil {
		return err
	}
	if err := checkLayout(c.Layout, newestLayout(migrations)); err != nil {
		return err
	}
	if err := checkConsistency(tx); err != nil {
		return err
	}
	c.Summary = summarize(tx)
	return nil
}

// checkConsistency has the database check its pages, after checkPages has found them safe to look at. A page that is neither in use nor
// free is no more than lost space, and compact gives it back.
func checkConsistency(tx *bbolt.Tx) (first error) {
	for err := range tx.Check() { // to its end: it reads as long as there is something to report
		if first == nil && !strings.HasSuffix(err.Error(), "unreachable unfreed") {
			first = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return first
}

// explainCheck says what an error means to somebody who may have another backup.
func explainCheck(err error) error {
	switch explained := explain(err); {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("the file is in use: stop Caddy first (%w)", err)
	case explained == err: //nolint:errorlint // whether there was something to explain
		return err
	case errors.Is(err, errTruncated):
		return errors.New("the end of the file is missing: it was not copied to the end")
	case errors.Is(err, errDamaged):
		return errors.New("the file is damaged: " + strings.TrimPrefix(err.Error(), errDamaged.Error()+": "))
	case errors.Is(explained, err):
		return fmt.Errorf("it is neither a backup nor the file of a store (%w)", err)
	default:
		return explained
	}
}

// summarize counts all records, and those that are damaged.
func summarize(tx *bbolt.Tx) (s Summary) {
	s.ByStatus = make(map[string]int)
	each := func(bucket []byte, record func(key, value []byte) error) (n int) {
		if tx.Bucket(bucket) == nil {
			return 0 // a file of before
		}
		_ = tx.Bucket(bucket).ForEach(func(key, value []byte) error {
			n++
			if record != nil && record(key, value) != nil {
				s.Damaged++
			}
			return nil
		})
		return n
	}
	readable := func(key, value []byte) error {
		return fieldsOf(key, value, func(protowire.Number, field) bool { return true })
	}
	delivery := func(key, value []byte) error {
		var status engine.DeliveryStatus
		err := fieldsOf(key, value, func(n protowire.Number, f field) bool {
			if n == deliveryStatus {
				status = engine.DeliveryStatus(f.text())
			}
			return true
		})
		switch status {
		case engine.Delivered:
			s.Delivered++
		case engine.Dead:
			s.Dead++
		default:
			s.Pending++
		}
		return err
	}
	s.Unfinished = each(runsBucket, readable)
	s.Ended = each(endedBucket, func(key, value []byte) error {
		status := "unknown"
		err := fieldsOf(key, value, func(n protowire.Number, f field) bool {
			if n == endStatus {
				status = f.text()
			}
			return true
		})
		s.ByStatus[status]++
		return err
	})
	unfinishedInput := 0
	s.History = each(inputBucket, func(key, value []byte) error {
		if tx.Bucket(endedBucket).Get(key) == nil {
			unfinishedInput++
		}
		return readable(key, value)
	}) - unfinishedInput
	for _, bucket := range [][]byte{outboxBucket, settledBucket, deadBucket} {
		each(bucket, delivery)
	}
	s.Keys = each(keysBucket, func(key, value []byte) error {
		if len(value) < len(uuid.UUID{}) {
			return errDamaged
		}
		return readable(key, value[len(uuid.UUID{}):])
	})
	s.Sessions = each(sessionsBucket, nil)
	s.Questions = each(questionsBucket, readable)
	s.Open = each(openBucket, nil)
	each(askedBucket, func(key, value []byte) error {
		if asideRunOf(value) != nil {
			s.Unfinished++
		}
		return readable(key, value)
	})
	each(ledger.Bucket, ledger.Check)
	each(gates.Bucket, gates.Check)
	s.Revision = revisionOf(tx)
	s.Changes = each(changesBucket, readable)
	s.Minutes = each(minutesBucket, readable)
	stats := tx.DB().Stats()
	s.FreeBytes = int64(stats.FreePageN+stats.PendingPageN) * int64(tx.DB().Info().PageSize)
	return s
}
