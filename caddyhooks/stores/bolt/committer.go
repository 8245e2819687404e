package bolt

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// committer writes for many callers at once: one goroutine takes all changes that wait, puts them in one transaction and
// tells their callers when that is on the disk. While it waits for the disk the next changes gather, so the busier the
// store is the more of them share the cost.
type committer struct {
	database *Database
	over     chan struct{}

	mu      sync.Mutex
	news    sync.Cond // there are changes, or there will be no more
	waiting []*change
	closed  bool

	pause time.Duration // after a transaction that failed

	commitTx func(*bbolt.Tx) error // which tests let fail
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

	claims []local.Claimed
	err    error
	done   chan struct{}
}

// transaction is a set of changes that are made together or not at all.
type transaction struct {
	tx       *bbolt.Tx
	now      time.Time
	written  bool
	failure  error // that is not the fault of a single change
	inEffect bool  // it failed, but can be read nevertheless
	undo     []func()
	after    []func() // when it is in effect …
	reported []func() // … and when it is reported so: after a failure callers will ask again

	writeFreelist bool
}

// The most that is put in one transaction, for the sake of those who wait for it and of memory.
const (
	maxChanges     = 1024
	maxChangesSize = 16 << 20
)

var errClosed = errors.New("the store is closed")

func newCommitter(database *Database) *committer {
	c := &committer{database: database, over: make(chan struct{}), commitTx: (*bbolt.Tx).Commit}
	c.news.L = &c.mu
	go c.run()
	return c
}

// do has a change made, and returns when it is on the disk or was refused.
func (c *committer) do(ch *change) error {
	ch.done = make(chan struct{})
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed
	}
	c.waiting = append(c.waiting, ch)
	if len(c.waiting) == 1 {
		c.news.Signal()
	}
	c.mu.Unlock()
	<-ch.done
	return ch.err
}

// close ends the committer when all that waits has been written.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.news.Signal()
	c.mu.Unlock()
	<-c.over
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
	changes := c.waiting
	c.waiting = nil
	return changes
}

// commit makes changes in one transaction and tells who waits for them.
func (c *committer) commit(changes []*change) {
	t, err := c.write(changes)
	c.settle(t, changes, err)
	for _, ch := range changes {
		if err != nil { // also for what was refused: it may have been because of a change that did not come to be
			ch.err, ch.claims = err, nil
		}
		close(ch.done)
	}
	if err == nil {
		c.pause = 0
		return
	}
	c.pause = min(max(2*c.pause, 10*time.Millisecond), 200*time.Millisecond)
	time.Sleep(c.pause) // a disk that is full must not be asked more often than makes sense
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

func (c *committer) write(changes []*change) (t *transaction, err error) {
	t = &transaction{now: c.database.clock.Now()}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("writing to the store: panic: %v\n%s", p, debug.Stack())
		}
		if err != nil && t.tx != nil {
			_ = guarded(t.tx.Rollback) // after a failed commit there is nothing left to roll back
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s := c.database
	if t.tx, err = s.db.Begin(true); err != nil {
		return t, fmt.Errorf("writing to the store: %w", err)
	}
	t.make(s, changes)
	if t.failure == nil && t.written {
		t.noteFreelist(s)
	}
	if t.failure != nil {
		return t, fmt.Errorf("writing to the store: %w", t.failure)
	}
	if !t.written {
		return t, t.tx.Rollback()
	}
	id := t.tx.ID()
	if err := c.commitTx(t.tx); err != nil {
		// If no more than the last sync has failed, then the transaction is not known to be on the disk, but whoever reads
		// the file sees it.
		_ = s.view(func(tx *bbolt.Tx) error {
			t.inEffect = tx.ID() >= id
			return nil
		})
		return t, fmt.Errorf("writing to the store: %w", err)
	}
	return t, nil
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
			ch.claims = s.claim(t, ch.node, ch.claim)
		}
	}
	if s.nodes.Shared() && s.queue.Ready(t.now) {
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
