package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var claimChecks = []check{
	{"a claim tells whether a caller waits", claimTellsAwaited},
	{"a requeued run is the first of its chat, as if it had not been started", requeuedRun},
	{"a token is for its own run and its own claim alone", tokensFence},
}

// A caller waits for the answer to a sync run, unless its node is gone. The node that claims is alive.
func claimTellsAwaited(t *testing.T, s *store) {
	sync := func(chat, owner string, sync bool) *engine.Run {
		run := newRun(chat)
		run.Owner, run.Sync = owner, sync
		return run
	}
	want := map[string]bool{"own": true, "own, not sync": false, "nobody's": false, "of an unknown node": false}
	s.add(sync("own", s.Node(), true), sync("own, not sync", s.Node(), false), sync("nobody's", "", true),
		sync("of an unknown node", "elsewhere", true))
	for range 2 {
		for _, claim := range s.claim(10) {
			if claim.Awaited != want[claim.Run.ChatID] {
				t.Errorf("Awaited of the run %q is %v", claim.Run.ChatID, claim.Awaited)
			}
			s.requeue(claim)
		}
	}
	// Likewise if it is claimed at the end of another run.
	claims := s.claim(10)
	s.add(sync("own", s.Node(), true))
	for _, claim := range claims {
		for _, next := range s.endAnd(claim, ended(), upTo(1)) {
			if !next.Awaited {
				t.Error("a run is not awaited that was claimed at the end of another")
			}
		}
	}
}

// everythingIsClaimedOnce has all nodes claim the same runs at once.
func everythingIsClaimedOnce(first, second *store) {
	t, nodes := first.t, []*store{first, second}
	const chats = 60
	for i := range chats {
		nodes[0].addTo(fmt.Sprint("chat ", i))
	}
	var mu sync.Mutex
	claimed := map[string]int{}
	var claimers sync.WaitGroup
	for i := range 6 {
		s := nodes[i%len(nodes)]
		claimers.Go(func() {
			for {
				claims, _, err := s.Runs().Claim(t.Context(), upTo(i+1))
				if err != nil {
					t.Error(err)
				}
				if len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, claim := range claims {
					claimed[claim.Run.ID]++
					if !s.tokens.isNew(claim.Token) {
						t.Errorf("token %q is none or was used before", claim.Token)
					}
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

func requeuedRun(t *testing.T, s *store) {
	runs := s.addTo("a", "a", "a")
	for range 3 {
		claim := s.claimFirst(runs[0])
		if claim.Attempt != 1 {
			t.Errorf("claimed for attempt %d, want 1", claim.Attempt)
		}
		s.status(runs[0], engine.Running, 1)
		s.requeue(claim)
		s.status(runs[0], engine.Queued, 0)
		if record := s.get(runs[0].ID); !record.StartedAt.IsZero() || !record.FinishedAt.IsZero() {
			t.Errorf("it is said to have been started at %v and finished at %v", record.StartedAt, record.FinishedAt)
		}
		runs = append(runs, s.addTo("a")...)
	}
	same(t, "the requeued run", s.get(runs[0].ID).Run, runs[0])
	s.claimThrough(runs...)
}

// endsNothingMore expects that a claim which was used up claims nothing, and changes nothing about its run.
func (s *store) endsNothingMore(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	before := s.get(claim.Run.ID)
	next, err := s.Runs().End(s.t.Context(), claim, end, engine.Batch{})
	if err != nil && !isClaimLost(err) || len(next) > 0 {
		s.t.Errorf("ending with a claim that was used up: got %d claims and %v, want nil or ErrClaimLost", len(next), err)
	}
	same(s.t, "the run", s.get(claim.Run.ID), before)
}

// forged are claims of a run with tokens that were made up.
func forged(run *engine.Run, real string) (claims []*engine.Claim) {
	for _, token := range []string{
		"forged", "0", "1", "\x00", " ", uuid.NewString(), uuid.Nil.String(), real + "0", strings.Repeat("z", len(real)),
		strings.Repeat("0123456789abcdef", 1<<12),
	} {
		claims = append(claims, &engine.Claim{Run: run, Token: token, Attempt: 1, StartedAt: time.Now()})
	}
	return claims
}

// All these claims are right in all but the token.
func tokensFence(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	lost := s.abandon(run)
	claims := map[string]*engine.Claim{"a": s.reclaim(run)}
	for _, claim := range s.claimAll(s.addTo("b", "c")...) {
		claims[claim.Run.ChatID] = claim
	}
	with := func(claim *engine.Claim, token string) *engine.Claim {
		other := *claim
		other.Token = token
		return &other
	}
	s.isLost(with(claims["a"], lost.Token))
	s.isLost(with(claims["a"], claims["b"].Token))
	s.isLost(with(claims["b"], lost.Token))
	s.isLost(with(claims["b"], claims["a"].Token))
	s.isLost(with(claims["c"], ""))
	s.holds(longLease, claims["a"], claims["b"], claims["c"])

	s.end(claims["a"], ended())
	s.isLost(with(claims["a"], lost.Token))
	s.isLost(with(claims["a"], claims["b"].Token))
	s.isLost(with(claims["b"], claims["a"].Token))
	s.requeue(claims["c"])
	s.isLost(with(claims["c"], claims["b"].Token))
	s.isLost(with(claims["c"], claims["a"].Token))
	s.end(claims["b"], ended())
	s.claimThrough(claims["c"].Run)
}

func isClaimLost(err error) bool { return errors.Is(err, engine.ErrClaimLost) }
