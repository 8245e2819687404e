package storage

import (
	"context"
	"errors"
	"io"
)

// A BackedUpStore can be copied while nodes work with it. Not every store can: some have tools of their own for that.
type BackedUpStore interface {
	// StartBackup begins a copy of all that was stored before it was called, for an instance of this name. There is one at a
	// time; ErrBackupUnderWay says that there is another.
	StartBackup(instance string) (Backup, error)
}

// Backup is a copy of a store as it was at one moment. It has secrets in it.
type Backup interface {
	// Size is how many bytes WriteTo writes.
	Size() int64

	// Context is done when the copy has to end, because the store closes or needs the copy out of its way.
	Context() context.Context

	// WriteTo writes the copy. It returns soon after the context is done, if w does.
	io.WriterTo

	// Close lets go of the store.
	Close() error
}

// ErrBackupUnderWay is why a second backup does not begin.
var ErrBackupUnderWay = errors.New("another backup is under way")
