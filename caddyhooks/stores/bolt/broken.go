package bolt

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// breakage is what is known about a database that is broken. After a panic in the database's code, or a fault on a page
// that cannot be read, its locks may be held for ever and its pages may be anything: nothing is written any more, nothing is
// read, and nobody waits for it.
type breakage struct {
	once sync.Once
	done chan struct{} // closed when the database is broken
	err  *engine.StoreBrokenError
}

// breakDown notes that the database is broken, and returns the error for all who ask from now on.
func (d *Database) breakDown(cause any, stack []byte) error {
	d.broken.once.Do(func() {
		d.broken.err = &engine.StoreBrokenError{
			Reason: fmt.Sprintf("%s: %v", d.file.Name(), cause),
			Stack:  stack,
		}
		close(d.broken.done)
		d.committer.abandon(d.broken.err)
	})
	return d.broken.err
}

// whenBroken returns the error if the database is broken.
func (d *Database) whenBroken() error {
	select {
	case <-d.broken.done:
		return d.broken.err
	default:
		return nil
	}
}

// safely calls f. A panic or a fault in it breaks the database.
func (d *Database) safely(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = d.breakDown(p, debug.Stack())
		}
	}()
	return f()
}

// view reads from the file. It returns when ctx is done or the database is broken, whatever keeps the reader: if view
// returns an error, read may still be at work, and what it has collected must not be looked at.
func (d *Database) view(ctx context.Context, read func(*bbolt.Tx) error) error {
	if err := d.whenBroken(); err != nil {
		return err
	}
	job := reading{read, make(chan error, 1)}
	select {
	case d.idleReaders <- job:
	default:
		go d.reader(job)
	}
	select {
	case err := <-job.result:
		return err
	case <-d.broken.done:
		return d.broken.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reading is a read for a reader.
type reading struct {
	read   func(*bbolt.Tx) error
	result chan error
}

// reader reads, and then waits for more to read: a new goroutine for every read would have to grow its stack each time. A
// few of them wait at most.
func (d *Database) reader(job reading) {
	for {
		err := d.safely(func() error { return d.db.View(job.read) })
		idle := d.readers.Add(1) <= maxIdleReaders && d.whenBroken() == nil
		job.result <- err
		if !idle {
			d.readers.Add(-1)
			return
		}
		select {
		case job = <-d.idleReaders:
			d.readers.Add(-1)
		case <-d.closing:
			return
		case <-d.broken.done:
			return
		}
	}
}

const maxIdleReaders = 16

// abandon closes the file of a broken database, so that it can be opened again. The database itself cannot be closed: it
// might wait for its own locks. What it has mapped stays so, since somebody may still be reading.
func (d *Database) abandon() {
	select {
	case <-d.committer.over: // so that nothing is being written
	case <-time.After(abandonAfter):
	}
	letGo(d.file)
}

// abandonAfter is how long the committer of a broken database is waited for. It may never come back.
const abandonAfter = time.Second

// letGo unlocks and closes a file behind a database's back.
func letGo(file *os.File) {
	if file != nil {
		_ = unlock(file)
		_ = file.Close()
	}
}
