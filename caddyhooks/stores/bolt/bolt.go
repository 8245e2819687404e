// Package bolt is a store in a file. Accepted runs are on the disk, and survive a crash and a power cut.
//
// One goroutine, the committer, writes for all callers at once, many changes in a transaction. Unfinished runs and pending
// deliveries are indexed in memory, by the package local; a file has everything.
package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/counts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func init() {
	caddy.RegisterModule(Bolt{})
}

// Bolt keeps runs and live settings in a file. What was accepted is on the disk, and survives a crash and a power cut.
// The file must be on a local disk, and is open in one process at a time.
type Bolt struct {
	// The file. Default: hooks/<instance>.db in Caddy's data directory.
	Path string `json:"path,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Bolt) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.stores.bolt",
		New: func() caddy.Module { return new(Bolt) },
	}
}

// UnmarshalCaddyfile parses:
//
//	store bolt [<path>]
func (b *Bolt) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		b.Path = d.Val()
		if b.Path == "" {
			return d.Err("the path of the store is empty" + caddyconf.Unset)
		}
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	return caddyconf.ReadBlock(d, "the bolt store")
}

// Provision fills in placeholders such as {env.HOME}.
func (b *Bolt) Provision(caddy.Context) error {
	if b.Path == "" {
		return nil
	}
	path, err := caddy.NewReplacer().ReplaceOrErr(b.Path, true, true)
	if err != nil {
		return fmt.Errorf("the path of the store: %w", err)
	}
	b.Path, err = filepath.Abs(path)
	return err
}

// File is the file of an instance.
func (b *Bolt) File(instance string) string {
	if b.Path != "" {
		return b.Path
	}
	return filepath.Join(caddy.AppDataDir(), "hooks", instance+".db")
}

// StoreKey names the data of an instance.
func (b *Bolt) StoreKey(instance string) string { return "bolt:" + b.File(instance) }

// OpenStore opens the file, or makes a new one.
func (b *Bolt) OpenStore(_ context.Context, instance string) (engine.Store, error) {
	database, err := Open(b.File(instance))
	if err != nil {
		return nil, err
	}
	return database.Store(), nil
}

// Database is an open file. Every node that opens it gets a store of its own; the file is closed with the last of them.
type Database struct {
	db        *bbolt.DB
	file      *os.File // that db writes to
	broken    breakage
	committer *committer
	clock     *local.Clock
	nodes     *local.Nodes
	outbox    *local.Outbox // the pending deliveries

	mu       sync.Mutex
	ids      local.IDs
	queue    *local.Queue                // unfinished runs, with the changes that are just being written
	ending   map[uuid.UUID]engine.Record // where runs are whose end is just being written
	awaited  map[uuid.UUID]*engine.Run   // unfinished runs whose callers wait in this process: they need not be read
	revision int64                       // of the settings, with the change that is just being written
	idsAhead time.Duration               // by how much ids are ahead of the time of acceptance at most
	dead     counts.ByChannel            // likewise

	openQuestions int // that people have to answer

	// The revision in the file.
	savedRevision atomic.Int64

	onCommit atomic.Pointer[func(changes int, took time.Duration)] // nil if nobody wants to know

	idleReaders chan reading
	readers     atomic.Int32  // that are idle
	closing     chan struct{} // closed with the database
	closeOnce   sync.Once

	// Only for the committer.
	keyCount      int
	inputBytes    int64 // what counts for the limit of the history
	newRuns       int   // that have ended and are in no index yet
	indexAt       int   // how many of those there must be before they are put into the indexes, after that has failed
	freelistNoted bool
	freelistSize  int // in pages

	backingUp atomic.Bool

	// Which tests change.
	giveWayAfter   time.Duration
	segmentSize    int
	withoutIndexes bool

	pruning   sync.Mutex
	pruneFrom []byte // where the next step begins; under pruning

	pruneGatesFrom []byte // likewise
}

// Open opens a file, or makes a new one.
func Open(path string) (*Database, error) { return open(path, new(local.Clock)) }

func open(path string, clock *local.Clock) (*Database, error) {
	db, c, err := openFile(path, clock)
	if err != nil {
		return nil, err
	}
	d := &Database{
		db: db, file: c.file, clock: clock, nodes: c.nodes, ids: c.ids, queue: c.queue, outbox: c.outbox,
		ending: make(map[uuid.UUID]engine.Record), awaited: make(map[uuid.UUID]*engine.Run),
		revision: c.revision, keyCount: c.keyCount, inputBytes: c.input, idsAhead: c.ahead, dead: c.dead, newRuns: c.newRuns,
		openQuestions: c.open, segmentSize: segmentSize, giveWayAfter: giveWayAfter,
	}
	d.broken.done = make(chan struct{})
	d.idleReaders, d.closing = make(chan reading), make(chan struct{})
	d.savedRevision.Store(c.revision)
	d.committer = newCommitter(d)
	d.noteFreelistSize(c.txID)
	return d, nil
}

// Store opens the database for another node.
func (d *Database) Store() engine.Store {
	node := d.nodes.Join(d.clock.Steady())
	d.nodes.TellClaimable() // there may be runs from before
	return &store{d, node}
}

// store is one node's opening of the database.
type store struct {
	*Database
	node *local.Node
}

// Each subject of a store is a type of its own, since they have methods of the same name.
type (
	runs       struct{ *store }
	deliveries struct{ *store }
	sessions   struct{ *store }
	settings   struct{ *store }
	documents  struct{ *store }
	minutes    struct{ *store }
	ledgers    struct{ *store }
)

func (s *store) Node() string                  { return s.node.Name() }
func (s *store) Runs() engine.Runs             { return runs{s} }
func (s *store) Deliveries() engine.Deliveries { return deliveries{s} }
func (s *store) Sessions() engine.Sessions     { return sessions{s} }
func (s *store) Settings() engine.Settings     { return settings{s} }
func (s *store) Documents() engine.Documents   { return documents{s} }
func (s *store) Minutes() engine.Minutes       { return minutes{s} }
func (s *store) Ledger() engine.Ledger         { return ledgers{s} }
func (s *store) Watch() engine.Watch           { return s.node }
func (s *store) Streams() engine.Streams       { return local.Streams{Node: s.node} }

// Close takes this node out, and closes the file if it was the last one.
func (s *store) Close() error {
	if s.nodes.Leave(s.node) {
		return s.close()
	}
	return nil
}

// Size is that of the file.
func (d *Database) Size(context.Context) (int64, error) {
	if err := d.whenBroken(); err != nil {
		return 0, err
	}
	info, err := d.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("looking at the store: %w", err)
	}
	return info.Size(), nil
}

// Space is that of the file system of the file.
func (d *Database) Space() (free, total uint64, err error) { return storefile.SpaceAt(d.file.Name()) }

// OnCommit registers callback, which is called after each transaction.
func (d *Database) OnCommit(callback func(changes int, took time.Duration)) {
	d.onCommit.Store(&callback)
}

// close closes the file, or leaves it alone if the database is broken.
func (d *Database) close() error {
	err := d.committer.close()
	d.closeOnce.Do(func() { close(d.closing) })
	if d.whenBroken() == nil {
		err = errors.Join(err, d.safely(d.db.Close))
	}
	if broken := d.whenBroken(); broken != nil {
		d.abandon()
		return broken
	}
	return err
}

// Interface guards
var (
	_ engine.StoreOpener    = (*Bolt)(nil)
	_ caddy.Provisioner     = (*Bolt)(nil)
	_ caddyfile.Unmarshaler = (*Bolt)(nil)
)
