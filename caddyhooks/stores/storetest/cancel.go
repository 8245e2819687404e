package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var cancelChecks = []check{
	{"Renew tells at every call which runs are to be cancelled", renewTellsCancelled},
	{"a lost claim is lost, and not cancelled", lostIsNotCancelled},
	{"Renew tells by whom a run is cancelled", renewTellsByWhom},
}

func (s *store) cancel(run *engine.Run) {
	s.t.Helper()
	if err := s.Runs().Cancel(s.t.Context(), run.ID, "somebody"); err != nil {
		s.t.Fatalf("cancelling run %s: %v", run.ID, err)
	}
}

func renewTellsCancelled(t *testing.T, s *store) {
	runs := s.addTo("a", "b", "c")
	claims := s.claimAll(runs...)
	s.cancel(claims[1].Run)
	s.cancel(claims[1].Run)
	for range 2 {
		lost, cancelled := s.renew(longLease, claims...)
		if len(lost) > 0 || len(cancelled) != 1 || cancelled[0] != claims[1] { // the very claim that was passed in
			t.Fatalf("got %v lost and %v cancelled, want one cancelled", lost, cancelled)
		}
		s.holds(longLease, claims[0], claims[2])
	}
	s.status(claims[1].Run, engine.Running, 1)
	s.cancel(claims[2].Run)
	if _, cancelled := s.renew(longLease, claims...); len(cancelled) != 2 || slices.Contains(cancelled, claims[0]) {
		t.Errorf("got %v cancelled, want two", cancelled)
	}
}

func lostIsNotCancelled(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	if err := s.Runs().Cancel(t.Context(), run.ID, "somebody"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("cancelling a queued run: got %v, want ErrNotFound", err)
	}
	old := s.abandon(run)
	claim := s.reclaim(run)
	s.holds(longLease, claim) // nor is that remembered
	s.cancel(run)
	lost, cancelled := s.renew(longLease, old, claim)
	if !slices.Equal(lost, []*engine.Claim{old}) || !slices.Equal(cancelled, []*engine.Claim{claim}) {
		t.Errorf("got %v lost and %v cancelled, want the first lost and the second cancelled", lost, cancelled)
	}
}

// Who asks first is named, also if that is nobody.
func renewTellsByWhom(t *testing.T, s *store) {
	runs := s.addTo("a", "b", "c")
	claims := s.claimAll(runs...)
	asked := make(map[*engine.Claim][]string)
	for i, by := range [][]string{{"the run API, from 2001:db8::1", "another"}, {"", "another"}, {strings.Repeat("ü\x00\n", 50)}} {
		asked[claims[i]] = by
		for _, by := range by {
			if err := s.Runs().Cancel(t.Context(), claims[i].Run.ID, by); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		_, cancelled, err := s.Runs().Renew(t.Context(), claims, longLease)
		if err != nil || len(cancelled) != len(claims) {
			t.Fatalf("got %v, %v", cancelled, err)
		}
		for _, wish := range cancelled {
			if wish.By != asked[wish.Claim][0] {
				t.Errorf("the run is cancelled by %q, want %q", wish.By, asked[wish.Claim][0])
			}
		}
	}
}
