package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/pages"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// committer writes for many callers at once: one goroutine takes all changes that wait, puts them in one transaction and
// tells their callers when that is on the disk. While it waits for the disk the next changes gather, so the busier the
// store is the more of them share the cost.
type committer struct {
	database *Database
	over     chan struct{}
	lastErr  error // of the last transaction, when it is over

	mu      sync.Mutex
	news    sync.Cond // there are changes, or there will be no more
	waiting []*change
	writing []*change // what was taken from waiting last
	closed  bool

	pause time.Duration // after a transaction that failed
	since atomic.Int64  // when the transaction under way began, in nanoseconds since 1970; 0 if there is none

	// Which tests replace.
	commitTx func(*bbolt.Tx) error
	maxWrite time.Duration
}

// change is something to be written.
type change struct {
	// apply checks the change and makes it, in memory and in the transaction. If it returns an error then the change is
	// refused and must not have done anything.
	apply func(*transaction) error
	// claim says how many runs to claim after all changes of the transaction were made.
	claim engine.Batch
	node  *local.Node // that claims
	size  int         // about how many bytes it writes

	claims  []local.Claimed
	claimed []storedRun // the same as they are in the file
	err     error

	done  chan struct{} // closed when it was made or refused, or the database broke
	over  bool          // done is closed; under the committer's lock, like left
	left  bool          // nobody waits for it any more
	never error         // the database broke before it was made
}

// transaction is a set of changes that are made together or not at all.
type transaction struct {
	tx       *bbolt.Tx
	now      time.Time // the time of day …
	steady   time.Time // … and that of Clock.Steady
	written  bool
	failure  error    // that is not the fault of a single change
	inEffect bool     // it failed, but can be read nevertheless
	last     []func() // when all changes were made, before it is committed
	undo     []func()
	after    []func() // when it is in effect …
	reported []func() // … and when it is reported so: after a failure callers will ask again

	scratch       [][]byte // records to recycle when they were written
	input         *inputChanges
	ended         []uuid.UUID // runs
	writeFreelist bool
}

// The most that is put in one transaction, for the sake of those who wait for it and of memory.
const (
	maxChanges     = 1024
	maxChangesSize = 16 << 20
)

var errClosed = errors.New("the store is closed")

func newCommitter(database *Database) *committer {
	c := &committer{database: database, over: make(chan struct{}), commitTx: (*bbolt.Tx).Commit, maxWrite: maxWrite}
	c.news.L = &c.mu
	go c.run()
	return c
}

// do has a change made, and returns when it is on the disk or was refused. When ctx is done before that, a change that still
// waits is not made. One that is just being written is on the disk in a moment: only if it is not, or if the database is
// broken, nobody knows. Then apply may still be at work, and what it has noted down must not be looked at.
func (c *committer) do(ctx context.Context, ch *change) error {
	ch.done = make(chan struct{})
	if err := c.queue(ch); err != nil {
		return err
	}
	select {
	case <-ch.done:
		return ch.result()
	case <-ctx.Done():
	}
	if c.withdraw(ch) {
		return ctx.Err()
	}
	timer := time.NewTimer(c.maxWrite)
	defer timer.Stop()
	select {
	case <-ch.done:
		return ch.result()
	case <-timer.C:
		return c.leave(ch, ctx.Err())
	}
}

// result is how a change went that is done.
func (ch *change) result() error {
	if ch.never != nil {
		return ch.never
	}
	return ch.err
}

// abandon tells all who wait that the database is broken. The committer may never come back to do so.
func (c *committer) abandon(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range append(c.waiting, c.writing...) {
		if ch != nil && !ch.over {
			ch.never, ch.over, ch.left = err, true, true
			close(ch.done)
		}
	}
	c.waiting = nil
}

// maxWrite is how long a caller whose context is done waits for a transaction that is just being written. Most disks need
// a few milliseconds.
const maxWrite = 3 * time.Second

// queue has a change wait for the next transaction.
func (c *committer) queue(ch *change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.database.whenBroken(); err != nil {
		return err
	}
	if c.closed {
		return errClosed
	}
	c.waiting = append(c.waiting, ch)
	if len(c.waiting) == 1 {
		c.news.Signal()
	}
	return nil
}

// withdraw takes back a change that is not being written yet.
func (c *committer) withdraw(ch *change) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, ch)
	if i < 0 {
		return false
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return true
}

// leave ends the wait for a change, whatever becomes of it.
func (c *committer) leave(ch *change, why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.over {
		return ch.result() // it was made at the same moment
	}
	ch.left = true
	return why
}

// close ends the committer when all that waits has been written, or the database is broken.
func (c *committer) close() error {
	c.mu.Lock()
	c.closed = true
	c.news.Signal()
	c.mu.Unlock()
	select {
	case <-c.over:
		return c.lastErr
	case <-c.database.broken.done:
		return c.database.broken.err
	}
}

func (c *committer) run() {
	defer close(c.over)
	for changes := c.next(); changes != nil; changes = c.next() {
		for len(changes) > 0 {
			n, size := 1, changes[0].size
			for n < min(len(changes), maxChanges) && size+changes[n].size <= maxChangesSize {
				size += changes[n].size
				n++
			}
			c.commit(changes[:n])
			changes = changes[n:]
		}
	}
	// With the list of free pages the file is opened quickly the next time.
	if s := c.database; s.db.NoFreelistSync && s.whenBroken() == nil {
		last := &change{done: make(chan struct{}), apply: func(t *transaction) error {
			t.written, t.writeFreelist = true, true
			return nil
		}}
		c.commit([]*change{last})
		c.lastErr = last.err
	}
}

// next waits for changes and returns all there are, nil when there will be no more.
func (c *committer) next() []*change {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) == 0 && !c.closed {
		c.news.Wait()
	}
	// Whoever is about to ask for a change gets the chance to: a transaction costs much more than what it holds.
	for n := 0; len(c.waiting) > n && len(c.waiting) < maxChanges; {
		n = len(c.waiting)
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.writing, c.waiting = c.waiting, nil
	return c.writing
}

// commit makes changes in one transaction and tells who waits for them.
func (c *committer) commit(changes []*change) {
	c.mu.Lock()
	changes = slices.DeleteFunc(changes, func(ch *change) bool { return ch.left })
	c.mu.Unlock()
	began := time.Now()
	t, err := c.write(changes)
	if callback := c.database.onCommit.Load(); callback != nil && err == nil && t.written {
		(*callback)(len(changes), time.Since(began))
	}
	settleErr := c.database.safely(func() error {
		c.settle(t, changes, err)
		return nil
	})
	if err == nil {
		err = settleErr
	}
	if broken := c.database.whenBroken(); broken != nil {
		err = broken // whatever was written: the file may be refused when it is opened again
	}
	if err == nil {
		for _, record := range t.scratch {
			recycle(record)
		}
	}
	c.report(changes, err)
	if err == nil || c.database.whenBroken() != nil {
		c.pause = 0
		return
	}
	c.pause = min(max(2*c.pause, 10*time.Millisecond), 200*time.Millisecond)
	time.Sleep(c.pause) // a disk that is full must not be asked more often than makes sense
}

// report tells callers how their changes went. What was claimed for those who have left is for others.
func (c *committer) report(changes []*change, err error) {
	var unclaimed []local.Claimed
	c.mu.Lock()
	for _, ch := range changes {
		if err != nil { // also for what was refused: it may have been because of a change that did not come to be
			ch.err, ch.claims = err, nil
		}
		if ch.left {
			unclaimed = append(unclaimed, ch.claims...)
		}
		if !ch.over {
			ch.over = true
			close(ch.done)
		}
	}
	c.mu.Unlock()
	if len(unclaimed) > 0 {
		s := c.database
		s.mu.Lock()
		s.queue.Unclaim(unclaimed)
		s.mu.Unlock()
		s.nodes.TellClaimable()
	}
}

// settle brings what is in memory in line with what is in the file.
func (c *committer) settle(t *transaction, changes []*change, err error) {
	s := c.database
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !t.inEffect {
		for i := len(t.undo) - 1; i >= 0; i-- {
			t.undo[i]()
		}
		return
	}
	for _, f := range t.after {
		f()
	}
	if err != nil {
		// Those who asked are told that it failed, and so nobody starts what was claimed. The next claim of the run counts
		// like this one, or a disk that keeps failing would use up the attempts of runs that were never started.
		for _, ch := range changes {
			s.queue.Unclaim(ch.claims)
		}
		return
	}
	for _, f := range t.reported {
		f()
	}
}

// write makes changes in a transaction and commits it. Nothing is rolled back after a panic: the database is not used again.
func (c *committer) write(changes []*change) (t *transaction, err error) {
	s := c.database
	t = &transaction{now: s.clock.Now(), steady: s.clock.Steady()}
	if err := s.whenBroken(); err != nil {
		return t, err
	}
	err = s.safely(func() error { return c.writeAll(t, changes) })
	if err == nil || t.tx == nil || s.whenBroken() != nil {
		return t, err
	}
	rollback := s.safely(t.tx.Rollback)
	if rollback != nil && !errors.Is(rollback, berrors.ErrTxClosed) { // as it is after a failed commit
		return t, s.breakDown(rollback, nil)
	}
	return t, err
}

func (c *committer) writeAll(t *transaction, changes []*change) (err error) {
	s := c.database
	c.since.Store(time.Now().UnixNano())
	defer c.since.Store(0)
	if t.tx, err = s.db.Begin(true); err != nil {
		return fmt.Errorf("writing to the store: %w", err)
	}
	t.make(s, changes)
	if t.failure == nil && t.written {
		t.noteFreelist(s)
	}
	if t.failure != nil {
		return fmt.Errorf("writing to the store: %w", t.failure)
	}
	if !t.written {
		return t.tx.Rollback()
	}
	id := t.tx.ID()
	if n, err := s.freelistPages(id - 1); err != nil || n != s.freelistSize {
		return s.breakDown(fmt.Errorf("the list of free pages: %w", cmp.Or(err, errDamaged)), nil)
	}
	if err := c.commitTx(t.tx); err != nil {
		// If no more than the last sync has failed, then the transaction is not known to be on the disk, but whoever reads
		// the file sees it.
		newest := 0
		viewErr := s.view(context.Background(), func(tx *bbolt.Tx) error {
			newest = tx.ID()
			return nil
		})
		t.inEffect = viewErr == nil && newest >= id
		if t.inEffect {
			s.noteFreelistSize(id)
		}
		return fmt.Errorf("writing to the store: %w", err)
	}
	s.noteFreelistSize(id)
	return s.whenBroken()
}

// freelistPages is how many pages the list of free pages takes after a transaction.
func (d *Database) freelistPages(txID int) (int, error) {
	return pages.File{ReaderAt: d.file, PageSize: d.db.Info().PageSize, TxID: txID}.FreelistPages()
}

// noteFreelistSize remembers how long the list of free pages is after a transaction.
func (d *Database) noteFreelistSize(txID int) {
	var err error
	if d.freelistSize, err = d.freelistPages(txID); err != nil {
		_ = d.breakDown(fmt.Errorf("the list of free pages: %w", err), nil)
	}
}

func (t *transaction) make(s *Database, changes []*change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range changes {
		if ch.apply != nil {
			ch.err = ch.apply(t)
		}
	}
	for _, ch := range changes {
		if ch.err == nil && ch.claim.Max > 0 {
			s.claim(t, ch)
		}
	}
	for _, f := range t.last {
		f()
	}
	if s.nodes.Shared() && s.queue.Ready(t.steady) {
		s.nodes.TellClaimable() // others may have a free worker
	}
}

// freelistWorthWriting is up to how many free pages the list of them is written with every transaction. Without the list
// the database has to look for free pages when it opens a file that was not closed, which takes longer the larger the
// file is; but to write a long one with every transaction slows down all of them. A longer one is written now and then,
// which helps if nothing is written after that.
const freelistWorthWriting = 2048

// noteFreelist decides whether this transaction writes the list of free pages, and puts down if it does not.
func (t *transaction) noteFreelist(s *Database) {
	stats := s.db.Stats()
	skip := stats.FreePageN+stats.PendingPageN > freelistWorthWriting && !t.writeFreelist
	if skip == s.db.NoFreelistSync && s.freelistNoted {
		return
	}
	t.undo = append(t.undo, func() { s.freelistNoted = false })
	if skip {
		t.put(metaBucket, freelistKey, []byte{1})
	} else {
		t.delete(metaBucket, freelistKey)
	}
	s.db.NoFreelistSync, s.freelistNoted = skip, true
}

func (t *transaction) bucket(name []byte) *bbolt.Bucket { return t.tx.Bucket(name) }

// append is put for keys that are greater than all others, or nearly so.
func (t *transaction) append(bucket, key, value []byte) {
	b := t.bucket(bucket)
	b.FillPercent = 1
	t.note(b.Put(key, value))
}

func (t *transaction) put(bucket, key, value []byte) { t.note(t.bucket(bucket).Put(key, value)) }

func (t *transaction) delete(bucket, key []byte) { t.note(t.bucket(bucket).Delete(key)) }

func (t *transaction) note(err error) {
	t.written = true
	if err != nil && t.failure == nil {
		t.failure = err
	}
}
