package storetest

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var leaseChecks = []check{
	{"a claim holds for its lease", claimHoldsForItsLease},
	{"a lease is counted from the renewal", leaseCountsFromRenewal},
	{"a late renewal holds while nobody else has the run", lateRenewalHolds},
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

// Two leases are over, which the store has noticed, and one of the runs was handed out again.
func lateRenewalHolds(t *testing.T, s *store) {
	s.addTo("a", "b")
	claims := s.claimFor(shortLease, 10)
	s.advance(2 * shortLease)
	var again []*engine.Claim
	eventually(t, "a run is handed out again", func() bool { again = s.claim(1); return len(again) > 0 })
	lost, _ := s.renew(longLease, claims...)
	if len(lost) != 1 || lost[0].Run.ID != again[0].Run.ID {
		t.Fatalf("%d claims are lost, want that of the run alone", len(lost))
	}
	s.claimAll()
	for _, claim := range claims {
		if claim != lost[0] {
			s.end(claim, ended())
		}
	}
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
