// Package stores holds the places in which runs can be kept.
package stores

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func init() {
	caddy.RegisterModule(Memory{})
}

// Memory keeps runs and live settings in memory. They survive a reload of the configuration, and are gone when the
// process ends. When they come to 512 MB, it forgets finished runs, and takes no more when there are none left to forget.
type Memory struct{}

// CaddyModule returns the Caddy module information.
func (Memory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.stores.memory",
		New: func() caddy.Module { return new(Memory) },
	}
}

// UnmarshalCaddyfile parses:
//
//	store memory
func (*Memory) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	if d.NextBlock(d.Nesting()) {
		return d.Errf("unrecognized subdirective '%s'; the memory store takes none", d.Val())
	}
	return nil
}

// StoreKey names the data of an instance.
func (Memory) StoreKey(instance string) string { return "memory:" + instance }

// OpenStore makes an empty store.
func (Memory) OpenStore(context.Context, string) (engine.Store, error) {
	return &memoryStore{
		queue:  newQueue(),
		outbox: newOutbox(),
		runs:   make(map[uuid.UUID]*engine.Record),
		keys:   make(map[[32]byte]*engine.Run),
	}, nil
}

type memoryStore struct {
	mu       sync.Mutex
	queue    queue
	outbox   *outbox
	runs     map[uuid.UUID]*engine.Record
	order    []uuid.UUID              // of all runs, and of some that are gone
	over     agenda[uuid.UUID]        // runs that have ended, and so have their deliveries
	keys     map[[32]byte]*engine.Run // with no more than duplicates are told about
	keyOrder []*engine.Run            // the oldest first; some may have lost their key
	bytes    int                      // of runs and deliveries
	settings []byte
}

const maxBytes = 512 << 20

// recordBytes is about what a run takes in memory, with its deliveries.
func recordBytes(r *engine.Record) int {
	n := 1024 + len(r.Run.Message) + len(r.Run.Metadata) + len(r.Run.Schema) + len(r.Outcome.Text) + len(r.Outcome.JSON)
	for _, d := range r.Deliveries {
		n += 512 + len(d.Body) + len(d.LastAnswer)
	}
	return n
}

func (s *memoryStore) Add(_ context.Context, run *engine.Run, limits engine.Limits) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if run.Key != nil {
		if first := s.keys[run.Key.ID]; first != nil && !keyIsOld(first, now, limits) {
			return duplicate(first, run)
		}
	}
	if err := s.queue.admit(run.ChatID, limits); err != nil {
		return err
	}
	record := &engine.Record{Run: run, Status: engine.Queued}
	for s.bytes+recordBytes(record) > maxBytes {
		if !s.forgetOldest(now) {
			return engine.ErrQueueFull
		}
	}
	id, err := s.queue.ids.Next(now)
	if err != nil {
		return err
	}
	run.ID = id.String()
	s.runs[id] = record
	s.order = append(s.order, id)
	s.bytes += recordBytes(record)
	if run.Key != nil {
		first := &engine.Run{ID: run.ID, ChatID: run.ChatID, Action: run.Action, Sync: run.Sync, AcceptedAt: run.AcceptedAt, Key: run.Key}
		s.keys[run.Key.ID] = first
		s.keyOrder = append(s.keyOrder, first)
		for limits.Keys > 0 && len(s.keyOrder) > limits.Keys {
			s.forgetOldestKey()
		}
	}
	if ready, _ := s.queue.push(run.ChatID, id); ready {
		s.queue.signal()
	}
	return nil
}

// keyIsOld reports whether the key of a run need not be known any more.
func keyIsOld(run *engine.Run, now time.Time, limits engine.Limits) bool {
	return limits.KeyAge > 0 && now.Sub(run.AcceptedAt) > limits.KeyAge
}

// duplicate tells about the first of two runs with the same key.
func duplicate(first, second *engine.Run) error {
	return &engine.DuplicateError{First: first, SameBody: first.Key.Body == second.Key.Body}
}

func (s *memoryStore) forgetOldestKey() {
	oldest := s.keyOrder[0]
	s.keyOrder = s.keyOrder[1:]
	if s.keys[oldest.Key.ID] == oldest {
		delete(s.keys, oldest.Key.ID)
	}
}

func (s *memoryStore) Claim(_ context.Context, want engine.Want) ([]*engine.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claim(want), nil
}

func (s *memoryStore) claim(want engine.Want) []*engine.Claim {
	var claims []*engine.Claim
	ids, _ := s.queue.claim(want, time.Now())
	for _, id := range ids {
		h := s.queue.held[id]
		claims = append(claims, &engine.Claim{Run: s.runs[id].Run, Attempt: h.attempt, StartedAt: h.startedAt})
	}
	return claims
}

func (s *memoryStore) Claimable() <-chan struct{} { return s.queue.claimable }

func (s *memoryStore) Renew(_ context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.renew(claims, time.Now().Add(lease)), nil
}

func (s *memoryStore) Release(_ context.Context, claim *engine.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.queue.holds(claim)
	if !ok {
		return engine.ErrClaimLost
	}
	s.queue.release(id)
	return nil
}

func (s *memoryStore) Finish(_ context.Context, claim *engine.Claim, end engine.End, want engine.Want) ([]*engine.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.queue.holds(claim)
	if !ok {
		return nil, engine.ErrClaimLost
	}
	s.end(id, end)
	return s.claim(want), nil
}

func (s *memoryStore) Withdraw(_ context.Context, runID string, end engine.End) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := parseID(runID)
	if !ok || !s.queue.isQueued(id) {
		return engine.ErrNotFound
	}
	s.end(id, end)
	return nil
}

func (s *memoryStore) end(id uuid.UUID, end engine.End) {
	record := s.runs[id]
	s.bytes -= recordBytes(record)
	s.queue.describe(id, record)
	s.queue.end(id)
	if key := record.Run.Key; key != nil && end.Outcome.ForgetsKey() {
		if first := s.keys[key.ID]; first != nil && first.ID == record.Run.ID {
			delete(s.keys, key.ID)
		}
	}
	run := *record.Run // the caller may still look at the other one
	run.Message, run.Metadata, run.Schema = "", nil, nil
	ended := &engine.Record{Run: &run, Status: end.Outcome.Status, Attempts: record.Attempts, StartedAt: record.StartedAt,
		FinishedAt: end.At, Outcome: end.Outcome}
	for _, d := range end.Deliveries {
		d := *d
		ended.Deliveries = append(ended.Deliveries, &d)
		s.outbox.add(d.Destination(), newDeliveryKey(id, d.Index), d.Due)
	}
	if end.Unstarted {
		ended.Attempts, ended.StartedAt = ended.Attempts-1, time.Time{}
	}
	s.runs[id] = ended
	s.bytes += recordBytes(ended)
	s.noteOver(id)
}

// noteOver lets a run be forgotten in time, unless a delivery of it is still pending.
func (s *memoryStore) noteOver(id uuid.UUID) {
	if record := s.runs[id]; !hasPending(record) {
		s.over.add(overSince(record), id)
	}
}

// overSince is when there was nothing more to do about a run: it has ended, and no delivery has been given up since.
func overSince(record *engine.Record) time.Time {
	at := record.FinishedAt
	for _, d := range record.Deliveries {
		if d.Status == engine.Dead {
			at = later(at, d.TriedAt)
		}
	}
	return at
}

func hasPending(record *engine.Record) bool {
	return slices.ContainsFunc(record.Deliveries, func(d *engine.Delivery) bool { return d.Status == engine.Pending })
}

func (s *memoryStore) Get(_ context.Context, runID string) (*engine.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := parseID(runID)
	if !ok || s.runs[id] == nil {
		return nil, engine.ErrNotFound
	}
	record := s.show(id)
	for i, d := range record.Deliveries {
		d := *d
		d.Body = ""
		record.Deliveries[i] = &d
	}
	return record, nil
}

// show returns a copy of a record that can be given away.
func (s *memoryStore) show(id uuid.UUID) *engine.Record {
	record := *s.runs[id]
	if !record.Status.Ended() {
		s.queue.describe(id, &record)
	}
	record.Deliveries = slices.Clone(record.Deliveries)
	return &record
}

func (s *memoryStore) List(_ context.Context, query engine.Query) (page []*engine.Record, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if query.Limit <= 0 {
		return nil, "", nil
	}
	end := len(s.order)
	if query.Cursor != "" {
		cursor, ok := parseID(query.Cursor)
		if !ok {
			return nil, "", engine.ErrCursor
		}
		end = s.olderThan(cursor)
	}
	for i, looked := end-1, 0; i >= 0; i, looked = i-1, looked+1 {
		if len(page) == query.Limit || looked == listLooksAt {
			return page, s.order[i+1].String(), nil
		}
		if s.runs[s.order[i]] == nil {
			continue
		}
		if record := s.show(s.order[i]); selects(query, record) {
			page = append(page, withoutTexts(record))
		}
	}
	return page, "", nil
}

// olderThan is how many of the runs in order are older than the one given.
func (s *memoryStore) olderThan(id uuid.UUID) int {
	n, _ := slices.BinarySearchFunc(s.order, id, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return n
}

// listLooksAt is how many runs a query looks at before it leaves the rest to the next one.
const listLooksAt = 10_000

func selects(query engine.Query, record *engine.Record) bool {
	return (query.Hook == "" || query.Hook == record.Run.Hook) &&
		(query.ChatID == "" || query.ChatID == record.Run.ChatID) &&
		(query.Status == "" || query.Status == record.Status)
}

// withoutTexts is a record as it is listed.
func withoutTexts(record *engine.Record) *engine.Record {
	run := *record.Run
	run.Message, run.Metadata, run.Schema = "", nil, nil
	record.Run, record.Deliveries = &run, nil
	record.Outcome.Text, record.Outcome.JSON = "", nil
	return record
}

func (s *memoryStore) Prune(_ context.Context, now time.Time, limits engine.Limits) (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range pruneStep {
		oldKey := len(s.keyOrder) > 0 && keyIsOld(s.keyOrder[0], now, limits)
		if oldKey {
			s.forgetOldestKey()
		}
		oldRun := limits.Retention > 0 && s.forgetOldest(now.Add(-limits.Retention))
		if !oldKey && !oldRun {
			return false, nil
		}
	}
	return true, nil
}

// pruneStep is how much is forgotten at once.
const pruneStep = 200

// forgetOldest forgets the run that has ended first, if that was before the given time.
func (s *memoryStore) forgetOldest(before time.Time) bool {
	for {
		id, ok := s.over.take(before)
		if !ok {
			return false
		}
		record := s.runs[id]
		if record == nil || hasPending(record) || overSince(record).After(before) {
			continue // it has been forgotten, or is noted again
		}
		delete(s.runs, id)
		s.bytes -= recordBytes(record)
		if len(s.order) > 1000 && len(s.order) > 2*len(s.runs) {
			s.order = slices.DeleteFunc(s.order, func(id uuid.UUID) bool { return s.runs[id] == nil })
		}
		return true
	}
}

func (s *memoryStore) Settings(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.settings), nil
}

func (s *memoryStore) SaveSettings(_ context.Context, settings []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = bytes.Clone(settings)
	return nil
}

func (s *memoryStore) Close() error { return nil }

// Interface guards
var (
	_ engine.StoreOpener    = (*Memory)(nil)
	_ caddyfile.Unmarshaler = (*Memory)(nil)
)
