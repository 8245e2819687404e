package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var endChecks = []check{
	{"a requeue claims other runs too", requeueClaimsOthers},
	{"an end that is repeated does nothing", repeatedEnd},
	{"an end that is repeated does not free a key again", repeatedEndLeavesKeys},
	{"a start that was not used does not count", unusedStart},
	{"the store says when a run ended", endedNow},
	{"a run that was given back can be ended", givenBackIsEnded},
	{"a failed call changes nothing", cancelledContext},
}

// The requeued run can be claimed like any other. Whether the same call claims it again is left open.
func requeueClaimsOthers(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	claim := s.claimFirst(runs[0])
	others := s.addTo("b", "c")
	next := s.endAnd(claim, engine.End{Requeue: true}, upTo(10))
	if len(next) == 2 {
		next = append(next, s.claimFirst(runs[0]))
	}
	s.sameRuns("claimed", next, runs[0], others[0], others[1])
	s.claimAll()
	s.holds(longLease, next...)
	if i := slices.IndexFunc(next, func(c *engine.Claim) bool { return c.Run.ID == runs[0].ID }); next[i].Attempt != 1 {
		t.Errorf("claimed for attempt %d, want 1", next[i].Attempt)
	}
}

// isRepeated expects an End with a token by which the run was ended before to return nil, and to change nothing.
func (s *store) isRepeated(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	before := s.get(claim.Run.ID)
	s.end(claim, end)
	same(s.t, "the run of an End that was repeated", s.get(claim.Run.ID), before)
}

func repeatedEnd(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	claim := s.claimFirst(runs[0])
	end := endedWith(newDelivery(runs[0], 0), newDelivery(runs[0], 1))
	s.end(claim, end)
	want := s.recordOf(runs[0], claim, end)
	s.advance(time.Hour)
	s.isRepeated(claim, end)
	same(t, "the run", s.get(runs[0].ID), want)

	// Its deliveries are there once, whatever the second End says and whatever has become of them.
	other := endedAs(engine.Failed, engine.RunnerFailed)
	other.Deliveries = []*engine.Delivery{newDelivery(runs[0], 0), newDelivery(runs[0], 1), newDelivery(runs[0], 2)}
	s.isRepeated(claim, other)
	got := s.handsOut(10, end.Deliveries, notATime)
	s.isRepeated(claim, other)
	s.noneDue()
	s.settle(got[0], engine.Delivered, 0, "")
	s.settle(got[1], engine.Dead, 0, "gone")
	s.drop(got[1])
	s.isRepeated(claim, end)
	s.isRepeated(claim, endedWith())
	s.noneDue()
	s.notRenewed(claim)

	// Nor does it matter that others were claimed since.
	next := s.claimFirst(runs[1])
	s.isRepeated(claim, end)
	s.endsNothingMore(claim, engine.End{Requeue: true})
	s.holds(longLease, next)
	s.end(next, ended())
	s.isRepeated(claim, end)
}

func repeatedEndLeavesKeys(_ *testing.T, s *store) {
	first := keyed("a", newKey())
	s.add(first)
	claim := s.claimFirst(first)
	end := endedAs(engine.Cancelled, "")
	s.end(claim, end)
	second := keyed("a", first.Key)
	s.add(second)
	s.isRepeated(claim, end)
	s.duplicateOf(second, keyed("a", first.Key), engine.Limits{})
}

func unusedStart(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	end := endedAs(engine.Cancelled, "")
	end.Unstarted = true
	claim := s.claimFirst(runs[0])
	s.end(claim, end)
	want := s.recordOf(runs[0], claim, end)
	want.Attempts, want.StartedAt = 0, time.Time{}
	same(t, "the run", s.get(runs[0].ID), want)

	s.abandon(runs[1])
	s.end(s.reclaim(runs[1]), end)
	s.status(runs[1], engine.Cancelled, 1)
}

func endedNow(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	var finished []time.Time
	for _, run := range runs {
		claim := s.claimFirst(run)
		s.advance(time.Hour)
		end := endedWith(newDelivery(run, 0))
		s.end(claim, end)
		record := s.get(run.ID)
		same(t, "the run", record, s.recordOf(run, claim, end))
		finished = append(finished, record.FinishedAt)
	}
	s.advance(time.Hour)
	for i, run := range runs {
		same(t, "FinishedAt", s.get(run.ID).FinishedAt, finished[i])
		same(t, "Due", s.get(run.ID).Deliveries[0].Due, finished[i])
	}
	s.lasted("the time between two ends", finished[1].Sub(finished[0]), time.Hour)
}

func givenBackIsEnded(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	s.requeue(s.claimFirst(runs[0]))
	s.endQueued(runs[0], ended())
	s.status(runs[0], engine.Completed, 0)

	s.abandon(runs[1])
	s.requeue(s.reclaim(runs[1]))
	s.endQueued(runs[1], ended())
	s.status(runs[1], engine.Completed, 1)
	s.claimThrough(runs[2])
}

// A call whose caller is gone may fail or not. Whatever it reports has to be true.
func cancelledContext(t *testing.T, s *store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	run := newRun("a")
	if err := s.Runs().Add(ctx, run, engine.Terms{}); err != nil {
		s.lists(engine.Query{})
		s.add(run)
	}
	s.lists(engine.Query{}, run)

	claims, _, err := s.Runs().Claim(ctx, upTo(1))
	if err != nil {
		s.status(run, engine.Queued, 0)
		claims = s.claim(1)
	}
	s.sameRuns("claimed", claims, run)

	end := endedWith(newDelivery(run, 0))
	if _, err := s.Runs().End(ctx, claims[0], end, upTo(1)); err != nil {
		s.status(run, engine.Running, 1)
		s.noneDue()
		s.end(claims[0], end)
	}
	s.status(run, engine.Completed, 1)

	due, _, err := s.Deliveries().Claim(ctx, engine.DeliveryBatch{Max: 10, Lease: longLease})
	if err != nil {
		due, _ = s.due(10)
	}
	if len(due) != 1 {
		t.Fatalf("got %d deliveries, want 1", len(due))
	}
	due[0].Status = engine.Delivered
	if err := s.Deliveries().Settle(ctx, due[0], 0); err != nil {
		if d := s.delivery(due[0].ID); d.Status != engine.Pending {
			t.Errorf("it is %s after a Settle that failed", d.Status)
		}
		s.settle(due[0], engine.Delivered, 0, "")
	}
	if d := s.delivery(due[0].ID); d.Status != engine.Delivered {
		t.Errorf("it is %s", d.Status)
	}
}
