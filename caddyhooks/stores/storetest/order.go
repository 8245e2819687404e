package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var orderChecks = []check{
	{"ids are UUIDs of version 7 in order of acceptance", idsAscend},
	{"ids ascend when runs are added at once", idsAscendWhenAddedAtOnce},
	{"runs of a chat are claimed one at a time and in order", oneAtATime},
	{"runs of different chats are claimed side by side", sideBySide},
	{"runs that were added at once are claimed in the order of their ids", addedAtOnceClaimedInOrder},
	{"no more is claimed than wanted", noMoreThanWanted},
	{"a busy chat does not starve the others", busyChatStarvesNobody},
	{"a chat that ran empty begins anew", chatBeginsAnew},
	{"word is left when a run was added or released", wordIsLeft},
	{"who claims all there is at every word misses nothing", wordIsEnough},
}

func idsAscend(t *testing.T, s *store) {
	var last string
	for range 50 {
		run := s.addTo("a")[0]
		id, err := uuid.Parse(run.ID)
		if err != nil || id.String() != run.ID {
			t.Fatalf("%q is not a UUID as it is usually written: %v", run.ID, err)
		}
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is of version %d and variant %s", id, id.Version(), id.Variant())
		}
		if off := time.Since(engine.IDTime(id)); off < -time.Hour || off > time.Hour {
			t.Fatalf("%s is from another time, %v ago", id, off)
		}
		if run.ID <= last {
			t.Fatalf("%s was given out after %s", run.ID, last)
		}
		last = run.ID
	}
}

func idsAscendWhenAddedAtOnce(t *testing.T, s *store) {
	var mu sync.Mutex
	var greatest string // of all runs that are known to be stored
	seen := map[string]bool{}
	var adders sync.WaitGroup
	for i := range 8 {
		adders.Go(func() {
			for range 25 {
				mu.Lock()
				before := greatest
				mu.Unlock()
				run := newRun(fmt.Sprint("chat ", i%3))
				if err := s.Add(t.Context(), run, engine.Limits{}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if run.ID <= before {
					t.Errorf("%s was given out after %s", run.ID, before)
				}
				if seen[run.ID] {
					t.Errorf("%s was given out twice", run.ID)
				}
				seen[run.ID] = true
				greatest = max(greatest, run.ID)
				mu.Unlock()
			}
		})
	}
	adders.Wait()
}

func oneAtATime(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	for _, run := range runs {
		claim := s.claimAll(run)[0]
		s.claimAll()
		s.finish(claim, ended())
	}
	s.claimAll()
}

func sideBySide(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "b", "b", "c", "c")
	claims := s.claimAll(runs[0], runs[2], runs[4])
	s.claimAll()
	s.finish(claims[slices.IndexFunc(claims, func(c *engine.Claim) bool { return c.Run.ChatID == "b" })], ended())
	s.claimAll(runs[3])
}

func addedAtOnceClaimedInOrder(t *testing.T, s *store) {
	var adders sync.WaitGroup
	for range 8 {
		adders.Go(func() {
			for range 10 {
				if err := s.Add(t.Context(), newRun("a"), engine.Limits{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	adders.Wait()
	last := ""
	for range 80 {
		claims := s.claim(2)
		if len(claims) != 1 {
			t.Fatalf("got %d runs of one chat", len(claims))
		}
		if claims[0].Run.ID <= last {
			t.Fatalf("%s was claimed after %s", claims[0].Run.ID, last)
		}
		last = claims[0].Run.ID
		s.finish(claims[0], ended())
	}
	s.claimAll()
}

func noMoreThanWanted(t *testing.T, s *store) {
	s.addTo("a", "b", "c", "d", "e", "f", "g")
	if n := len(s.claim(0)); n != 0 {
		t.Errorf("claimed %d runs, want none", n)
	}
	claims := s.claim(2)
	if len(claims) != 2 {
		t.Fatalf("claimed %d runs, want 2", len(claims))
	}
	if n := len(s.finishAnd(claims[0], ended(), engine.Want{})); n != 0 {
		t.Errorf("finishing a run claimed %d others, want none", n)
	}
	if n := len(s.finishAnd(claims[1], ended(), wanting(3))); n != 3 {
		t.Errorf("finishing a run claimed %d others, want 3", n)
	}
	if n := len(s.claim(10)); n != 2 {
		t.Errorf("there were %d runs left, want 2", n)
	}
}

// One worker carries out run after run, and one chat has always many more waiting. The others must not have to wait for
// all of those.
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
		if claims = s.finishAnd(claims[0], ended(), wanting(1)); len(claims) != 1 {
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

func chatBeginsAnew(_ *testing.T, s *store) {
	for range 3 {
		runs := s.addTo("a", "a", "a")
		s.withdraw(runs[2], ended())
		s.claimThrough(runs[0], runs[1])
	}
}

// hears waits for word that there is something to claim.
func (s *store) hears(after string) {
	s.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-s.Claimable():
	case <-timeout.C:
		s.t.Fatalf("no word was left after %s", after)
	}
}

// Word that was left several times may be heard once, so every word is heard before the next one must be left.
func wordIsLeft(_ *testing.T, s *store) {
	runs := s.addTo("a")
	s.hears("a run was added")
	claim := s.claimFirst(runs[0])
	s.release(claim)
	s.hears("a run was released")
	claim = s.claimFirst(runs[0])
	s.addTo("b")
	s.hears("a run was added to another chat")
	s.release(claim)
	s.hears("a run was released while another one waits")
}

func wordIsEnough(t *testing.T, s *store) {
	const chats, each = 10, 10
	var adders sync.WaitGroup
	defer adders.Wait()
	for chat := range chats {
		adders.Go(func() {
			for range each {
				if err := s.Add(t.Context(), newRun(fmt.Sprint(chat)), engine.Limits{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for left := chats * each; left > 0; {
		s.hears(fmt.Sprintf("%d runs were left", left))
		for claims := s.claim(3); len(claims) > 0; {
			claims = append(claims[1:], s.finishAnd(claims[0], ended(), wanting(1))...)
			left--
			if len(claims) == 0 {
				claims = s.claim(3)
			}
		}
	}
}
