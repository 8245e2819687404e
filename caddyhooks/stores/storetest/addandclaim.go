package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

var addAndClaimChecks = []check{
	{"a run is claimed in the step that stores it", claimedAtOnce},
	{"a run that is stored and claimed waits for those before it", claimedInOrder},
	{"nothing is claimed if nothing is stored", notStoredNotClaimed},
	{"a run with a key is claimed, and nothing when it is repeated", keyedClaimedOnce},
	{"runs that pass their gates are claimed, and nothing if none does", passedAreClaimed},
	{"what a batch leaves out is not claimed", leftOutNotClaimed},
	{"a run that was stored and claimed is another's when its lease is over", claimedAtOnceForALease},
}

var addAndClaimNodeChecks = []check{
	{"a run that a node has stored and claimed is not another's", claimedAtOnceByANode},
}

var durableAddAndClaimChecks = []check{
	{"runs that were stored and claimed are carried out again, and the attempt counts", claimedAtOnceAreThere},
}

// addAndClaim adds runs and claims up to a number.
func (s *store) addAndClaim(most int, runs ...*engine.Run) []*engine.Claim {
	s.t.Helper()
	claims, err := s.claiming().AddAndClaim(s.t.Context(), runs, engine.Terms{}, engine.Batch{Max: most, Lease: longLease})
	if err != nil {
		s.t.Fatal(err)
	}
	return claims
}

// addAndClaimSoon adds a request, and expects that these of its runs are claimed then, which a store may leave to the next claim.
func (s *store) addAndClaimSoon(batch engine.Batch, runs []*engine.Run, want ...*engine.Run) []*engine.Claim {
	s.t.Helper()
	claims, err := s.claiming().AddAndClaim(s.t.Context(), runs, engine.Terms{}, batch)
	if err == nil && len(claims) == 0 {
		claims, _, err = s.Runs().Claim(s.t.Context(), batch)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.sameRuns("claimed", claims, want...)
	s.areNew(claims)
	return claims
}

func (s *store) claiming() engine.ClaimingRuns {
	s.t.Helper()
	runs, ok := s.Runs().(engine.ClaimingRuns)
	if !ok {
		s.t.Fatal("the store cannot claim runs when it accepts some")
	}
	return runs
}

func claimedAtOnce(t *testing.T, s *store) {
	run, later := newRun("a"), newRun("a")
	claims := s.addAndClaim(1, run)
	if len(claims) != 1 || claims[0].Run.ID != run.ID || claims[0].Attempt != 1 || claims[0].Token == "" {
		t.Fatalf("a new run was claimed as %+v", claims)
	}
	s.isNow("StartedAt", claims[0].StartedAt)
	if status := s.get(run.ID).Status; status != engine.Running {
		t.Errorf("it is %s", status)
	}
	if more := s.addAndClaim(1, later); len(more) != 0 {
		t.Errorf("a run beside it was claimed: %+v", more)
	}
	s.end(claims[0], ended())
	s.end(s.claimFirst(later), ended())
	if claims := s.addAndClaim(0, newRun("a")); len(claims) != 0 {
		t.Errorf("nobody asked for %+v", claims)
	}
}

func claimedInOrder(t *testing.T, s *store) {
	first := s.addTo("a")[0]
	second, other := newRun("a"), newRun("b")
	claims := s.addAndClaim(2, second, other)
	if len(claims) == 0 { // a store may leave it to the next claim to choose
		claims = s.claim(2)
	}
	if len(claims) != 2 || claims[0].Run.ID != first.ID || claims[1].Run.ID != other.ID {
		t.Fatalf("claimed were %+v", claims)
	}
	s.end(claims[0], ended())
	s.end(s.claimFirst(second), ended())
	folding := newRun("c")
	folding.Fold = engine.Fold{Window: time.Hour, Max: 5}
	if claims := s.addAndClaim(1, folding); len(claims) != 0 {
		t.Errorf("a run that waits for others was claimed: %+v", claims)
	}
}

func notStoredNotClaimed(t *testing.T, s *store) {
	waiting := s.addTo("a")[0]
	claims, err := s.claiming().AddAndClaim(t.Context(), []*engine.Run{newRun("b")}, engine.Terms{Limits: engine.Limits{Queue: 1}},
		engine.Batch{Max: 5, Lease: longLease})
	if !errors.Is(err, engine.ErrQueueFull) || len(claims) != 0 {
		t.Errorf("beside a full queue: %+v, %v", claims, err)
	}
	s.end(s.claimFirst(waiting), ended())
}

func keyedClaimedOnce(t *testing.T, s *store) {
	batch := engine.Batch{Max: 2, Lease: longLease}
	first := keyed("a", newKey())
	claim := s.addAndClaimSoon(batch, []*engine.Run{first}, first)[0]
	waiting := s.addTo("b")[0]
	repeats := func() {
		t.Helper()
		var duplicate *engine.DuplicateError
		claims, err := s.claiming().AddAndClaim(t.Context(), []*engine.Run{keyed("c", first.Key)}, engine.Terms{}, batch)
		if !errors.As(err, &duplicate) || duplicate.First.ID != first.ID || len(claims) != 0 {
			t.Errorf("a repeated request claimed %d runs: %v", len(claims), err)
		}
	}
	repeats()
	replayed := newRun("a")
	replayed.Replay = newKey()
	s.addAndClaimSoon(batch, []*engine.Run{replayed}, waiting)
	s.end(claim, ended())
	repeats()
	s.claimFirst(replayed)
}

func passedAreClaimed(t *testing.T, s *store) {
	batch := engine.Batch{Max: 5, Lease: longLease}
	first := gated("a", aloneIn("x"))
	claim := s.addAndClaimSoon(batch, []*engine.Run{first}, first)[0]
	waiting := s.addTo("b")[0]
	var closed *gate.ClosedError
	claims, err := s.claiming().AddAndClaim(t.Context(), []*engine.Run{gated("c", aloneIn("x"))}, engine.Terms{}, batch)
	if !errors.As(err, &closed) || len(claims) != 0 {
		t.Errorf("beside a closed gate: %d claims, %v", len(claims), err)
	}
	s.end(s.claimFirst(waiting), ended())
	some := []*engine.Run{gated("d", aloneIn("x")), gated("e", aloneIn("y")), newRun("f")}
	s.addAndClaimSoon(batch, some, some[1:]...)
	s.end(claim, ended())
	again := gated("c", aloneIn("x"))
	s.addAndClaimSoon(batch, []*engine.Run{again}, again)
}

func leftOutNotClaimed(_ *testing.T, s *store) {
	of := func(chat, hook string) []*engine.Run {
		run := newRun(chat)
		run.Hook = hook
		return []*engine.Run{run}
	}
	batch := engine.Batch{Max: 3, Lease: longLease, Bounds: []engine.Bound{{Hooks: []string{"paused"}}}, Without: []string{"left out"}}
	paused, without := of("a", "paused"), of("left out", "free")
	s.addAndClaimSoon(batch, paused)
	s.addAndClaimSoon(batch, without)
	free := of("b", "free")
	s.addAndClaimSoon(batch, free, free...)
	batch.Bounds[0].AtMost = 1
	s.addAndClaimSoon(batch, of("c", "paused"), paused...)
	more := s.claim(5)
	if len(more) != 2 || more[0].Run.ID != without[0].ID {
		s.t.Errorf("claimed were %+v", more)
	}
}

func claimedAtOnceForALease(t *testing.T, s *store) {
	run, next := newRun("a"), newRun("a")
	batch := engine.Batch{Max: 5, Lease: shortLease}
	old := s.addAndClaimSoon(batch, []*engine.Run{run}, run)[0]
	s.holds(shortLease, old)
	s.advance(shortLease + slack)
	claim := s.reclaim(run)
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.isLost(old)
	s.addAndClaimSoon(batch, []*engine.Run{next})
	s.requeue(claim)
	s.end(s.starts(run, 2), ended())
	s.end(s.starts(next, 1), ended())
}

func claimedAtOnceByANode(_ *testing.T, a *store) {
	b := a.join()
	batch := engine.Batch{Max: 5, Lease: longLease}
	run, next := newRun("a"), newRun("a")
	claim := a.addAndClaimSoon(batch, []*engine.Run{run}, run)[0]
	b.status(run, engine.Running, 1)
	b.claimAll()
	b.addAndClaimSoon(batch, []*engine.Run{next})
	a.end(claim, ended())
	b.status(run, engine.Completed, 1)
	b.end(b.starts(next, 1), ended())
	a.status(next, engine.Completed, 1)
}

func claimedAtOnceAreThere(t *testing.T, s *store) {
	full := fullRun(t, "a")
	old := s.addAndClaimSoon(engine.Batch{Max: 5, Lease: shortLease}, []*engine.Run{full}, full)[0]
	same(t, "the claimed run", old.Run, full)
	s.reopen()
	s.advance(2 * shortLease)
	claim := s.reclaim(full)
	same(t, "the run that is claimed again", claim.Run, full)
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.isLost(old)
	s.end(claim, ended())
	s.reopen()
	s.status(full, engine.Completed, 2)
}
