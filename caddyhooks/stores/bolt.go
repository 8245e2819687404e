package stores

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/uuid"
	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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
			return d.Err("the path of the store is empty")
		}
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	if d.NextBlock(d.Nesting()) {
		return d.Errf("unrecognized subdirective '%s'; the bolt store takes its path as an argument, and nothing else", d.Val())
	}
	return nil
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

func (b *Bolt) path(instance string) string {
	if b.Path != "" {
		return b.Path
	}
	return filepath.Join(caddy.AppDataDir(), "hooks", instance+".db")
}

// StoreKey names the data of an instance.
func (b *Bolt) StoreKey(instance string) string { return "bolt:" + b.path(instance) }

// OpenStore opens the file, or makes a new one.
func (b *Bolt) OpenStore(_ context.Context, instance string) (engine.Store, error) {
	return openBolt(b.path(instance))
}

func openBolt(path string) (*boltStore, error) {
	db, c, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s := &boltStore{db: db, queue: c.queue, outbox: c.outbox, ending: make(map[uuid.UUID]engine.Record), keyCount: c.keyCount}
	if s.queue.lanes.Queued() > 0 {
		s.queue.signal()
	}
	s.committer = newCommitter(s)
	return s, nil
}

// boltStore has what is unfinished indexed in memory, and everything in the file.
type boltStore struct {
	db        *bolt.DB
	committer *committer

	mu     sync.Mutex
	queue  queue                       // with the changes that are just being written
	outbox *outbox                     // the pending deliveries
	ending map[uuid.UUID]engine.Record // where runs are whose end is just being written

	// Only for the committer.
	keyCount      int
	freelistNoted bool

	// Only for Prune, which one goroutine calls.
	pruneFrom []byte // where the next step begins
}

func (s *boltStore) Add(_ context.Context, run *engine.Run, limits engine.Limits) error {
	data := encodeRun(run)
	return s.committer.do(&change{size: len(data), apply: func(t *transaction) error {
		if run.Key != nil {
			if first := firstWithKey(t, run.Key.ID); first != nil && !keyIsOld(first, t.now, limits) {
				return duplicate(first, run)
			}
		}
		if err := s.queue.admit(run.ChatID, limits); err != nil {
			return err
		}
		id, err := s.queue.ids.Next(t.now)
		if err != nil {
			return err
		}
		run.ID = id.String()
		t.append(runsBucket, id[:], seal(id[:], data))
		if run.Key != nil {
			s.putKey(t, id, run, limits)
		}
		ready, undo := s.queue.push(run.ChatID, id)
		t.undo = append(t.undo, undo)
		if ready {
			s.queue.signal()
		}
		return nil
	}})
}

func (s *boltStore) Claim(_ context.Context, want engine.Want) ([]*engine.Claim, error) {
	s.mu.Lock()
	s.queue.expire(time.Now())
	idle := !s.queue.lanes.Ready()
	s.mu.Unlock()
	if idle {
		return nil, nil
	}
	ch := &change{claim: want}
	if err := s.committer.do(ch); err != nil {
		return nil, err
	}
	return s.readClaimed(ch.claims)
}

// claim takes runs from the queue and writes down that they are started.
func (s *boltStore) claim(t *transaction, want engine.Want) []*engine.Claim {
	ids, undo := s.queue.claim(want, t.now)
	t.undo = append(t.undo, undo)
	var claims []*engine.Claim
	for _, id := range ids {
		h := s.queue.held[id]
		t.put(startsBucket, id[:], encodeStarts(h.attempt))
		claims = append(claims, &engine.Claim{Run: &engine.Run{ID: id.String()}, Attempt: h.attempt, StartedAt: h.startedAt})
	}
	return claims
}

func encodeStarts(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// readClaimed fills in the runs of claims. One that cannot be read is left out; it comes back when its lease is over. The
// error says so if there is nothing else.
func (s *boltStore) readClaimed(claims []*engine.Claim) (read []*engine.Claim, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var unreadable error
	err = s.view(func(tx *bolt.Tx) error {
		runs := tx.Bucket(runsBucket)
		for _, claim := range claims {
			id := uuid.MustParse(claim.Run.ID)
			record, err := decodeRun(id, runs.Get(id[:]))
			if err != nil {
				unreadable = fmt.Errorf("reading run %s: %w", claim.Run.ID, err)
				continue
			}
			claim.Run = record.Run
			read = append(read, claim)
		}
		return nil
	})
	if err == nil && len(read) == 0 {
		err = unreadable
	}
	return read, err
}

// view reads from the file. A damaged one must not take the process down.
func (s *boltStore) view(read func(*bolt.Tx) error) error {
	return guarded(func() error { return s.db.View(read) })
}

func (s *boltStore) Claimable() <-chan struct{} { return s.queue.claimable }

func (s *boltStore) Renew(_ context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.renew(claims, time.Now().Add(lease)), nil
}

func (s *boltStore) Release(_ context.Context, claim *engine.Claim) error {
	return s.committer.do(&change{apply: func(t *transaction) error {
		id, ok := s.queue.holds(claim)
		if !ok {
			return engine.ErrClaimLost
		}
		if claim.Attempt > 1 {
			t.put(startsBucket, id[:], encodeStarts(claim.Attempt-1))
		} else {
			t.delete(startsBucket, id[:])
		}
		t.after = append(t.after, func() {
			if _, ok := s.queue.holds(claim); ok {
				s.queue.release(id)
			}
		})
		return nil
	}})
}

func (s *boltStore) Finish(_ context.Context, claim *engine.Claim, end engine.End, want engine.Want) ([]*engine.Claim, error) {
	attempts, startedAt := claim.Attempt, claim.StartedAt
	if end.Unstarted {
		attempts, startedAt = attempts-1, time.Time{}
	}
	data := encodeEnded(claim.Run, attempts, startedAt, end)
	size := len(data)
	for _, d := range end.Deliveries {
		size += len(d.Body)
	}
	ch := &change{claim: want, size: size, apply: func(t *transaction) error {
		id, ok := s.queue.holds(claim)
		if !ok {
			return engine.ErrClaimLost
		}
		s.end(t, id, claim.Run, data, end)
		return nil
	}}
	if err := s.committer.do(ch); err != nil {
		return nil, err
	}
	next, _ := s.readClaimed(ch.claims) // the end is stored, and that is what was asked for
	return next, nil
}

func (s *boltStore) Withdraw(_ context.Context, runID string, end engine.End) error {
	id, ok := parseID(runID)
	if !ok {
		return engine.ErrNotFound
	}
	return s.committer.do(&change{apply: func(t *transaction) error {
		if !s.queue.isQueued(id) {
			return engine.ErrNotFound
		}
		record, err := decodeRun(id, t.bucket(runsBucket).Get(id[:]))
		if err != nil {
			return err
		}
		s.end(t, id, record.Run, encodeEnded(record.Run, s.queue.starts[id], time.Time{}, end), end)
		return nil
	}})
}

// end moves a run to those that have ended.
func (s *boltStore) end(t *transaction, id uuid.UUID, run *engine.Run, data []byte, end engine.End) {
	t.delete(runsBucket, id[:])
	t.delete(startsBucket, id[:])
	t.append(endedBucket, id[:], seal(id[:], data))
	if run.Key != nil && end.Outcome.ForgetsKey() {
		s.deleteKey(t, id, run.Key.ID[:])
	}
	for _, d := range end.Deliveries {
		key := newDeliveryKey(id, d.Index)
		t.append(outboxBucket, key[:], seal(key[:], encodeDelivery(d)))
		to, due := d.Destination(), d.Due
		t.after = append(t.after, func() { s.outbox.add(to, key, due) })
	}
	var place engine.Record
	s.queue.describe(id, &place)
	s.ending[id] = place
	undo := s.queue.end(id)
	t.undo = append(t.undo, undo, func() { delete(s.ending, id) })
	t.after = append(t.after, func() { delete(s.ending, id) })
}

// describe fills in where a run is that has not ended, and reports false if it has, or never was.
func (s *boltStore) describe(id uuid.UUID, record *engine.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	place, ending := s.ending[id]
	if !ending {
		if here, _ := s.queue.lanes.Has(id); !here {
			return false
		}
		s.queue.describe(id, &place)
	}
	record.Status, record.Attempts, record.StartedAt = place.Status, place.Attempts, place.StartedAt
	return true
}

func (s *boltStore) Get(_ context.Context, runID string) (record *engine.Record, err error) {
	id, ok := parseID(runID)
	if !ok {
		return nil, engine.ErrNotFound
	}
	var place engine.Record
	s.describe(id, &place) // first: if it ends before we look, it is found among those that have ended
	err = s.view(func(tx *bolt.Tx) error {
		data := tx.Bucket(endedBucket).Get(id[:])
		ended := data != nil
		if !ended {
			if data = tx.Bucket(runsBucket).Get(id[:]); data == nil {
				return engine.ErrNotFound
			}
		}
		if record, err = decodeRun(id, data); err != nil {
			return fmt.Errorf("reading run %s: %w", runID, err)
		}
		if !ended {
			record.Status, record.Attempts, record.StartedAt = place.Status, place.Attempts, place.StartedAt
			return nil
		}
		record.Deliveries, err = deliveriesOf(tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return record, nil
}

func (s *boltStore) List(ctx context.Context, query engine.Query) (page []*engine.Record, next string, err error) {
	var cursor []byte
	if query.Cursor != "" {
		id, ok := parseID(query.Cursor)
		if !ok {
			return nil, "", engine.ErrCursor
		}
		cursor = id[:]
	}
	err = s.view(func(tx *bolt.Tx) error {
		newest := newestFirst(tx, cursor, runsBucket, endedBucket)
		size := 0
		for looked := 0; ; looked++ {
			id, data := newest()
			if id == nil {
				next = ""
				return nil
			}
			if len(page) == query.Limit || looked == listLooksAt || size > listReads {
				return nil
			}
			size += len(data)
			next = uuid.UUID(id).String()
			record, err := decodeRun(uuid.UUID(id), data)
			if err != nil {
				return fmt.Errorf("reading run %s: %w", next, err)
			}
			since := record.Status == "" && !s.describe(uuid.UUID(id), record)
			if since || selects(query, record) {
				page = append(page, withoutTexts(record))
			}
		}
	})
	if err != nil {
		return nil, "", err
	}
	// Some may have ended since. What is said about them must not be older than what was said before.
	current := page[:0]
	for _, record := range page {
		if record.Status == "" {
			if record, err = s.Get(ctx, record.Run.ID); errors.Is(err, engine.ErrNotFound) {
				continue
			} else if err != nil {
				return nil, "", err
			}
			if !selects(query, record) {
				continue
			}
			withoutTexts(record)
		}
		current = append(current, record)
	}
	return current, next, nil
}

// listReads is how many bytes of runs a query reads before it leaves the rest to the next one.
const listReads = 32 << 20

// newestFirst walks over what is in some buckets, from the greatest key that is less than cursor, if there is one.
func newestFirst(tx *bolt.Tx, cursor []byte, buckets ...[]byte) func() (key, value []byte) {
	type walk struct {
		*bolt.Cursor
		key, value []byte
	}
	var walks []*walk
	for _, bucket := range buckets {
		w := &walk{Cursor: tx.Bucket(bucket).Cursor()}
		walks = append(walks, w)
		if cursor != nil {
			if key, _ := w.Seek(cursor); key != nil {
				w.key, w.value = w.Prev()
				continue
			}
		}
		w.key, w.value = w.Last()
	}
	return func() (key, value []byte) {
		newest := walks[0]
		for _, w := range walks[1:] {
			if bytes.Compare(w.key, newest.key) > 0 {
				newest = w
			}
		}
		key, value = newest.key, newest.value
		if key != nil {
			newest.key, newest.value = newest.Prev()
		}
		return key, value
	}
}

func (s *boltStore) Settings(context.Context) (settings []byte, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		settings = slices.Clone(tx.Bucket(metaBucket).Get(settingsKey))
		return nil
	})
	return settings, err
}

func (s *boltStore) SaveSettings(_ context.Context, settings []byte) error {
	return s.committer.do(&change{apply: func(t *transaction) error {
		t.put(metaBucket, settingsKey, settings)
		return nil
	}})
}

// Close writes the list of free pages, so that the file is opened quickly the next time.
func (s *boltStore) Close() error {
	s.committer.close()
	var err error
	if s.db.NoFreelistSync {
		s.db.NoFreelistSync = false
		err = s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Delete(freelistKey) })
	}
	if closeErr := s.db.Close(); closeErr != nil {
		return closeErr
	}
	return err
}

// Interface guards
var (
	_ engine.StoreOpener    = (*Bolt)(nil)
	_ caddy.Provisioner     = (*Bolt)(nil)
	_ caddyfile.Unmarshaler = (*Bolt)(nil)
)
