package storetest

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Everything that a store has reported as done is there when it was closed and opened again. A store that is shared cannot
// know that a node is gone before its leases are over.
var durabilityChecks = []check{
	{"claimed runs are carried out again, and the attempt counts", claimedRunsAreThere},
	{"a start that was taken back does not count, and those before it do", takenBackStart},
	{"deliveries under way are handed out again when their lease is over", deliveriesUnderWayAreThere},
	{"tokens and names of nodes are not used again", namesAreUsedOnce},
	{"an end that is repeated later does nothing", endRepeatedLater},
	{"ids ascend although the clock was set back", idsAscendAfterClockWasSetBack},
}

func claimedRunsAreThere(t *testing.T, s *store) {
	runs := []*engine.Run{fullRun(t, "a"), fullRun(t, "a"), fullRun(t, "a")}
	s.add(runs...)
	old := s.abandon(runs[0])
	s.reopen()
	claim := s.reclaim(runs[0])
	same(t, "the claimed run", claim.Run, runs[0])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.isLost(old)
	s.end(claim, ended())
	s.status(runs[0], engine.Completed, 2)

	// Likewise when it was claimed at the end of another one.
	next := s.endAnd(s.claimFirst(runs[1]), ended(), engine.Batch{Max: 1, Lease: shortLease})
	s.sameRuns("claimed", next, runs[2])
	s.reopen()
	s.advance(2 * shortLease)
	s.status(runs[1], engine.Completed, 1)
	claim = s.reclaim(runs[2])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.end(claim, ended())
	s.claimAll()
}

func takenBackStart(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.abandon(run)
	s.requeue(s.reclaim(run))
	s.reopen()
	s.status(run, engine.Queued, 1)
	s.end(s.starts(run, 2), ended())

	folded := s.addFolding("a", "storm", 2, 2)
	s.requeue(s.claimFold(folded...))
	s.reopen()
	s.status(folded[1], engine.Queued, 0)
	s.claimFold(folded...)
}

func deliveriesUnderWayAreThere(_ *testing.T, s *store) {
	busy := s.endTo(engine.PerHost+1, toHost)
	chats := s.endTo(2, toChat)
	all := append(busy[:engine.PerHost:engine.PerHost], chats[0])
	old, _ := s.claimDeliveries(engine.DeliveryBatch{Max: 100, Lease: shortLease})
	s.areThese(old, all)
	s.throttle(engine.Throttle{To: busy[0].Destination(), Pause: shortLease}) // which lasts no longer than before
	s.reopen()
	s.advance(2 * shortLease)
	got := s.takesAgain(all...)
	s.takes(nil)
	for _, d := range old {
		s.isLostDelivery(d)
	}
	s.staysWith(got...)
	for _, d := range got {
		s.settle(d, engine.Delivered, 0, "")
	}
	s.takes([]*engine.Delivery{busy[engine.PerHost], chats[1]})
}

// That tokens are new is checked for every claim.
func namesAreUsedOnce(t *testing.T, s *store) {
	s.addTo("a", "b")
	s.endWithAny(2)
	names := map[string]bool{}
	for range 4 {
		if names[s.Node()] {
			t.Errorf("the node is called %q again", s.Node())
		}
		names[s.Node()] = true
		for range 2 {
			eventually(t, "runs and deliveries are handed out", func() bool {
				claims := s.claimFor(shortLease, 10)
				due, _ := s.claimDeliveries(engine.DeliveryBatch{Max: 10, Lease: shortLease})
				return len(claims)+len(due) > 0
			})
			s.advance(2 * shortLease)
		}
		s.reopen()
	}
}

// The node that lost the answer is gone, so it is left open whether End and Settle return nil or ErrClaimLost.
func endRepeatedLater(t *testing.T, s *store) {
	runs := s.addTo("a", "b", "b")
	claims := s.claimAll(runs[0], runs[1])
	if claims[0].Run.ID != runs[0].ID {
		claims[0], claims[1] = claims[1], claims[0]
	}
	end := endedWith(newDelivery(runs[0], 0))
	s.end(claims[0], end)
	s.requeue(claims[1])
	d := s.claimDue(10, s.given(runs[0], end))[0]
	s.settle(d, engine.Dead, 0, "gone")
	s.reopen()
	late := endedWith(newDelivery(runs[0], 0), newDelivery(runs[0], 1))
	s.endsNothingMore(claims[0], late)
	s.endsNothingMore(claims[0], engine.End{Requeue: true})
	s.endsNothingMore(claims[1], ended())
	s.endsNothingMore(claims[1], engine.End{Requeue: true})
	again := *d
	again.Status = engine.Delivered
	if err := s.Deliveries().Settle(t.Context(), &again, 0); err != nil && !isClaimLost(err) {
		t.Errorf("settling again: %v", err)
	}
	same(t, "the delivery", s.delivery(d.ID), d)
	s.noneDue()
	s.isLost(&engine.Claim{Run: runs[0], Token: "another", Attempt: 1})
	s.claimThrough(runs[1:]...)
}

// given are the deliveries of a run that has just ended, as they are expected.
func (s *store) given(run *engine.Run, end engine.End) []*engine.Delivery {
	s.t.Helper()
	s.recordOf(run, queued(run), end)
	return end.Deliveries
}
