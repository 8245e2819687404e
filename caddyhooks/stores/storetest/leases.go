package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var leaseChecks = []check{
	{"a claim holds for its lease", claimHoldsForItsLease},
	{"a claim is lost when its run was claimed again after the lease", lostClaim},
	{"a lost run is the first of its chat again", lostRunIsFirst},
	{"a lease is counted from the renewal", leaseCountsFromRenewal},
	{"a late renewal holds while nobody else has the run", lateRenewalHolds},
	{"a late end holds while nobody else has the run", lateEndHolds},
	{"only the last token holds when the lease is over", onlyLastTokenHolds},
}

func claimHoldsForItsLease(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFor(2*time.Hour, 1)[0]
	s.advance(time.Hour)
	s.claimAll()
	s.status(run, engine.Running, 1)
	s.advance(time.Hour - time.Minute)
	s.claimAll()
	s.end(claim, ended())
	s.status(run, engine.Completed, 1)
}

func lostClaim(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	old := s.abandon(run)
	claim := s.reclaim(run)
	if claim.Attempt != 2 {
		t.Errorf("the second claim is for attempt %d", claim.Attempt)
	}
	other := s.addTo("b")[0]
	s.isLost(old)
	s.claimAll(other) // the lost claim did not claim it, nor give back the run

	// The one that holds is as good as ever.
	s.holds(longLease, claim)
	s.status(run, engine.Running, 2)
	same(t, "the start", s.get(run.ID).StartedAt, claim.StartedAt)
	s.end(claim, ended())
	s.status(run, engine.Completed, 2)
	s.isLost(old)
}

func lostRunIsFirst(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	s.abandon(runs[0])
	runs = append(runs, s.addTo("a")...)
	s.end(s.reclaim(runs[0]), ended())
	s.claimThrough(runs[1:]...)
}

// A renewal can make a lease shorter, too.
func leaseCountsFromRenewal(_ *testing.T, s *store) {
	runs := s.addTo("a", "b")
	claims := s.claimFor(time.Hour, 1)
	s.sameRuns("claimed", claims, runs[0])
	for range 5 {
		s.advance(50 * time.Minute)
		s.holds(time.Hour, claims[0])
	}
	s.sameRuns("claimed", s.claim(10), runs[1])
	s.holds(time.Minute, claims[0])
	s.advance(2 * time.Minute)
	s.reclaim(runs[0])
	s.isLost(claims[0])
}

// Two leases are over. Somebody claims one of the runs; the other claim is as good as before.
func lateRenewalHolds(t *testing.T, s *store) {
	runs := s.addTo("a", "b", "b")
	claims := s.claimFor(shortLease, 10)
	s.sameRuns("claimed", claims, runs[0], runs[1])
	s.advance(10 * shortLease)
	s.holds(shortLease, claims...)
	s.status(runs[0], engine.Running, 1)
	s.claimAll()

	s.advance(10 * shortLease)
	if n := len(s.claim(0)); n > 0 {
		t.Errorf("claimed %d runs, want none", n)
	}
	s.claimOne(claims)
	lost, cancelled := s.renew(longLease, claims...)
	if len(lost) != 1 || len(cancelled) > 0 {
		t.Fatalf("%d claims are lost and %d cancelled, want one lost", len(lost), len(cancelled))
	}
	s.isLost(lost[0])
	for _, claim := range claims {
		if claim != lost[0] {
			s.status(claim.Run, engine.Running, 1)
			s.claimAll()
			s.end(claim, ended())
			s.status(claim.Run, engine.Completed, 1)
		}
	}
}

// claimOne waits until one of the runs is handed out again.
func (s *store) claimOne(claims []*engine.Claim) (again *engine.Claim) {
	s.t.Helper()
	eventually(s.t, "a run is handed out again", func() bool {
		got := s.claim(1)
		if len(got) > 0 {
			again = got[0]
		}
		return again != nil
	})
	if !slices.ContainsFunc(claims, func(c *engine.Claim) bool { return c.Run.ID == again.Run.ID }) {
		s.t.Fatalf("claimed run %s of chat %s", again.Run.ID, again.Run.ChatID)
	}
	return again
}

func lateEndHolds(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	claim := s.abandon(runs[0])
	next := s.endAnd(claim, ended(), engine.Batch{Max: 5, Lease: shortLease})
	s.status(runs[0], engine.Completed, 1)
	s.sameRuns("claimed", next, runs[1])
	s.advance(2 * shortLease)
	s.requeue(next[0])
	s.status(runs[1], engine.Queued, 0)
	s.claimThrough(runs[1:]...)
}

// Somebody claims another run after the lease, for a store that looks for leases that are over then.
func onlyLastTokenHolds(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	first := s.abandon(run)
	second := s.reclaimFor(2*shortLease, run)
	other := s.addTo("b")
	claims := s.claimFor(shortLease, 1)
	s.sameRuns("claimed", claims, other...)
	s.advance(shortLease + slack)
	s.reclaim(other[0])
	s.advance(shortLease + slack)
	s.claim(0)
	s.isLost(first)
	s.isLost(claims[0])
	for _, claim := range forged(run, second.Token) {
		s.isLost(claim)
	}
	s.holds(longLease, second)
	s.end(second, ended())
	s.status(run, engine.Completed, 2)
}
