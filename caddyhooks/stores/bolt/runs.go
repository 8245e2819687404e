package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/ledger"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) Add(ctx context.Context, added *engine.Run, terms engine.Terms) error {
	return s.AddAll(ctx, []*engine.Run{added}, terms)
}

func (s runs) AddAll(ctx context.Context, added []*engine.Run, terms engine.Terms) error {
	_, err := s.AddAndClaim(ctx, added, terms, engine.Batch{})
	return err
}

func (s runs) AddAndClaim(ctx context.Context, added []*engine.Run, terms engine.Terms, batch engine.Batch) ([]*engine.Claim, error) {
	if len(added) == 0 {
		return nil, nil
	}
	a := newAddition(len(added))
	a.accepted = s.clock.Steady()
	now, size := s.clock.Now(), 0
	for i := range added {
		run := *added[i] // the caller may have gone by the time it is written
		run.AcceptedAt = now
		a.runs[i] = &run
		if isWhole(&run) {
			a.encoded[i].data, a.encoded[i].input = encodeRun(&run)
			size += len(a.encoded[i].data) + len(a.encoded[i].input)
		} else {
			size += scratchSize + len(run.Message)
		}
	}
	ch := &change{size: size, claim: batch, node: s.node, apply: func(t *transaction) error { return s.add(t, a, terms) }}
	if err := s.committer.do(ctx, ch); err != nil {
		return nil, err
	}
	for i, run := range local.Passed(&a.passage, added) {
		*run = *a.runs[i]
	}
	claims, _ := s.claimsOf(ch) // the runs are stored, and that is what was asked for
	return claims, nil
}

// addition is runs of one request that are to be stored.
type addition struct {
	runs     []*engine.Run
	encoded  []encodedRun
	ids      []uuid.UUID
	accepted time.Time // by Clock.Steady
	passage  local.Passage

	// Most requests are for one run.
	one struct {
		run     [1]*engine.Run
		encoded [1]encodedRun
		id      [1]uuid.UUID
	}
}

func newAddition(n int) *addition {
	a := new(addition)
	if n == 1 {
		a.runs, a.encoded, a.ids = a.one.run[:], a.one.encoded[:], a.one.id[:]
	} else {
		a.runs, a.encoded, a.ids = make([]*engine.Run, n), make([]encodedRun, n), make([]uuid.UUID, n)
	}
	return a
}

// encodedRun is a run as encodeRun writes it, and nothing if it has to wait for its id.
type encodedRun struct{ data, input []byte }

// isWhole reports whether a run can be written down before it has its id. Most can, and the committer has enough to do.
func isWhole(run *engine.Run) bool { return run.IDPlaceholder == "" && run.Together == nil }

// add stores runs, all or none.
func (s runs) add(t *transaction, a *addition, terms engine.Terms) error {
	if terms.Settings != s.revision {
		return engine.ErrSettingsChanged
	}
	if err := repeats(t, a.runs[0], terms.Limits); err != nil {
		return err
	}
	if !local.HasGates(a.runs) && terms.Refuse != nil {
		return terms.Refuse
	}
	again, err := s.firstOf(t, a.runs[0], terms)
	if err != nil {
		return err
	}
	for i, run := range a.runs {
		if a.ids[i], err = s.ids.Next(laterTime(t.now, run.AcceptedAt)); err != nil {
			return err
		}
		run.ID = a.ids[i].String()
		run.FillID()
	}
	if local.HasGates(a.runs) {
		if err := s.passGates(t, a, terms.Refuse); err != nil {
			return err
		}
	}
	ids := a.ids
	if err := s.queue.Admit(a.runs, terms.Limits); err != nil {
		return err
	}
	local.JoinSiblings(a.runs)
	if again != nil {
		t.put(againBucket, again, encodeAgain(again, ids[0]))
	}
	for i, run := range a.runs {
		s.addOne(t, ids[i], run, a.encoded[i], a.accepted)
	}
	s.putKeys(t, ids[0], a.runs[0], terms.Limits)
	for id, state := range a.passage.States {
		t.note(gates.Put(t.tx, id, state, t.now, gate.MaxGates))
	}
	return nil
}

// addOne stores a run.
func (s runs) addOne(t *transaction, id uuid.UUID, run *engine.Run, encoded encodedRun, accepted time.Time) {
	if encoded.data == nil || run.Together != nil {
		encoded.data, encoded.input = encodeRun(run)
	}
	s.noteAhead(t, id, run.AcceptedAt)
	t.append(runsBucket, id[:], seal(id[:], encoded.data))
	if run.RequestID != "" {
		t.put(byRequestBucket, indexKey(run.RequestID, id), nil)
	}
	t.scratch = append(t.scratch, encoded.data)
	if encoded.input != nil {
		t.append(inputBucket, id[:], seal(id[:], encoded.input))
	}
	t.undo = append(t.undo, s.queue.Push(local.EntryOf(id, run, accepted)))
	if run.Sync {
		s.awaited[id] = run
		t.undo = append(t.undo, func() { delete(s.awaited, id) })
	}
}

// laterTime is the later of two times. The id of a run is not older than its time of acceptance, also if somebody sets the clock
// back in between: queries rely on it.
func laterTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (s runs) Claim(ctx context.Context, batch engine.Batch) (claims []*engine.Claim, wait time.Duration, err error) {
	s.mu.Lock()
	idle := !s.queue.ReadyFor(batch, s.clock.Steady())
	wait = s.queue.UntilDue(s.clock.Steady())
	s.mu.Unlock()
	if idle {
		return nil, wait, nil
	}
	ch := &change{claim: batch, node: s.node}
	if err := s.committer.do(ctx, ch); err != nil {
		return nil, 0, err
	}
	claims, err = s.claimsOf(ch)
	return claims, wait, err
}

// claim takes runs from the queue for a change, and writes down that they are started.
func (d *Database) claim(t *transaction, ch *change) {
	claimed, undo := d.queue.Claim(ch.node, ch.claim, t.steady, t.now)
	t.undo = append(t.undo, undo)
	for _, c := range claimed {
		for id := range c.Runs {
			t.put(startsBucket, id[:], encodeStarts(c.Attempt))
			var stored storedRun
			if run := d.awaited[id]; run != nil {
				stored.run = run
			} else {
				stored = copyRun(t, id)
			}
			if d.queue.HasAsked(id) {
				stored.questions = copyQuestions(t, id)
			}
			ch.claimed = append(ch.claimed, stored)
		}
	}
	ch.claims = claimed
}

func encodeStarts(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// claimsOf makes claims of what a change has claimed. If that fails then it is claimed no more. A file with an unfinished run
// that is damaged would be refused when it is opened again, so nothing more is added to it.
func (s runs) claimsOf(ch *change) ([]*engine.Claim, error) {
	var claims []*engine.Claim
	now := s.clock.Steady()
	stored := ch.claimed
	for _, c := range ch.claims {
		var claim *engine.Claim
		for id := range c.Runs {
			run, err := stored[0].read(id)
			var questions []*engine.Question
			if err == nil {
				questions, err = stored[0].questions.read()
			}
			stored = stored[1:]
			if err != nil {
				s.mu.Lock()
				s.queue.Unclaim(ch.claims)
				s.mu.Unlock()
				return nil, s.breakDown(fmt.Errorf("reading run %s: %w", id, err), nil)
			}
			if claim == nil {
				claim = c.Claim(run, s.nodes.Awaits(run, s.node, now))
				claim.Questions = c.Questions(questions)
			} else {
				claim.Folded = append(claim.Folded, run)
			}
		}
		claims = append(claims, claim)
	}
	return claims, nil
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

func (s runs) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	ch := &change{claim: next, node: s.node}
	if end.Requeue && end.Question != nil {
		ch.apply = func(t *transaction) error { return s.putAside(t, claim, end) }
		ch.size = len(end.Session.ID) + sizeOf(end.Question, end.Deliveries)
	} else if end.Requeue {
		ch.apply = func(t *transaction) error { return s.requeue(t, claim, end) }
		ch.size = len(end.Session.ID)
	} else {
		ends := []ending{s.ended(claim, claim.Run, end)}
		for _, run := range claim.Folded {
			ends = append(ends, s.ended(claim, run, end))
		}
		ch.size = len(end.Session.ID) + sizeOf(nil, end.Deliveries)
		for i := range ends {
			ch.size += len(ends[i].data)
		}
		ch.apply = func(t *transaction) error { return s.endAll(t, claim, ends, end.Session) }
	}
	if len(end.Spent) > 0 {
		ch.apply = s.spending(ch.apply, claim, end.Spent)
	}
	if err := s.committer.do(ctx, ch); err != nil {
		return nil, err
	}
	claims, _ := s.claimsOf(ch) // the end is stored, and that is what was asked for
	return claims, nil
}

// spending is what a change does, and what the run has spent is added to the ledger, unless that was done before.
func (s runs) spending(apply func(*transaction) error, claim *engine.Claim, spent []engine.LedgerEntry) func(*transaction) error {
	return func(t *transaction) error {
		_, holds := s.queue.Holds(claim)
		err := apply(t)
		if holds && err == nil {
			t.note(ledger.Add(t.tx, spent, t.now))
		}
		return err
	}
}

// Spent reads the ledger.
func (s ledgers) Spent(ctx context.Context, prefix string, within time.Duration) (entries []engine.LedgerEntry, now time.Time, err error) {
	now = s.clock.Now()
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		entries = ledger.Spent(tx, prefix, now.Add(-within))
		return nil
	})
	return entries, now, err
}

// ending is the record of a run that ends, and the same as it is in the file.
type ending struct {
	*engine.Record
	data []byte
}

// ended is the record of a run that ends now, that of the claim or one that is folded into it.
func (s runs) ended(claim *engine.Claim, run *engine.Run, end engine.End) ending {
	now := s.clock.Now()
	record := &engine.Record{Run: run, Status: end.Outcome.Status, FinishedAt: now, Outcome: end.Outcome, Steps: end.Steps}
	claim.NoteFold(record)
	record.Deliveries = created(end.DeliveriesOf(claim, run), now)
	if claim.Token == "" {
		return ending{Record: record} // how often it was started is only known when it ends
	}
	record.Attempts, record.StartedAt = end.Started(claim)
	return ending{record, encodeEnded(record, claim.Token, claim.Folded...)}
}

// endAll ends the run of a claim and those that are folded into it.
func (s runs) endAll(t *transaction, claim *engine.Claim, ends []ending, session engine.Session) error {
	id, ok := s.queue.Holds(claim)
	if !ok {
		return s.repeated(t, id, claim)
	}
	for _, end := range ends {
		id, _ := local.ParseID(end.Run.ID)
		s.end(t, id, end.Record, end.data)
	}
	t.nameSession(claim.Run.ChatID, session)
	return nil
}

// end moves a run to the ended ones, and keeps its input.
func (s runs) end(t *transaction, id uuid.UUID, record *engine.Record, data []byte) {
	var place engine.Record
	s.queue.Describe(id, &place)
	if data == nil {
		record.Attempts = place.Attempts
		data = encodeEnded(record, "")
	}
	t.delete(runsBucket, id[:])
	t.delete(startsBucket, id[:])
	if _, waited := s.queue.WaitOf(id); waited {
		t.delete(waitsBucket, id[:])
	}
	t.append(endedBucket, id[:], seal(id[:], data))
	t.scratch = append(t.scratch, data)
	if !s.withoutIndexes {
		s.index(t, id)
	}
	s.keepInput(t, id, record.Run)
	if record.Outcome.ForgetsKey() && len(record.Run.Together) < 2 { // a request that became several runs has an answer
		s.deleteKeys(t, id)
	}
	s.addDeliveries(t, id, record.Deliveries)
	if s.queue.HasAsked(id) {
		s.closeQuestions(t, id, record.FinishedAt)
	}
	if record.IsPastTurn() {
		t.addTurn(record.Run.ChatID, id)
	}
	place.Run = record.Run
	s.ending[id] = place
	t.undo = append(t.undo, s.queue.Remove(id), func() { delete(s.ending, id) })
	t.after = append(t.after, func() {
		delete(s.ending, id)
		delete(s.awaited, id)
		s.nodes.TellEnded(record.Run.ID)
	})
}

// requeue puts a run back to the head of its chat.
func (s runs) requeue(t *transaction, claim *engine.Claim, end engine.End) error {
	id, ok := s.queue.Holds(claim)
	if !ok || claim.Token == "" {
		return s.repeated(t, id, claim)
	}
	if !end.Interrupted {
		s.takeBackStart(t, id, claim.Attempt)
		for _, run := range claim.Folded {
			folded, _ := local.ParseID(run.ID)
			s.takeBackStart(t, folded, claim.Attempt)
		}
	} else if _, waited := s.queue.WaitOf(id); waited {
		t.delete(waitsBucket, id[:])
	}
	t.nameSession(claim.Run.ChatID, end.Session)
	t.undo = append(t.undo, s.queue.Requeue(id, end, t.steady))
	if wait, waits := s.queue.WaitOf(id); waits && end.WaitingFor != "" {
		wait.Due = t.now.Add(end.Pause)
		t.put(waitsBucket, id[:], seal(id[:], encodeWait(wait)))
	}
	if s.queue.HasAsked(id) {
		s.putAsked(t, id)
	}
	return nil
}

// takeBackStart writes down that a start does not count.
func (s runs) takeBackStart(t *transaction, id uuid.UUID, attempt int) {
	if attempt > 1 {
		t.put(startsBucket, id[:], encodeStarts(attempt-1))
	} else {
		t.delete(startsBucket, id[:])
	}
}

func (s runs) Resume(ctx context.Context, runners ...string) error {
	s.mu.Lock()
	none := s.queue.Size().Waits == 0
	s.mu.Unlock()
	if none {
		return nil
	}
	return s.committer.do(ctx, &change{apply: func(t *transaction) error {
		resumed, undo := s.queue.Resume(runners)
		t.undo = append(t.undo, undo)
		for _, id := range resumed {
			t.delete(waitsBucket, id[:])
		}
		return nil
	}})
}

func (s runs) Overdue(ctx context.Context, most int) ([]*engine.Run, time.Duration, error) {
	s.mu.Lock()
	ids, wait := s.queue.Overdue(s.clock.Steady(), most)
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil, wait, nil
	}
	var overdue []*engine.Run
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		for _, id := range ids {
			data := unfinishedData(tx, id[:])
			if data == nil {
				continue // it has ended since
			}
			record, err := readRun(tx, id, data)
			if err != nil {
				return fmt.Errorf("reading run %s: %w", id, err)
			}
			overdue = append(overdue, record.Run)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return overdue, wait, nil
}

// repeated returns nil if a claim does not hold because its run was ended or requeued under this very claim.
func (s runs) repeated(t *transaction, id uuid.UUID, claim *engine.Claim) error {
	if claim.Token == "" {
		return engine.ErrClaimLost
	}
	if s.queue.WasRequeued(claim) {
		return nil
	}
	same := false
	_ = fieldsOf(id[:], t.bucket(endedBucket).Get(id[:]), func(n protowire.Number, f field) bool {
		same = same || n == endToken && f.text() == claim.Token
		return !same
	})
	if !same {
		return engine.ErrClaimLost
	}
	return nil
}

func (s runs) Cancel(_ context.Context, runID, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := local.ParseID(runID); !ok || !s.queue.Cancel(id, by) {
		return engine.ErrNotFound
	}
	return nil
}

// describe fills in where a run is that has not ended, and reports false if it has, or never was.
func (d *Database) describe(id uuid.UUID, record *engine.Record) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	place, ending := d.ending[id]
	if !ending {
		if !d.queue.Has(id) {
			return false
		}
		d.queue.Describe(id, &place)
	}
	record.Status, record.Attempts, record.StartedAt, record.WaitingFor = place.Status, place.Attempts, place.StartedAt, place.WaitingFor
	return true
}

func (s runs) Unfinished(_ context.Context, runID string) (bool, error) {
	if err := s.whenBroken(); err != nil {
		return false, err
	}
	id, ok := local.ParseID(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ending := s.ending[id]
	return ok && (ending || s.queue.Has(id)), nil
}

func (s runs) Beside(_ context.Context, run *engine.Run, most int) (before, behind []string, err error) {
	if err := s.whenBroken(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, behind = s.queue.Beside(run, most)
	return before, behind, nil
}

func (s runs) Queued(context.Context) (int, error) {
	if err := s.whenBroken(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Size().Queued, nil
}

func (s runs) Backlog(context.Context) (engine.Backlog, error) {
	if err := s.whenBroken(); err != nil {
		return engine.Backlog{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Backlog(s.clock.Steady()), nil
}

func (s runs) Get(ctx context.Context, runID string) (*engine.Record, error) {
	id, ok := local.ParseID(runID)
	if !ok {
		return nil, engine.ErrNotFound
	}
	var record *engine.Record
	var place engine.Record
	s.describe(id, &place) // first: if it ends before we look, it is found among those that have ended
	err := s.view(ctx, func(tx *bbolt.Tx) (err error) {
		data := tx.Bucket(endedBucket).Get(id[:])
		ended := data != nil
		if !ended {
			if data = unfinishedData(tx, id[:]); data == nil {
				return engine.ErrNotFound
			}
		}
		if record, err = decodeRun(id, data); err != nil {
			return fmt.Errorf("reading run %s: %w", runID, err)
		}
		if !ended {
			record.Status, record.Attempts, record.StartedAt, record.WaitingFor = place.Status, place.Attempts, place.StartedAt, place.WaitingFor
		}
		if _, err = complete(tx, id, record, data, wholeRecords); err == nil {
			record.Questions, err = questionsOf(tx, id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	isOpen := func(q *engine.Question) bool { return q.Answer == nil }
	if record.Status == engine.Waiting && !slices.ContainsFunc(record.Questions, isOpen) {
		// It is being put aside, and its question is not in the file yet.
		if err := s.committer.do(ctx, &change{apply: func(*transaction) error { return nil }}); err != nil {
			return nil, err
		}
		return s.Get(ctx, runID)
	}
	return record, nil
}
