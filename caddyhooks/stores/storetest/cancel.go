package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var cancelChecks = []check{
	{"a run that nobody carries out cannot be cancelled", onlyClaimedIsCancelled},
	{"Renew tells at every call which runs are to be cancelled", renewTellsCancelled},
	{"Renew tells by whom a run is cancelled", renewTellsByWhom},
	{"the wish is forgotten when the run is requeued", wishIsForgotten},
}

func (s *store) cancel(run *engine.Run) {
	s.t.Helper()
	if err := s.Runs().Cancel(s.t.Context(), run.ID, "somebody"); err != nil {
		s.t.Fatalf("cancelling run %s: %v", run.ID, err)
	}
}

func onlyClaimedIsCancelled(t *testing.T, s *store) {
	runs := s.addTo("ended", "ended while queued", "pruned", "claimed")
	s.endQueued(runs[2], ended())
	s.advance(2 * shortLease)
	s.prune(engine.Limits{Retention: shortLease})
	s.endQueued(runs[1], ended())
	claims := s.claimAll(runs[0], runs[3])
	for _, claim := range claims {
		if claim.Run.ChatID == "ended" {
			s.end(claim, ended())
		}
	}
	waiting := s.addTo("claimed", "requeued")
	s.requeue(s.claimFirst(waiting[1]))
	claimed := runs[3].ID
	for name, id := range map[string]string{
		"an ended run":             runs[0].ID,
		"a run ended while queued": runs[1].ID,
		"a pruned run":             runs[2].ID,
		"a queued run":             waiting[0].ID,
		"a requeued run":           waiting[1].ID,
		"an unknown run":           uuid.Must(uuid.NewV7()).String(),
		"nothing":                  "",
		"half an id":               claimed[:18],
		"more than an id":          claimed + "0",
		"no id":                    strings.Repeat("z", len(claimed)),
		"NUL":                      "\x00",
	} {
		if err := s.Runs().Cancel(t.Context(), id, "somebody"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("cancelling %s: got %v, want ErrNotFound", name, err)
		}
	}
	s.holds(longLease, claims[slices.IndexFunc(claims, func(c *engine.Claim) bool { return c.Run.ID == claimed })])
	s.status(waiting[0], engine.Queued, 0)
	s.status(waiting[1], engine.Queued, 0)
	s.holds(longLease, s.claimFirst(waiting[1]))
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

func wishIsForgotten(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	s.cancel(run)
	s.requeue(claim)
	s.holds(longLease, s.claimFirst(run))
}
