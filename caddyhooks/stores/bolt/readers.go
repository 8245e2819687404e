package bolt

import (
	"context"

	"go.etcd.io/bbolt"
)

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
