package stores

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// committer writes for many callers at once: one goroutine takes all changes that wait, puts them in one transaction and
// tells their callers when that is on the disk. While it waits for the disk the next changes gather, so the busier the
// store is the more of them share the cost.
type committer struct {
	store *boltStore
	over  chan struct{}

	mu      sync.Mutex
	news    sync.Cond // there are changes, or there will be no more
	waiting []*change
	closed  bool
}

// change is something to be written.
type change struct {
	// apply checks the change and makes it, in memory and in the transaction. If it returns an error then the change is
	// refused and must not have done anything.
	apply func(*transaction) error
	// claim says how many runs to claim after all changes of the transaction were made.
	claim engine.Want

	claims []*engine.Claim // whose Run has no more than its ID yet
	err    error
	done   chan struct{}
}

// transaction is a set of changes that are made together or not at all.
type transaction struct {
	tx      *bolt.Tx
	now     time.Time
	written bool
	failure error // that is not the fault of a single change
	undo    []func()
	after   []func()
}

// The most that is put in one transaction, for the sake of those who wait for it.
const maxChanges = 1024

var errClosed = errors.New("the store is closed")

func newCommitter(store *boltStore) *committer {
	c := &committer{store: store, over: make(chan struct{})}
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
			n := min(len(changes), maxChanges)
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
	c.store.mu.Lock()
	if err != nil {
		for i := len(t.undo) - 1; i >= 0; i-- {
			t.undo[i]()
		}
	} else {
		for _, f := range t.after {
			f()
		}
	}
	c.store.mu.Unlock()
	for _, ch := range changes {
		if err != nil { // also for what was refused: it may have been because of a change that did not come to be
			ch.err, ch.claims = err, nil
		}
		close(ch.done)
	}
	if err != nil {
		time.Sleep(failurePause)
	}
}

// failurePause keeps a disk that is full from being asked more often than makes sense.
const failurePause = 20 * time.Millisecond

func (c *committer) write(changes []*change) (t *transaction, err error) {
	t = &transaction{now: time.Now()}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("writing to the store: panic: %v\n%s", p, debug.Stack())
		}
		if err != nil && t.tx != nil {
			_ = guarded(t.tx.Rollback) // after a failed commit there is nothing left to roll back
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s := c.store
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
	if err := t.tx.Commit(); err != nil {
		return t, fmt.Errorf("writing to the store: %w", err)
	}
	return t, nil
}

func (t *transaction) make(s *boltStore, changes []*change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range changes {
		if ch.apply != nil {
			ch.err = ch.apply(t)
		}
	}
	for _, ch := range changes {
		if ch.err == nil && ch.claim.Runs > 0 {
			ch.claims = s.claim(t, ch.claim)
		}
	}
}

// freelistWorthWriting is up to how many free pages the list of them is written with every transaction. Without the list
// the database has to look for free pages when it opens a file that was not closed, which takes longer the larger the
// file is; but to write a long one with every transaction slows down all of them.
const freelistWorthWriting = 2048

// noteFreelist decides whether this transaction writes the list of free pages, and puts down if it does not.
func (t *transaction) noteFreelist(s *boltStore) {
	stats := s.db.Stats()
	skip := stats.FreePageN+stats.PendingPageN > freelistWorthWriting
	if skip == s.db.NoFreelistSync && s.freelistNoted {
		return
	}
	if skip {
		t.put(metaBucket, freelistKey, []byte{1})
	} else {
		t.delete(metaBucket, freelistKey)
	}
	s.db.NoFreelistSync, s.freelistNoted = skip, true
}

func (t *transaction) bucket(name []byte) *bolt.Bucket { return t.tx.Bucket(name) }

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
