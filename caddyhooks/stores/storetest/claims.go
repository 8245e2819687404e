package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var claimChecks = []check{
	{"a claim has all of the run", claimHasAll},
	{"nothing is claimed twice", nothingClaimedTwice},
	{"a claim is lost when its lease is over", lostClaim},
	{"a lost run is the first of its chat again", lostRunIsFirst},
	{"every attempt counts", everyAttemptCounts},
	{"claims run out each at its own time, and those that are renewed later", renewedClaimHolds},
	{"a renewed claim runs out as well", renewedClaimRunsOut},
	{"Renew returns just the claims that are lost", renewReturnsLost},
	{"a released run is the first of its chat, as if it had not been started", releasedRun},
	{"a claim is over when its run was released", releasedClaimIsOver},
	{"a release takes back its own attempt alone", releaseTakesBackItsOwn},
	{"claims that were never given out do not hold", forgedClaims},
}

func claimHasAll(t *testing.T, s *store) {
	run := fullRun(t, "a")
	s.add(run)
	claim := s.claimFirst(run)
	same(t, "the claimed run", claim.Run, run)
	if claim.Attempt != 1 || claim.StartedAt.IsZero() {
		t.Errorf("attempt %d started at %v", claim.Attempt, claim.StartedAt)
	}
	same(t, "the start", s.get(run.ID).StartedAt, claim.StartedAt)

	// Likewise one that was claimed at the end of another.
	second := fullRun(t, "a")
	s.add(second)
	next := s.finishAnd(claim, ended(), wanting(1))
	s.sameRuns("claimed", next, second)
	same(t, "the claimed run", next[0].Run, second)
	if next[0].Attempt != 1 || next[0].StartedAt.IsZero() {
		t.Errorf("attempt %d started at %v", next[0].Attempt, next[0].StartedAt)
	}
	same(t, "the start", s.get(second.ID).StartedAt, next[0].StartedAt)
}

func nothingClaimedTwice(t *testing.T, s *store) {
	const chats = 60
	for i := range chats {
		s.addTo(fmt.Sprint("chat ", i))
	}
	var mu sync.Mutex
	claimed := map[string]int{}
	var claimers sync.WaitGroup
	for i := range 6 {
		claimers.Go(func() {
			for {
				claims, err := s.Claim(t.Context(), wanting(i+1))
				if err != nil {
					t.Error(err)
				}
				if len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, claim := range claims {
					claimed[claim.Run.ID]++
				}
				mu.Unlock()
			}
		})
	}
	claimers.Wait()
	for id, n := range claimed {
		if n > 1 {
			t.Errorf("run %s was claimed %d times", id, n)
		}
	}
	if len(claimed) != chats {
		t.Errorf("%d runs were claimed, want %d", len(claimed), chats)
	}
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
	s.claimAll(other) // which the lost claim did not claim, nor give back the run

	// The one that holds is as good as ever.
	if lost, err := s.Renew(t.Context(), []*engine.Claim{claim}, time.Hour); len(lost) > 0 || err != nil {
		t.Errorf("renewing: got %v and %v", lost, err)
	}
	s.status(run, engine.Running, 2)
	same(t, "the start", s.get(run.ID).StartedAt, claim.StartedAt)
	s.finish(claim, ended())
	s.status(run, engine.Completed, 2)
	s.isLost(old)
}

func lostRunIsFirst(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	s.abandon(runs[0])
	runs = append(runs, s.addTo("a")...)
	s.finish(s.reclaim(runs[0]), ended())
	s.claimThrough(runs[1:]...)
}

func everyAttemptCounts(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.abandon(run)
	for attempt := 2; attempt < 6; attempt++ {
		var claims []*engine.Claim
		eventually(t, "the run is handed out again", func() bool {
			claims = s.claimWith(engine.Want{Runs: 1, Lease: shortLease})
			return len(claims) > 0
		})
		if claims[0].Attempt != attempt {
			t.Errorf("claimed for attempt %d, want %d", claims[0].Attempt, attempt)
		}
	}
	s.finish(s.reclaim(run), ended())
	s.status(run, engine.Completed, 6)
}

// Three runs are claimed together, and two of the claims are renewed, one of them for long. When the other two runs have
// been handed out again, the lease of all three would be over.
func renewedClaimHolds(t *testing.T, s *store) {
	for lease := 50 * time.Millisecond; lease < patience; lease *= 2 {
		runs := s.addTo("a "+lease.String(), "b "+lease.String(), "c "+lease.String())
		claims := s.claimWith(engine.Want{Runs: 3, Lease: lease})
		s.sameRuns("claimed", claims, runs...)
		slices.SortFunc(claims, func(a, b *engine.Claim) int { return strings.Compare(a.Run.ID, b.Run.ID) })
		lostSoon, err := s.Renew(t.Context(), claims[1:2], 2*lease)
		if err != nil {
			t.Fatal(err)
		}
		lost, err := s.Renew(t.Context(), claims[2:], time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(lost)+len(lostSoon) > 0 { // we were too slow
			s.claimAllEventually(2 + len(lost))
			continue
		}
		s.claimAllEventually(2)
		s.claimAll()
		s.status(runs[0], engine.Running, 2)
		s.status(runs[1], engine.Running, 2)
		s.status(runs[2], engine.Running, 1)
		s.finish(claims[2], ended())
		return
	}
	t.Fatal("no claim could be renewed")
}

// claimAllEventually takes that many runs as they become free.
func (s *store) claimAllEventually(n int) {
	s.t.Helper()
	eventually(s.t, "the runs are handed out again", func() bool {
		n -= len(s.claim(n))
		return n == 0
	})
}

func renewedClaimRunsOut(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	old := s.abandon(run)
	if _, err := s.Renew(t.Context(), []*engine.Claim{old}, shortLease); err != nil {
		t.Fatal(err)
	}
	if claim := s.reclaim(run); claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.isLost(old)
}

func renewReturnsLost(t *testing.T, s *store) {
	if lost, err := s.Renew(t.Context(), nil, time.Hour); len(lost) > 0 || err != nil {
		t.Errorf("renewing nothing: got %v and %v", lost, err)
	}
	runs := s.addTo("a", "b", "c", "d")
	claims := map[string]*engine.Claim{}
	for _, claim := range s.claimAll(runs...) {
		claims[claim.Run.ChatID] = claim
	}
	s.finish(claims["b"], ended())
	s.release(claims["d"])
	lost, err := s.Renew(t.Context(), []*engine.Claim{claims["a"], claims["b"], claims["c"], claims["d"]}, time.Hour)
	if err != nil || len(lost) != 2 || lost[0] == lost[1] {
		t.Fatalf("got %v and %v", lost, err)
	}
	for _, claim := range lost {
		if claim != claims["b"] && claim != claims["d"] { // the very claims that were passed in
			t.Errorf("the claim of %s is said to be lost", claim.Run.ChatID)
		}
	}
	s.finish(claims["a"], ended())
	s.finish(claims["c"], ended())
}

func releasedRun(t *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	for range 3 {
		claim := s.claimFirst(runs[0])
		if claim.Attempt != 1 {
			t.Errorf("claimed for attempt %d, want 1", claim.Attempt)
		}
		s.status(runs[0], engine.Running, 1)
		s.release(claim)
		s.status(runs[0], engine.Queued, 0)
		if record := s.get(runs[0].ID); !record.StartedAt.IsZero() {
			t.Errorf("it is said to have been started at %v", record.StartedAt)
		}
		runs = append(runs, s.addTo("a")...)
	}
	same(t, "the released run", s.get(runs[0].ID).Run, runs[0])
	s.claimThrough(runs...)
}

func releasedClaimIsOver(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	s.release(claim)
	s.isLost(claim)
	s.claimAll(run)
}

func releaseTakesBackItsOwn(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.abandon(run)
	s.release(s.reclaim(run))
	s.status(run, engine.Queued, 1)
	claim := s.claimFirst(run)
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.finish(claim, ended())
	s.status(run, engine.Completed, 2)
}

func forgedClaims(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	claim := func(run *engine.Run, attempt int) *engine.Claim {
		return &engine.Claim{Run: run, Attempt: attempt, StartedAt: time.Now()}
	}
	s.isLost(claim(runs[0], 1)) // it is queued
	s.isLost(claim(runs[0], 0))
	held := s.claimFirst(runs[0])
	runs = append(runs, s.addTo("b")...)
	s.isLost(claim(runs[0], 2))
	s.isLost(claim(runs[0], 0))
	s.isLost(claim(runs[1], 1)) // it waits for the first
	s.finish(held, ended())
	s.claimAll(runs[1], runs[2])

	unknown := newRun("a")
	unknown.ID = uuid.Must(uuid.NewV7()).String()
	if _, err := s.Finish(t.Context(), claim(unknown, 1), ended(), wanting(1)); !isClaimLost(err) {
		t.Errorf("finishing an unknown run: got %v, want ErrClaimLost", err)
	}
	if err := s.Release(t.Context(), claim(unknown, 1)); !isClaimLost(err) {
		t.Errorf("releasing an unknown run: got %v, want ErrClaimLost", err)
	}
	s.gone(unknown.ID)
}
