package storage

import (
	"context"
	"time"
)

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

// NewsTeller is a Store that knows which runs other nodes have accepted, started or ended lately.
type NewsTeller interface {
	// News returns the ids of such runs since the last call, the newest first, up to a number. It is asked once a second or so as
	// long as somebody looks at lists of runs; the first answer after a pause is empty.
	News(ctx context.Context, most int) (runs []string, err error)
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

// Refusal is why a store is unreachable that will not be back by itself.
type Refusal interface {
	error
	IsRefusal()
}

// Commits is a Store that has transactions of its own, and tells of them.
type Commits interface {
	// OnCommit registers callback, which is called after each transaction with the number of calls that shared it. It must not block.
	OnCommit(callback func(changes int, took time.Duration))
}
