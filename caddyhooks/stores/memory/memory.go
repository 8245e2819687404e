// Package memory is a store in memory, for trying things out and for tests.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
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
	return caddyconf.ReadBlock(d, "the memory store")
}

// StoreKey names the data of an instance.
func (Memory) StoreKey(instance string) string { return "memory:" + instance }

// BackupAdvice says why there is no backup.
func (Memory) BackupAdvice(string) string {
	return "the store of this instance is in memory, and is gone when Caddy ends: there is nothing to back up. Write store bolt in the " +
		"Caddyfile to keep runs in a file"
}

// OpenStore makes an empty store.
func (Memory) OpenStore(context.Context, string) (engine.Store, error) { return New().Store(), nil }

// Data is what a store in memory holds. Every node that opens it gets a store of its own.
type Data struct {
	clock local.Clock
	nodes local.Nodes

	mu        sync.Mutex
	ids       local.IDs
	queue     *local.Queue
	outbox    *local.Outbox
	runs      map[uuid.UUID]*run
	order     idList // of all runs
	indexes   indexes
	over      expirations[uuid.UUID]   // runs that have ended, and so have their deliveries
	keys      map[[32]byte]*engine.Run // the parts of a run that a DuplicateError shows
	keyOrder  []*engine.Run            // the oldest first; some may have lost their key
	history   history
	sessions  sessionList
	bytes     int // of runs and deliveries
	settings  []byte
	revision  int64
	changes   []engine.SettingsChange // the oldest first
	minutes   []savedMinute           // likewise
	ledger    ledger
	gates     gates
	documents map[documentKey]engine.Document
	dead      map[string]int  // deliveries that were given up, by channel
	open      []local.OpenKey // questions for people, the one that was asked first comes first
}

// run is a record, and the token of the claim under which it ended.
type run struct {
	engine.Record
	endedBy string
	input   *keptInput // of a run that has ended, if it is kept

	followers []uuid.UUID // of a run that has ended, those that were folded with it
}

// New makes empty data.
func New() *Data {
	d := &Data{outbox: local.NewOutbox(), runs: make(map[uuid.UUID]*run), keys: make(map[[32]byte]*engine.Run), dead: make(map[string]int),
		documents: make(map[documentKey]engine.Document)}
	d.queue = local.NewQueue(&d.nodes)
	d.indexes.init()
	d.ledger.entries = make(map[string][]engine.LedgerEntry)
	return d
}

// Store opens the data for another node.
func (d *Data) Store() engine.Store { return &store{d, d.nodes.Join(d.clock.Steady())} }

// Advance lets time pass, for tests that cannot wait.
func (d *Data) Advance(by time.Duration) { d.clock.Advance(by) }

// store is one node's opening of the data.
type store struct {
	*Data
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

// Size is about how many bytes runs and deliveries take.
func (s *store) Size(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.bytes), nil
}

// Close takes this node out. The data stays for the others.
func (s *store) Close() error {
	s.nodes.Leave(s.node)
	return nil
}

const maxBytes = 512 << 20

// size is about what a run takes in memory, with its deliveries.
func (r *run) size() int {
	n := 1024 + len(r.Run.Message) + len(r.Run.Metadata) + len(r.Run.Schema) + 64*len(r.followers)
	if r.FoldedInto == "" { // otherwise the texts are those of another run
		n += len(r.Outcome.Text) + len(r.Outcome.JSON) + r.Outcome.Account.Size()
		for i := range r.Steps {
			n += r.Steps[i].Size()
		}
	}
	for _, d := range r.Deliveries {
		n += 512 + len(d.Body) + len(d.LastAnswer)
		for i := range d.History {
			n += 64 + len(d.History[i].Error)
		}
	}
	for _, q := range r.Questions {
		n += q.Size()
	}
	if r.input != nil {
		n += 256 + r.input.Size()
	}
	return n
}

func (s runs) Add(ctx context.Context, added *engine.Run, terms engine.Terms) error {
	return s.AddAll(ctx, []*engine.Run{added}, terms)
}

func (s runs) AddAll(ctx context.Context, added []*engine.Run, terms engine.Terms) error {
	_, err := s.AddAndClaim(ctx, added, terms, engine.Batch{})
	return err
}

func (s runs) AddAndClaim(_ context.Context, added []*engine.Run, terms engine.Terms, batch engine.Batch) ([]*engine.Claim, error) {
	if len(added) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.addAll(added, terms); err != nil {
		return nil, err
	}
	return s.claim(batch), nil
}

// addAll stores runs. It is called under the lock.
func (s runs) addAll(added []*engine.Run, terms engine.Terms) (err error) {
	now := s.clock.Now()
	if terms.Settings != s.revision {
		return engine.ErrSettingsChanged
	}
	if err := s.repeats(added[0], terms.Limits, now); err != nil {
		return err
	}
	if terms.Refuse != nil && !local.HasGates(added) {
		return terms.Refuse
	}
	first, err := s.firstOf(added[0], terms)
	if err != nil {
		return err
	}
	var one struct { // most requests are for one run
		before [1]engine.Run
		id     [1]uuid.UUID
	}
	all, before, ids, size := added, one.before[:0], one.id[:0], 0
	var passage local.Passage
	defer func() {
		for i := range before {
			if err != nil || passage.LeftOut != nil && passage.LeftOut[i] { // runs that are refused stay as they were
				*all[i] = before[i]
			}
		}
	}()
	for _, run := range added {
		id, err := s.ids.Next(now)
		if err != nil {
			return err
		}
		before, ids = append(before, *run), append(ids, id)
		run.ID, run.AcceptedAt = id.String(), now
		run.FillID()
	}
	if passage, err = s.passGates(added, terms.Refuse, now); err != nil {
		return err
	}
	added, ids = passage.Request(added), local.Passed(&passage, ids)
	for _, run := range added {
		size += newRun(run).size()
	}
	if err := s.queue.Admit(added, terms.Limits); err != nil {
		return err
	}
	for s.bytes+s.sessions.bytes+size > maxBytes {
		if !s.forgetOldest(now) && !s.sessions.forgetOldest(s.clock.Steady()) {
			return engine.ErrQueueFull
		}
	}
	local.JoinSiblings(added)
	for i, id := range ids {
		record := newRun(added[i])
		s.runs[id] = record
		s.order.add(id)
		s.indexes.add(id, added[i])
		s.bytes += record.size()
		s.queue.Push(local.EntryOf(id, added[i], s.clock.Steady()))
	}
	if first != nil {
		first.AgainAs = added[0].ID
	}
	s.addKeys(added[0], terms.Limits)
	for id, state := range passage.States {
		s.gates.put(id, state)
	}
	return nil
}

// newRun is the record of a run that is queued.
func newRun(of *engine.Run) *run {
	return &run{Record: engine.Record{Run: of, Status: engine.Queued}}
}

// repeats is the error for a run whose request was accepted before.
func (d *Data) repeats(added *engine.Run, limits engine.Limits, now time.Time) error {
	if added.Replay != nil {
		if first := d.keys[added.Replay.ID]; first != nil && !limits.KeyExpired(first.AcceptedAt, now) {
			return &engine.DuplicateError{First: first, SameBody: true}
		}
	}
	if added.Key != nil {
		if first := d.keys[added.Key.ID]; first != nil && !limits.KeyExpired(first.AcceptedAt, now) {
			return added.Repeats(first)
		}
	}
	return nil
}

// addKeys keeps what a repeated request is answered with.
func (d *Data) addKeys(run *engine.Run, limits engine.Limits) {
	for _, key := range []*engine.Key{run.Key, run.Replay} {
		if key == nil {
			continue
		}
		first := &engine.Run{ID: run.ID, ChatID: run.ChatID, Action: run.Action, Sync: run.Sync, AcceptedAt: run.AcceptedAt, Key: key,
			Together: run.Together}
		d.keys[key.ID] = first
		d.keyOrder = append(d.keyOrder, first)
	}
	for limits.Keys > 0 && len(d.keys) > limits.Keys { // not all of keyOrder count: some have lost their key
		d.forgetOldestKey()
	}
}

// forgetKeys forgets the keys of a run that has ended. A request that became several runs has an answer, whatever became of the
// first.
func (d *Data) forgetKeys(run *engine.Run) {
	for _, key := range []*engine.Key{run.Key, run.Replay} {
		if key == nil {
			continue
		}
		if first := d.keys[key.ID]; first != nil && first.ID == run.ID && len(first.Together) < 2 {
			delete(d.keys, key.ID)
		}
	}
}

func (d *Data) forgetOldestKey() {
	oldest := d.keyOrder[0]
	d.keyOrder = d.keyOrder[1:]
	if d.keys[oldest.Key.ID] == oldest {
		delete(d.keys, oldest.Key.ID)
	}
}

func (s runs) Claim(_ context.Context, batch engine.Batch) (claims []*engine.Claim, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims = s.claim(batch)
	return claims, s.queue.UntilDue(s.clock.Steady()), nil
}

func (s runs) Resume(_ context.Context, runners ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Resume(runners)
	return nil
}

func (s runs) Overdue(_ context.Context, most int) (overdue []*engine.Run, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, wait := s.queue.Overdue(s.clock.Steady(), most)
	for _, id := range ids {
		overdue = append(overdue, s.runs[id].Run)
	}
	return overdue, wait, nil
}

func (s runs) claim(batch engine.Batch) (claims []*engine.Claim) {
	now := s.clock.Steady()
	claimed, _ := s.queue.Claim(s.node, batch, now, s.clock.Now())
	for _, c := range claimed {
		run := s.runs[c.ID].Run
		claim := c.Claim(run, s.nodes.Awaits(run, s.node, now))
		claim.Questions = c.Questions(slices.Clone(s.runs[c.ID].Questions))
		for _, id := range c.Folded {
			claim.Folded = append(claim.Folded, s.runs[id].Run)
		}
		claims = append(claims, claim)
	}
	return claims
}

func (s runs) Renew(_ context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim, cancelled []engine.Cancellation,
	err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.clock.Steady().Add(lease)
	s.node.KeepAlive(until)
	lost, cancelled = s.queue.Renew(claims, until)
	return lost, cancelled, nil
}

func (s runs) End(_ context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, holds := s.queue.Holds(claim)
	ended := s.runs[id]
	spent := end.Spent
	switch {
	case holds && end.Requeue && claim.Token != "" && end.Question != nil:
		now := s.clock.Now()
		question, err := s.ask(id, end.Question, now)
		if err != nil {
			return nil, err
		}
		s.queue.PutAside(id, question, end, s.clock.Past(question.AskedAt), s.clock.Steady())
		s.addDeliveries(id, end.Deliveries, now)
		s.nameSession(claim, end.Session)
	case holds && end.Requeue && claim.Token != "":
		s.queue.Requeue(id, end, s.clock.Steady())
		s.nameSession(claim, end.Session)
	case holds && !end.Requeue:
		s.end(id, claim, end)
		for _, run := range claim.Folded {
			id, _ := local.ParseID(run.ID)
			s.end(id, claim, end)
		}
		s.nameSession(claim, end.Session)
	case s.queue.WasRequeued(claim) || ended != nil && claim.Token != "" && ended.endedBy == claim.Token:
		spent = nil // it was done before
	default:
		return nil, engine.ErrClaimLost
	}
	s.ledger.add(spent, s.clock.Now())
	claims := s.claim(next)
	if s.nodes.Shared() && s.queue.Ready(s.clock.Steady()) {
		s.nodes.TellClaimable() // others may have a free worker
	}
	return claims, nil
}

// end ends a run, that of the claim or one that is folded into it.
func (s runs) end(id uuid.UUID, claim *engine.Claim, end engine.End) {
	now := s.clock.Now()
	before := s.runs[id]
	s.queue.Describe(id, &before.Record)
	s.queue.Remove(id)
	if end.Outcome.ForgetsKey() {
		s.forgetKeys(before.Run)
	}
	// Whoever submitted the run may still look at it, so it is not changed.
	ended := &run{endedBy: claim.Token, Record: engine.Record{
		Run: before.Run.Kept(), Status: end.Outcome.Status, Attempts: before.Attempts, StartedAt: before.StartedAt,
		FinishedAt: now, Outcome: end.Outcome, Steps: end.Steps, Questions: s.closeQuestions(id, now), Deliveries: before.Deliveries,
	}}
	if claim.Token != "" {
		ended.Attempts, ended.StartedAt = end.Started(claim)
	}
	claim.NoteFold(&ended.Record)
	if ended.Folded > 0 {
		for _, folded := range claim.Folded {
			follower, _ := local.ParseID(folded.ID)
			ended.followers = append(ended.followers, follower)
		}
	}
	ended.input = s.history.add(id, before.Run, now)
	s.bytes += ended.size() - before.size()
	s.runs[id] = ended
	s.addDeliveries(id, end.DeliveriesOf(claim, before.Run), now)
	s.indexes.end(id, &ended.Record)
	s.noteOver(id)
	s.nodes.TellEnded(before.Run.ID)
}

// noteOver lets a run that has ended be forgotten in time, unless a delivery of it is still pending.
func (d *Data) noteOver(id uuid.UUID) {
	if record := d.runs[id]; record.Status.Ended() && !record.HasPending() {
		d.over.add(record.OverSince(), id)
	}
}

func (s runs) Cancel(_ context.Context, runID, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := local.ParseID(runID); !ok || !s.queue.Cancel(id, by) {
		return engine.ErrNotFound
	}
	return nil
}

func (s runs) Get(_ context.Context, runID string) (*engine.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := local.ParseID(runID)
	if !ok || s.runs[id] == nil {
		return nil, engine.ErrNotFound
	}
	return s.whole(id), nil
}

func (s runs) Unfinished(_ context.Context, runID string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := local.ParseID(runID)
	return ok && s.queue.Has(id), nil
}

func (s runs) Beside(_ context.Context, run *engine.Run, most int) (before, behind []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, behind = s.queue.Beside(run, most)
	return before, behind, nil
}

// whole is a record with the run's input.
func (d *Data) whole(id uuid.UUID) *engine.Record {
	record := d.show(id)
	if input := d.runs[id].input; input != nil {
		record.SetInput(&input.Input)
	}
	for i, d := range record.Deliveries {
		record.Deliveries[i] = d.WithoutBody()
	}
	return record
}

// show returns a copy of a record that can be given away.
func (d *Data) show(id uuid.UUID) *engine.Record {
	record := d.runs[id].Record
	if !record.Status.Ended() {
		d.queue.Describe(id, &record)
	}
	record.Deliveries, record.Questions = slices.Clone(record.Deliveries), slices.Clone(record.Questions)
	return &record
}

func (s runs) Queued(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Size().Queued, nil
}

func (s runs) Backlog(context.Context) (engine.Backlog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Backlog(s.clock.Steady()), nil
}

// Prune forgets old runs, keys and sessions, and the input of runs.
func (s *store) Prune(_ context.Context, limits engine.Limits) (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for range local.PruneStep {
		oldKey := len(s.keyOrder) > 0 && limits.KeyExpired(s.keyOrder[0].AcceptedAt, now)
		if oldKey {
			s.forgetOldestKey()
		}
		oldRun := limits.Retention > 0 && s.forgetOldest(now.Add(-limits.Retention))
		oldSession := limits.Retention > 0 && s.sessions.forgetOldest(s.clock.Steady().Add(-limits.Retention))
		oldEntry := s.ledger.forgetOldest(now)
		old := s.history.next(now, limits)
		if old != nil {
			s.forgetInput(s.runs[old.run])
		}
		oldGate := s.gates.prune(now)
		if !oldKey && !oldRun && !oldSession && !oldEntry && !oldGate && old == nil {
			return false, nil
		}
	}
	return true, nil
}

// forgetOldest forgets the run that was over first, if it was so at a time.
func (d *Data) forgetOldest(at time.Time) bool {
	for {
		id, ok := d.over.take(at)
		if !ok {
			return false
		}
		record := d.runs[id]
		if record == nil || record.HasPending() || record.OverSince().After(at) {
			continue // it has been forgotten, or is noted again
		}
		d.forgetInput(record)
		for _, delivery := range record.Deliveries {
			d.countDead(delivery, -1)
		}
		delete(d.runs, id)
		d.bytes -= record.size()
		d.order.remove(id)
		d.indexes.remove(id, record.Run, record.Status)
		return true
	}
}

// Interface guards
var (
	_ engine.StoreOpener    = (*Memory)(nil)
	_ caddyfile.Unmarshaler = (*Memory)(nil)
)
