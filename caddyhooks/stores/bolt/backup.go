package bolt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// backup is a copy of the file as a transaction left it. The transaction that reads it keeps the pages from being used again, so the file
// grows meanwhile. Commits go on, unless the map of the file has to grow too: that would wait for the backup, so the backup gives way.
type backup struct {
	database *Database
	tx       *bbolt.Tx
	ctx      context.Context //nolint:containedctx // the backup is what is done with it
	cancel   context.CancelCauseFunc
	note     storefile.Manifest
	watched  chan struct{} // closed when nobody watches the committer any more
}

var (
	errGaveWay      = errors.New("the backup was in the way of new runs, and gave way to them: try again")
	errStoreClosing = errors.New("the store was closed")
)

// giveWayAfter is how long a commit may take before a backup gives way. Most take a few milliseconds.
const giveWayAfter = 5 * time.Second

// StartBackup begins a copy of the file. One at a time is enough, and the file does not grow for several.
func (d *Database) StartBackup(instance string) (engine.Backup, error) {
	if err := d.whenBroken(); err != nil {
		return nil, err
	}
	if !d.backingUp.CompareAndSwap(false, true) {
		return nil, engine.ErrBackupUnderWay
	}
	b := &backup{database: d, watched: make(chan struct{})}
	err := d.safely(func() (err error) {
		b.tx, err = d.db.Begin(false)
		return err
	})
	if err == nil {
		b.note, err = newManifest(b.tx, instance, d.clock.Now())
	}
	if err != nil {
		if b.tx != nil {
			_ = d.safely(b.tx.Rollback)
		}
		d.backingUp.Store(false)
		return nil, err
	}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	go b.watch()
	return b, nil
}

// newManifest describes the pages that a transaction sees.
func newManifest(tx *bbolt.Tx, instance string, now time.Time) (storefile.Manifest, error) {
	layout, err := versionOf(tx)
	return storefile.Manifest{
		Format: storefile.ManifestFormat, Instance: instance, TakenAt: now.UTC().Truncate(time.Second), Layout: layout, Revision: revisionOf(tx),
		Transaction: tx.ID(), Bytes: tx.Size(), SHA256: make([]byte, 32),
	}, err
}

// watch ends the backup when the store closes or breaks, or a commit takes so long that the backup may be the reason.
func (b *backup) watch() {
	defer close(b.watched)
	d := b.database
	ticker := time.NewTicker(d.giveWayAfter / 10)
	defer ticker.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-d.closing:
			b.cancel(errStoreClosing)
		case <-d.broken.done:
			b.cancel(d.broken.err)
		case now := <-ticker.C:
			if since := d.committer.since.Load(); since != 0 && now.Sub(time.Unix(0, since)) > d.giveWayAfter {
				b.cancel(errGaveWay)
			}
		}
	}
}

func (b *backup) Size() int64 { return b.note.Bytes + int64(len(b.note.Encode())) }

func (b *backup) Context() context.Context { return b.ctx }

// WriteTo writes the pages of the file, and then the manifest with their digest.
func (b *backup) WriteTo(w io.Writer) (n int64, err error) {
	digest := sha256.New()
	err = b.database.safely(func() (err error) {
		n, err = b.tx.WriteTo(io.MultiWriter(untilDone{b.ctx, w}, digest))
		return err
	})
	if b.ctx.Err() != nil {
		return n, context.Cause(b.ctx)
	}
	if err != nil {
		return n, err
	}
	b.note.SHA256 = digest.Sum(nil)
	more, err := w.Write(b.note.Encode())
	return n + int64(more), err
}

// Close ends the transaction that reads.
func (b *backup) Close() error {
	b.cancel(context.Canceled)
	<-b.watched
	d := b.database
	defer d.backingUp.Store(false)
	if err := d.whenBroken(); err != nil {
		return err // its locks may be held for ever
	}
	return d.safely(b.tx.Rollback)
}

// BackUpFile writes a backup of a file that no process has open for writing. begin is told how long it will be.
func BackUpFile(path, instance string, w io.Writer, begin func(bytes int64)) error {
	var failed error // of w, which is not the fault of the file
	err := readFile(path, func(tx *bbolt.Tx) error {
		if err := checkPages(tx); err != nil {
			return err
		}
		note, err := newManifest(tx, instance, time.Now())
		if err != nil {
			return err
		}
		begin(note.Bytes + int64(len(note.Encode())))
		digest := sha256.New()
		if _, failed = tx.WriteTo(io.MultiWriter(w, digest)); failed == nil {
			note.SHA256 = digest.Sum(nil)
			_, failed = w.Write(note.Encode())
		}
		return nil
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return &storefile.InUseError{Path: path}
	case err != nil:
		return fmt.Errorf("reading %s: %w", path, explainCheck(err))
	}
	return storefile.ExplainSpace(failed)
}

// untilDone writes until a context is done.
type untilDone struct {
	ctx context.Context //nolint:containedctx // a writer has no other way to know
	w   io.Writer
}

func (u untilDone) Write(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.w.Write(p)
}

// Interface guard
var _ engine.BackedUpStore = (*store)(nil)
