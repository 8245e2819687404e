package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/storage"
)

// guardedStore is the store of an engine, and what is known about its failures.
type guardedStore struct {
	Store
	configs *configs
	life    *lifetime

	broken     chan struct{} // closed when the store is known to be broken
	brokenOnce sync.Once
	writes     storage.Writes
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
	broken, ok := errors.AsType[*StoreBrokenError](err)
	if !ok {
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
		s.configs.log().Error(message, append(fields, panics.Field(err))...)
	}
}

// isKnown reports whether an error was told in the log already, since it is that of every call: the store is broken, or unreachable.
func (s *guardedStore) isKnown(err error) bool {
	return errors.Is(err, ErrUnreachable) || s.noteBroken(err)
}

// insist does something again and again until the store, whose disk may be full, can do it, or the store is broken, or the
// engine is stopped. What is not stored by then is done again after the next start.
func (s *guardedStore) insist(config *Config, kind storage.WriteKind, runID string, do func(context.Context) error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		ctx, stop := s.context()
		err := do(ctx)
		stop()
		s.writes.Note(kind, err)
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
func (s *guardedStore) failing() error { return s.writes.Failing() }

// isBroken reports whether the store is broken, which only a restart can mend.
func (s *guardedStore) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
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
				panics.Field(cause))
		case cause != nil:
			// Other causes come and go while a database starts.
			if refusal := (Refusal)(nil); errors.As(cause, &refusal) && lastCause != cause.Error() {
				lastCause = cause.Error()
				s.configs.log().Error("the store refuses this node", panics.Field(cause))
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
