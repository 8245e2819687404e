package storetest

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var orderChecks = []check{
	{"ids are UUIDs of version 7 from about now", idsAreUUIDs},
	{"the store says when a run was accepted", acceptedNow},
	{"runs of a chat are claimed one at a time and in order", oneAtATime},
	{"runs of different chats are claimed side by side", sideBySide},
	{"a run comes after all that were there when it was added", addedAtOnceClaimedInOrder},
	{"no more runs are claimed than asked for", noMoreThanAskedFor},
	{"a busy chat does not starve the others", busyChatStarvesNobody},
}

func idsAreUUIDs(t *testing.T, s *store) {
	for range 50 {
		run := s.addTo("a")[0]
		id, err := uuid.Parse(run.ID)
		if err != nil || id.String() != run.ID {
			t.Fatalf("%q is not a UUID as it is usually written: %v", run.ID, err)
		}
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is of version %d and variant %s", id, id.Version(), id.Variant())
		}
		made := time.Unix(id.Time().UnixTime())
		if off := run.AcceptedAt.Sub(made); off < -time.Hour || off > time.Hour {
			t.Fatalf("%s is from another time, %v before its acceptance", id, off)
		}
	}
}

func acceptedNow(t *testing.T, s *store) {
	first := newRun("a")
	first.AcceptedAt = time.Now().Add(-50 * time.Hour) // the caller's clock is of no account
	s.add(first)
	s.advance(100 * time.Hour)
	second := newRun("a")
	s.add(second)
	s.lasted("the time between two runs", second.AcceptedAt.Sub(first.AcceptedAt), 100*time.Hour)
	same(t, "AcceptedAt", s.get(first.ID).Run.AcceptedAt, first.AcceptedAt)
	same(t, "AcceptedAt", s.claimFirst(first).Run.AcceptedAt, first.AcceptedAt)
}

// In a synctest bubble it is the year 2000.
func idsAscendAfterClockWasSetBack(t *testing.T, s *store) {
	if !s.options.IDsAscend {
		return
	}
	first := s.addTo("a")[0]
	synctest.Test(t, func(t *testing.T) {
		bubble := s.in(t)
		bubble.clock = &clock{began: time.Now()}
		bubble.reopen()
		s.Store = nil // it is closed
		defer bubble.close()
		second := bubble.addTo("a")[0]
		if second.ID <= first.ID {
			t.Errorf("%s was given out after %s", second.ID, first.ID)
		}
		bubble.endQueued(second, ended())
		bubble.reopen()
		third := bubble.addTo("a")[0]
		if third.ID <= second.ID {
			t.Errorf("%s was given out after %s, which has ended", third.ID, second.ID)
		}
		for _, run := range []*engine.Run{first, third} {
			claims, _, err := bubble.Runs().Claim(t.Context(), upTo(10))
			if err != nil {
				t.Fatal(err)
			}
			bubble.sameRuns("claimed", claims, run)
			bubble.end(claims[0], ended())
		}
	})
}

func oneAtATime(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	for _, run := range runs {
		claim := s.claimAll(run)[0]
		s.claimAll()
		s.end(claim, ended())
	}
	s.claimAll()
}

func sideBySide(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "b", "b", "c", "c")
	claims := s.claimAll(runs[0], runs[2], runs[4])
	s.claimAll()
	s.end(claims[slices.IndexFunc(claims, func(c *engine.Claim) bool { return c.Run.ChatID == "b" })], ended())
	s.claimAll(runs[3])
}

// Runs that are added at the same time may come in any order, but their order is one and the same for all who look.
func addedAtOnceClaimedInOrder(t *testing.T, s *store) {
	const adders, each = 8, 10
	l := newLedger(t)
	var all sync.WaitGroup
	for range adders {
		all.Go(func() {
			for range each {
				l.add(t.Context(), s.Store, newRun("a"))
			}
		})
	}
	all.Wait()
	listed := s.list(engine.Query{})
	slices.Reverse(listed)
	if len(listed) != adders*each {
		t.Fatalf("%d runs are listed, want %d", len(listed), adders*each)
	}
	for _, record := range listed {
		claims := s.claim(2)
		s.sameRuns("claimed", claims, record.Run)
		l.began(claims[0], l.now(), longLease)
		l.letGo(claims[0])
		l.ending(claims[0].Run)
		s.end(claims[0], ended())
	}
	s.claimAll()
}

func noMoreThanAskedFor(t *testing.T, s *store) {
	s.addTo("a", "b", "c", "d", "e", "f", "g")
	if n := len(s.claim(0)); n != 0 {
		t.Errorf("claimed %d runs, want none", n)
	}
	claims := s.claim(2)
	if len(claims) != 2 {
		t.Fatalf("claimed %d runs, want 2", len(claims))
	}
	if n := len(s.endAnd(claims[0], ended(), engine.Batch{})); n != 0 {
		t.Errorf("ending a run claimed %d others, want none", n)
	}
	if n := len(s.endAnd(claims[1], ended(), upTo(3))); n != 3 {
		t.Errorf("ending a run claimed %d others, want 3", n)
	}
	if n := len(s.claim(10)); n != 2 {
		t.Errorf("there were %d runs left, want 2", n)
	}
}

// One worker carries out run after run, and one chat always has many more waiting. The others must not have to wait for
// all of them.
func busyChatStarvesNobody(t *testing.T, s *store) {
	var busy []string
	for range 50 {
		busy = append(busy, "busy")
	}
	s.addTo(busy...)
	claims := s.claim(1)
	others := s.addTo("a", "b", "c")
	var got []string
	for range 2 * (len(others) + 1) {
		s.addTo("busy")
		if claims = s.endAnd(claims[0], ended(), upTo(1)); len(claims) != 1 {
			t.Fatalf("claimed %d runs, want 1", len(claims))
		}
		got = append(got, claims[0].Run.ChatID)
	}
	for _, run := range others {
		if !slices.Contains(got, run.ChatID) {
			t.Errorf("chat %s did not get its turn among %v", run.ChatID, got)
		}
	}
	// The busy one has its turn, too.
	if !slices.Contains(got, "busy") {
		t.Errorf("the busy chat did not get its turn among %v", got)
	}
}
