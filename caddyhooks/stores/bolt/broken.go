package bolt

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
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

// abandon closes the file of a broken database, so that it can be opened again. The database itself cannot be closed: it
// might wait for its own locks. What it has mapped stays so, since somebody may still be reading.
func (d *Database) abandon() {
	select {
	case <-d.committer.over: // so that nothing is being written
	case <-time.After(abandonAfter):
	}
	storefile.LetGo(d.file)
}

// abandonAfter is how long the committer of a broken database is waited for. It may never come back.
const abandonAfter = time.Second
