package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// guardedStore is the store of an engine, and what is known about its failures.
type guardedStore struct {
	Store
	configs *configs
	life    *lifetime

	broken     chan struct{} // closed when the store is known to be broken
	brokenOnce sync.Once
	writes     storeWrites
}

// context is for a call of the store that has to be made even if its cause is gone. One that does not return within a
// lease is given up, and can be repeated.
func (s *guardedStore) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.configs.lease())
}

// patience bounds a call of the store that is made for a request: one that hangs must not hold the request.
func (s *guardedStore) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.configs.lease())
}

// ask calls the store for a request, with patience, and notes if the store is broken.
func ask[T any](ctx context.Context, s *guardedStore, call func(context.Context) (T, error)) (T, error) {
	ctx, stop := s.patience(ctx)
	defer stop()
	answer, err := call(ctx)
	s.noteBroken(err)
	return answer, err
}

// noteBroken reports whether an error says that the store is broken. The first time that is logged: from then on every call
// of the store fails alike.
func (s *guardedStore) noteBroken(err error) bool {
	var broken *StoreBrokenError
	if !errors.As(err, &broken) {
		return false
	}
	s.brokenOnce.Do(func() {
		close(s.broken)
		s.configs.log().Error("the store is broken: nothing more is accepted or carried out. Restart the service; it checks the store, and "+
			"says what to do if it is damaged", zap.String("reason", broken.Reason), zap.ByteString("stack", broken.Stack))
	})
	return true
}

// failed logs that the store failed, unless that is known.
func (s *guardedStore) failed(message string, err error, fields ...zap.Field) {
	if !s.isKnown(err) {
		s.configs.log().Error(message, append(fields, ErrorField(err))...)
	}
}

// isKnown reports whether an error was told in the log already, since it is that of every call: the store is broken, or unreachable.
func (s *guardedStore) isKnown(err error) bool {
	return errors.Is(err, ErrUnreachable) || s.noteBroken(err)
}

// insist does something again and again until the store, whose disk may be full, can do it, or the store is broken, or the
// engine is stopped. What is not stored by then is done again after the next start.
func (s *guardedStore) insist(config *Config, kind writeKind, runID string, do func(context.Context) error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		ctx, stop := s.context()
		err := do(ctx)
		stop()
		s.writes.note(kind, err)
		if err == nil || errors.Is(err, ErrClaimLost) || s.life.base.Err() != nil || s.noteBroken(err) {
			return err
		}
		var changed <-chan struct{}
		if errors.Is(err, ErrUnreachable) {
			pause = min(pause, time.Second)
			_, changed, _ = s.outage()
		} else {
			config.Log.Error("the store failed, trying again",
				zap.Stringer("while", kind), zap.String("run_id", runID), zap.Duration("pause", pause), zap.Error(err))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-changed:
		case <-s.life.base.Done():
		}
		timer.Stop()
	}
}

// isRemote reports whether the store is on another machine, and other nodes may work on it while this one cannot reach it.
func (s *guardedStore) isRemote() bool {
	_, ok := s.Store.(Remote)
	return ok
}

// outage tells since when the store cannot be reached, and why; cause is nil if it can be. changed is closed when that is
// different, and nil if it never is.
func (s *guardedStore) outage() (since time.Time, changed <-chan struct{}, cause error) {
	if remote, ok := s.Store.(Remote); ok {
		return remote.Outage()
	}
	return time.Time{}, nil, nil
}

// unreachableError is ErrUnreachable with its cause if the store is unreachable.
func (s *guardedStore) unreachableError() error {
	if _, _, cause := s.outage(); cause != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, cause)
	}
	return nil
}

// failing is why the store could not write what it was last asked to, lately; nil if it could.
func (s *guardedStore) failing() error {
	for kind := range s.writes.failed {
		if failed := s.writes.failed[kind].Load(); failed != nil && time.Since(failed.at) < failureCounts {
			return failed.err
		}
	}
	return nil
}

// isBroken reports whether the store is broken, which only a restart can mend.
func (s *guardedStore) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// storeWrites knows whether the store could write what it was last asked to, for each kind of write: one that accepts runs and cannot store
// their ends fails.
type storeWrites struct {
	failed [writeKinds]atomic.Pointer[failedWrite] // nil if the last one succeeded
}

type writeKind int

const (
	writeRun writeKind = iota
	writeClaim
	writeEnd
	writeBack // a run goes back to the queue
	writeDelivery
	writeKinds
)

var writeKindNames = [writeKinds]string{"storing a run", "claiming runs", "storing the end of a run", "putting a run back",
	"recording a delivery"}

func (k writeKind) String() string { return writeKindNames[k] }

type failedWrite struct {
	at  time.Time
	err error
}

// note notes how a write went. A store that is unreachable, or broken, is known by other signs.
func (w *storeWrites) note(kind writeKind, err error) {
	var broken *StoreBrokenError
	switch failed := &w.failed[kind]; {
	case err == nil && failed.Load() == nil:
	case err == nil:
		failed.Store(nil)
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrClaimLost), errors.Is(err, context.Canceled), errors.As(err, &broken):
	default:
		failed.Store(&failedWrite{time.Now(), fmt.Errorf("%s: %w", kind, err)})
	}
}

// failureCounts is how long a failed write counts if none of its kind is tried after it. A node that gets no requests because of it would
// never find out that it can write again.
const failureCounts = 30 * time.Second

// Remote is a Store on another machine, which may be out of reach. Only such a store returns ErrUnreachable.
type Remote interface {
	// Outage tells since when the store cannot be reached, and why; cause is nil if it can be. changed is closed when that is
	// different. While the store is unreachable each call returns ErrUnreachable at once.
	Outage() (since time.Time, changed <-chan struct{}, cause error)
}

// OnDisk is a Store in a file system that may fill up.
type OnDisk interface {
	// Space is how many bytes the file system has, and how many of them are free.
	Space() (free, total uint64, err error)
}

// Shared is a Store that several nodes may work with.
type Shared interface {
	// Nodes lists the nodes, this one among them, by their host.
	Nodes(ctx context.Context) ([]Node, error)
}

// Node is a process that works with a shared store.
type Node struct {
	Name     string // of its own, another one after each start
	Host     string
	This     bool // it is the one that was asked
	Silent   bool // it has not been seen for some seconds, and has not left: what it has claimed is taken on by others
	JoinedAt time.Time
	SeenAt   time.Time
	Running  int // chats in which it carries out a run
}

// spaceIsLow tells how many bytes are free where the store is, if these are few: less than 2 GB, and less than a twentieth of all.
func (s *guardedStore) spaceIsLow() (free uint64, low bool) {
	const few, part = 2 << 30, 20
	disk, ok := s.Store.(OnDisk)
	if !ok {
		return 0, false
	}
	free, total, err := disk.Space()
	return free, err == nil && free < few && free < total/part
}

// Refusal is why a store is unreachable that will not be back by itself.
type Refusal interface {
	error
	IsRefusal()
}

// watch tells operators when the store goes away and when it is back, once each, and then calls back. Turns under way go on, until their
// leases are over.
func (s *guardedStore) watch(back func()) {
	var since time.Time  // of the absence that was told
	var lastCause string // its cause
	for {
		began, changed, cause := s.outage()
		switch {
		case cause != nil && since.IsZero():
			since, lastCause = began, cause.Error()
			s.configs.log().Error("the store cannot be reached: nothing is accepted or started until it is back. It is tried again all the time",
				ErrorField(cause))
		case cause != nil:
			// Other causes come and go while a database starts.
			if refusal := (Refusal)(nil); errors.As(cause, &refusal) && lastCause != cause.Error() {
				lastCause = cause.Error()
				s.configs.log().Error("the store refuses this node", ErrorField(cause))
			}
		case !since.IsZero():
			s.configs.log().Info("the store is back", zap.Duration("unreachable", time.Since(since)))
			since = time.Time{}
			back()
		}
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-s.life.stopping:
			return
		}
	}
}
