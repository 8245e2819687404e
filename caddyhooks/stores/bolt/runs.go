package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) Add(ctx context.Context, added *engine.Run, terms engine.Terms) error {
	added.AcceptedAt = s.clock.Now()
	accepted := s.clock.Steady()
	run := *added // the caller may have gone by the time it is written
	data, told := encodeRun(&run)
	err := s.committer.do(ctx, &change{size: len(data) + len(told), apply: func(t *transaction) (err error) {
		if terms.Settings != s.revision {
			return engine.ErrSettingsChanged
		}
		if run.Key != nil {
			if first := firstWithKey(t, run.Key.ID); first != nil && !terms.Limits.KeyExpired(first.AcceptedAt, t.now) {
				return run.Repeats(first)
			}
		}
		first, err := s.firstOf(t, &run, terms)
		if err != nil {
			return err
		}
		if err := s.queue.Admit(run.ChatID, terms.Limits); err != nil {
			return err
		}
		id, err := s.ids.Next(later(t.now, run.AcceptedAt))
		if err != nil {
			return err
		}
		run.ID = id.String()
		s.noteAhead(t, id, run.AcceptedAt)
		if first != nil {
			t.put(againBucket, first, encodeAgain(first, id))
		}
		t.append(runsBucket, id[:], seal(id[:], data))
		t.scratch = append(t.scratch, data)
		if told != nil {
			t.append(toldBucket, id[:], seal(id[:], told))
		}
		if run.Key != nil {
			s.putKey(t, id, &run, terms.Limits)
		}
		t.undo = append(t.undo, s.queue.Push(local.EntryOf(id, &run, accepted)))
		if run.Sync {
			s.awaited[id] = &run
			t.undo = append(t.undo, func() { delete(s.awaited, id) })
		}
		return nil
	}})
	if err == nil {
		added.ID = run.ID
	}
	return err
}

// later is the later of two times. The id of a run is not older than its time of acceptance, also if somebody sets the clock
// back in between: queries rely on it.
func later(a, b time.Time) time.Time {
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
		t.put(startsBucket, c.ID[:], encodeStarts(c.Attempt))
		if run := d.awaited[c.ID]; run != nil {
			ch.claimed = append(ch.claimed, storedRun{run: run})
		} else {
			ch.claimed = append(ch.claimed, copyRun(t, c.ID))
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
	for i, c := range ch.claims {
		run, err := ch.claimed[i].read(c.ID)
		if err != nil {
			s.mu.Lock()
			s.queue.Unclaim(ch.claims)
			s.mu.Unlock()
			return nil, s.breakDown(fmt.Errorf("reading run %s: %w", c.ID, err), nil)
		}
		claims = append(claims, c.Claim(run, s.nodes.Awaits(run, s.node, now)))
	}
	return claims, nil
}

func (s runs) Renew(_ context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim, cancelled []engine.Cancellation, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.clock.Steady().Add(lease)
	s.node.KeepAlive(until)
	lost, cancelled = s.queue.Renew(claims, until)
	return lost, cancelled, nil
}

func (s runs) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	ch := &change{claim: next, node: s.node}
	if end.Requeue {
		ch.apply = func(t *transaction) error { return s.requeue(t, claim, end) }
		ch.size = len(end.Session.ID)
	} else {
		record := s.ended(claim, end)
		var data []byte
		if claim.Token != "" { // otherwise how often it was started is only known when it ends
			data = encodeEnded(record, claim.Token)
		}
		ch.size = len(data) + len(end.Session.ID)
		for _, d := range end.Deliveries {
			ch.size += len(d.Body)
		}
		ch.apply = func(t *transaction) error { return s.end(t, claim, record, data, end.Session) }
	}
	if err := s.committer.do(ctx, ch); err != nil {
		return nil, err
	}
	claims, _ := s.claimsOf(ch) // the end is stored, and that is what was asked for
	return claims, nil
}

// ended is the record of a run that ends now.
func (s runs) ended(claim *engine.Claim, end engine.End) *engine.Record {
	now := s.clock.Now()
	record := &engine.Record{Run: claim.Run, Status: end.Outcome.Status, FinishedAt: now, Outcome: end.Outcome, Steps: end.Steps}
	if claim.Token != "" {
		record.Attempts, record.StartedAt = end.Started(claim)
	}
	for _, d := range end.Deliveries {
		record.Deliveries = append(record.Deliveries, d.Created(now))
	}
	return record
}

// end moves a run to the ended ones, and keeps what it was told.
func (s runs) end(t *transaction, claim *engine.Claim, record *engine.Record, data []byte, session engine.Session) error {
	id, ok := s.queue.Holds(claim)
	if !ok {
		return s.repeated(t, id, claim)
	}
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
	s.keepTold(t, id, record.Run)
	if key := record.Run.Key; key != nil && record.Outcome.ForgetsKey() {
		s.deleteKey(t, id, key.ID[:])
	}
	for _, d := range record.Deliveries {
		key := local.NewDeliveryKey(id, d.Index)
		t.append(outboxBucket, key[:], seal(key[:], encodeDelivery(d)))
		t.after = append(t.after, func() { s.outbox.Add(d.Destination(), key, t.steady) })
	}
	if record.Run.IsRecalled(record.Outcome.Status) {
		t.addTurn(record.Run.ChatID, id)
	}
	t.nameSession(record.Run.ChatID, session)
	place.Run = record.Run
	s.ending[id] = place
	t.undo = append(t.undo, s.queue.Remove(id), func() { delete(s.ending, id) })
	t.after = append(t.after, func() {
		delete(s.ending, id)
		delete(s.awaited, id)
		s.nodes.TellEnded(record.Run.ID)
		if len(record.Deliveries) > 0 {
			s.nodes.TellDue()
		}
	})
	return nil
}

// requeue puts a run back to the head of its chat.
func (s runs) requeue(t *transaction, claim *engine.Claim, end engine.End) error {
	id, ok := s.queue.Holds(claim)
	if !ok || claim.Token == "" {
		return s.repeated(t, id, claim)
	}
	if claim.Attempt > 1 {
		t.put(startsBucket, id[:], encodeStarts(claim.Attempt-1))
	} else {
		t.delete(startsBucket, id[:])
	}
	t.nameSession(claim.Run.ChatID, end.Session)
	t.undo = append(t.undo, s.queue.Requeue(id, end, t.steady))
	if wait, waits := s.queue.WaitOf(id); waits && end.WaitingFor != "" {
		wait.Due = t.now.Add(end.Pause)
		t.put(waitsBucket, id[:], seal(id[:], encodeWait(wait)))
	}
	return nil
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
			data := tx.Bucket(runsBucket).Get(id[:])
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
			if data = tx.Bucket(runsBucket).Get(id[:]); data == nil {
				return engine.ErrNotFound
			}
		}
		if record, err = decodeRun(id, data); err != nil {
			return fmt.Errorf("reading run %s: %w", runID, err)
		}
		if !ended {
			record.Status, record.Attempts, record.StartedAt, record.WaitingFor = place.Status, place.Attempts, place.StartedAt, place.WaitingFor
		}
		_, err = complete(tx, id, record, data, everything)
		return err
	})
	if err != nil {
		return nil, err
	}
	return record, nil
}
