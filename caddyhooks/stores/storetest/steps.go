package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// add stores runs that must be taken.
func (s *store) add(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		s.addWithin(engine.Limits{}, run)
	}
}

// addWithin stores a run that must be taken under these limits.
func (s *store) addWithin(limits engine.Limits, run *engine.Run) {
	s.t.Helper()
	if err := s.tryAdd(run, limits); err != nil {
		s.t.Fatalf("adding a run of chat %.40q with limits %+v: %v", run.ChatID, limits, err)
	}
	s.isNow("AcceptedAt", run.AcceptedAt)
}

// tryAdd adds a run under the settings that are in force if none were saved.
func (s *store) tryAdd(run *engine.Run, limits engine.Limits) error {
	return s.Runs().Add(s.t.Context(), run, engine.Terms{Limits: limits})
}

// addTo stores a run for every chat named, in that order.
func (s *store) addTo(chats ...string) []*engine.Run {
	s.t.Helper()
	var runs []*engine.Run
	for _, chat := range chats {
		runs = append(runs, newRun(chat))
	}
	s.add(runs...)
	return runs
}

// refuse tries to add a run, and expects that a limit is in the way.
func (s *store) refuse(run *engine.Run, limits engine.Limits, want error) {
	s.t.Helper()
	if err := s.tryAdd(run, limits); !errors.Is(err, want) {
		s.t.Errorf("adding a run of chat %q with limits %+v: got %v, want %v", run.ChatID, limits, err, want)
	}
}

const (
	longLease  = 100_000 * time.Hour // is over in no check
	shortLease = time.Minute
)

// upTo is a batch of runs that stay claimed for longer than any check lasts.
func upTo(runs int) engine.Batch { return engine.Batch{Max: runs, Lease: longLease} }

// claim takes up to n runs.
func (s *store) claim(n int) []*engine.Claim {
	s.t.Helper()
	return s.claimFor(longLease, n)
}

// claimFor takes up to n runs for a lease.
func (s *store) claimFor(lease time.Duration, n int) []*engine.Claim {
	s.t.Helper()
	claims, _, err := s.Runs().Claim(s.t.Context(), engine.Batch{Max: n, Lease: lease})
	if err != nil {
		s.t.Fatalf("claiming: %v", err)
	}
	s.areNew(claims)
	return claims
}

// areNew expects claims that were just made.
func (s *store) areNew(claims []*engine.Claim) {
	s.t.Helper()
	for _, claim := range claims {
		if !s.tokens.isNew(claim.Token) {
			s.t.Errorf("run %s was claimed with token %q, which is none or was used before", claim.Run.ID, claim.Token)
		}
		s.isNow("StartedAt", claim.StartedAt)
		s.lasted("Waited", claim.Waited, claim.StartedAt.Sub(claim.Run.AcceptedAt))
	}
}

// claimAll takes all runs that can be had, and expects them to be these.
func (s *store) claimAll(runs ...*engine.Run) []*engine.Claim {
	s.t.Helper()
	claims := s.claim(len(runs) + 10)
	s.sameRuns("claimed", claims, runs...)
	return claims
}

// claimFirst takes one run, and expects it to be this one.
func (s *store) claimFirst(run *engine.Run) *engine.Claim {
	s.t.Helper()
	claims := s.claim(1)
	s.sameRuns("claimed", claims, run)
	return claims[0]
}

// claimThrough takes the runs of one chat, one after the other, and expects them to be these, and no more.
func (s *store) claimThrough(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		s.end(s.claimFirst(run), ended())
	}
	s.claimAll()
}

// sameRuns expects claims of these runs, in any order.
func (s *store) sameRuns(verb string, claims []*engine.Claim, runs ...*engine.Run) {
	s.t.Helper()
	got, want := make([]string, 0, len(claims)), make([]string, 0, len(runs))
	for _, claim := range claims {
		got = append(got, claim.Run.ID)
	}
	for _, run := range runs {
		want = append(want, run.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Fatalf("%s %v, want %v", verb, got, want)
	}
}

// abandon claims a run, which must be the next one, and lets the lease pass.
func (s *store) abandon(run *engine.Run) (old *engine.Claim) {
	s.t.Helper()
	claims := s.claimFor(shortLease, 1)
	s.sameRuns("claimed", claims, run)
	s.advance(shortLease + slack)
	return claims[0]
}

// reclaim waits until a run whose lease is over is handed out again.
func (s *store) reclaim(run *engine.Run) *engine.Claim {
	s.t.Helper()
	return s.reclaimFor(longLease, run)
}

func (s *store) reclaimFor(lease time.Duration, run *engine.Run) *engine.Claim {
	s.t.Helper()
	var claims []*engine.Claim
	eventually(s.t, "the run is handed out again", func() bool {
		claims = s.claimFor(lease, 1)
		return len(claims) > 0
	})
	s.sameRuns("claimed", claims, run)
	return claims[0]
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for this in vain: %s", condition)
		}
	}
}

// patience is how long a step may take that should not take long.
const patience = 30 * time.Second

// end ends a claimed run.
func (s *store) end(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	if next := s.endAnd(claim, end, engine.Batch{}); len(next) > 0 {
		s.t.Fatalf("ending run %s claimed %d runs that nobody asked for", claim.Run.ID, len(next))
	}
}

// endAnd ends a claimed run and claims others.
func (s *store) endAnd(claim *engine.Claim, end engine.End, next engine.Batch) []*engine.Claim {
	s.t.Helper()
	claims, err := s.Runs().End(s.t.Context(), claim, end, next)
	if err != nil {
		s.t.Fatalf("ending run %s: %v", claim.Run.ID, err)
	}
	s.areNew(claims)
	return claims
}

// carryOut adds a run to a chat that has none, claims it and ends it.
func (s *store) carryOut(run *engine.Run, end engine.End) {
	s.t.Helper()
	s.add(run)
	s.end(s.claimFirst(run), end)
}

// requeue puts a claimed run back.
func (s *store) requeue(claim *engine.Claim) {
	s.t.Helper()
	s.end(claim, engine.End{Requeue: true})
}

// queued is the claim by which a run is ended that nobody has claimed.
func queued(run *engine.Run) *engine.Claim { return &engine.Claim{Run: run} }

// endQueued ends a run that nobody has claimed.
func (s *store) endQueued(run *engine.Run, end engine.End) {
	s.t.Helper()
	s.end(queued(run), end)
}

// isLost expects that a claim does not hold any more, whatever is done with it, and that this changes nothing.
func (s *store) isLost(claim *engine.Claim) {
	s.t.Helper()
	id := claim.Run.ID
	before := s.get(id)
	late := ended()
	late.Outcome.Text = "too late"
	late.Deliveries = []*engine.Delivery{newDelivery(claim.Run, 0)}
	s.endsNothing(claim, late)
	s.endsNothing(claim, engine.End{Requeue: true})
	s.notRenewed(claim)
	same(s.t, "the run of a lost claim", s.get(id), before)
	s.noneDue()
}

// endsNothing expects End to say that a claim is lost.
func (s *store) endsNothing(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	next, err := s.Runs().End(s.t.Context(), claim, end, upTo(10))
	if !errors.Is(err, engine.ErrClaimLost) {
		s.t.Errorf("ending with a claim that does not hold (requeue: %v): got %v, want ErrClaimLost", end.Requeue, err)
	}
	s.sameRuns("an End that did nothing claimed", next)
}

// notRenewed expects Renew to say that a claim is lost.
func (s *store) notRenewed(claim *engine.Claim) {
	s.t.Helper()
	lost, cancelled := s.renew(longLease, claim)
	if len(lost) != 1 || lost[0] != claim || len(cancelled) > 0 {
		s.t.Errorf("renewing a claim that does not hold: got %v lost and %v cancelled, want the claim lost", lost, cancelled)
	}
}

// renew lets claims hold for another lease.
func (s *store) renew(lease time.Duration, claims ...*engine.Claim) (lost, cancelled []*engine.Claim) {
	s.t.Helper()
	lost, wishes, err := s.Runs().Renew(s.t.Context(), claims, lease)
	for _, wish := range wishes {
		cancelled = append(cancelled, wish.Claim)
	}
	if err != nil {
		s.t.Fatalf("renewing %d claims: %v", len(claims), err)
	}
	return lost, cancelled
}

// holds expects that claims are renewed, and that nobody wants their runs to be cancelled.
func (s *store) holds(lease time.Duration, claims ...*engine.Claim) {
	s.t.Helper()
	if lost, cancelled := s.renew(lease, claims...); len(lost) > 0 || len(cancelled) > 0 {
		s.t.Errorf("renewing %d claims: %d are lost and %d cancelled, want none", len(claims), len(lost), len(cancelled))
	}
}

func (s *store) get(id string) *engine.Record {
	s.t.Helper()
	record, err := s.Runs().Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatalf("getting run %s: %v", id, err)
	}
	return record
}

// gone expects that a run is not known.
func (s *store) gone(id string) {
	s.t.Helper()
	if record, err := s.Runs().Get(s.t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
		s.t.Errorf("getting run %.80q: got %+v and %v, want ErrNotFound", id, record, err)
	}
	s.unfinished(id, false)
}

// status expects a run to have a status and a number of attempts.
func (s *store) status(run *engine.Run, status engine.Status, attempts int) {
	s.t.Helper()
	if record := s.get(run.ID); record.Status != status || record.Attempts != attempts {
		s.t.Errorf("run %s is %s after %d attempts, want %s after %d", run.ID, record.Status, record.Attempts, status, attempts)
	}
	s.unfinished(run.ID, !status.Ended())
}

// unfinished expects that a run has not ended, or that it has, or is not known.
func (s *store) unfinished(id string, want bool) {
	s.t.Helper()
	if got, err := s.Runs().Unfinished(s.t.Context(), id); err != nil || got != want {
		s.t.Errorf("run %.80q is unfinished: got %v and %v, want %v", id, got, err, want)
	}
}

// recordOf is the record that is expected of a run that has just ended under a claim. CreatedAt and Due of the deliveries
// that are passed in are set to the moment of the end.
func (s *store) recordOf(run *engine.Run, claim *engine.Claim, end engine.End) *engine.Record {
	s.t.Helper()
	now := s.get(run.ID).FinishedAt
	s.isNow("FinishedAt", now)
	kept := *run
	record := &engine.Record{Run: &kept, Kept: engine.KeptWhole, Status: end.Outcome.Status, FinishedAt: now, Outcome: end.Outcome, Steps: end.Steps}
	if run.History == 0 {
		kept.Message, kept.Metadata, kept.Schema = "", nil, nil
		record.Kept = engine.KeptNothing
	}
	if claim.Token != "" {
		record.Attempts, record.StartedAt = claim.Attempt, claim.StartedAt
	}
	for _, d := range end.Deliveries {
		d.CreatedAt, d.Due = now, now
		listed := *d
		listed.Body = ""
		record.Deliveries = append(record.Deliveries, &listed)
	}
	return record
}

// allPages collects the pages of a list, each of which has no more than limit.
func allPages[T any](t *testing.T, limit int, list func(cursor string) (page []T, next string, err error)) (all []T) {
	t.Helper()
	cursor := ""
	for range 100_000 {
		page, next, err := list(cursor)
		if err != nil {
			t.Fatalf("listing: %v", err)
		}
		if len(page) > limit {
			t.Fatalf("a page has %d of at most %d", len(page), limit)
		}
		if all = append(all, page...); next == "" {
			return all
		}
		cursor = next
	}
	t.Fatal("the list does not come to an end")
	return nil
}

// list collects all pages of a query. Limit may be left out.
func (s *store) list(query engine.Query) []*engine.Record {
	s.t.Helper()
	query.Limit = cmp.Or(query.Limit, 1000)
	return allPages(s.t, query.Limit, func(cursor string) ([]*engine.Record, string, error) {
		query.Cursor = cmp.Or(cursor, query.Cursor)
		return s.Runs().List(s.t.Context(), query)
	})
}

// lists expects a query to find these runs, which are given the oldest first.
func (s *store) lists(query engine.Query, runs ...*engine.Run) {
	s.t.Helper()
	got, want := []string{}, []string{}
	for _, record := range s.list(query) {
		got = append(got, record.Run.ID)
	}
	for _, run := range slices.Backward(runs) {
		want = append(want, run.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("listing %+v: got %v, want %v", query, got, want)
	}
}

// prune forgets everything that can be forgotten, and expects that this comes to an end.
func (s *store) prune(limits engine.Limits) {
	s.t.Helper()
	for range 10_000 {
		more, err := s.Prune(s.t.Context(), limits)
		if err != nil {
			s.t.Fatalf("pruning: %v", err)
		}
		if !more {
			return
		}
	}
	s.t.Fatal("pruning does not come to an end")
}
