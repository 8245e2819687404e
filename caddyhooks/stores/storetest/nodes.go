package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Checks of two nodes that work on the same data.
var nodeChecks = []check{
	{"every node has a name of its own", nodesHaveNames},
	{"a run that one node accepted is carried out by another", carriedOutElsewhere},
	{"nothing is claimed twice by two nodes", nothingClaimedTwiceByNodes},
	{"of runs that two nodes add at once with one key exactly one is stored", oneKeyOverNodes},
	{"a node that stood still for a lease can do nothing about a run that moved on", frozenNode},
	{"a caller waits as long as its node is alive", awaitedOverNodes},
	{"a caller does not wait when its node was closed", notAwaitedWhenClosed},
	{"a node goes on when another one is closed", goesOnAlone},
	{"of settings that two nodes save at once exactly one is made from each revision", settingsAtOnceOverNodes},
	{"a run that two nodes end at once while it is queued ends once", queuedEndsOnceOverNodes},
}

func nodesHaveNames(t *testing.T, a *store) {
	names := map[string]bool{a.Node(): true}
	for range 3 {
		b := a.join()
		if b.Node() == "" || names[b.Node()] {
			t.Errorf("another node is called %q as well", b.Node())
		}
		names[b.Node()] = true
		b.close()
	}
}

func carriedOutElsewhere(t *testing.T, a *store) {
	b := a.join()
	run := fullRun(t, "a")
	original := *run
	a.add(run)
	original.ID, original.AcceptedAt, original.Together = run.ID, run.AcceptedAt, []engine.Sibling{{ID: run.ID, ChatID: run.ChatID}}
	original.FillHole()
	a.advance(time.Hour)
	claim := b.claimFirst(run)
	same(t, "the claimed run", claim.Run, &original)
	b.lasted("Waited", claim.Waited, time.Hour)
	a.status(run, engine.Running, 1)
	end := endedWith(newDelivery(run, 0), newDelivery(run, 1))
	b.end(claim, end)
	want := b.recordOf(&original, claim, end)
	for _, node := range []*store{a, b} {
		same(t, "the run", node.get(run.ID), want)
		node.lists(engine.Query{}, run)
	}
	a.handsOut(10, end.Deliveries, notATime)
}

func nothingClaimedTwiceByNodes(t *testing.T, a *store) { everythingIsClaimedOnce(t, a, a.join()) }

func oneKeyOverNodes(t *testing.T, a *store) { oneOfManyIsStored(t, a, a.join()) }

// A claims a run and stands still. When it goes on, its lease is over and B has the run.
func frozenNode(t *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "a")
	old := a.abandon(runs[0])
	claim := b.reclaim(runs[0])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	a.isLost(old)
	b.status(runs[0], engine.Running, 2)
	b.holds(longLease, claim)
	end := endedWith(newDelivery(runs[0], 0))
	end.Outcome.Text = "the answer of B"
	b.end(claim, end)
	want := b.recordOf(runs[0], claim, end)
	a.takes(end.Deliveries)
	a.isLost(old)
	a.knows(runs[0], end.Deliveries...)
	got := a.get(runs[0].ID)
	got.Deliveries, want.Deliveries = nil, nil
	same(t, "the run", got, want)
	b.claimThrough(runs[1])
}

// endWithAny ends a run of its own that has deliveries, while others are queued.
func (s *store) endWithAny(n int) {
	s.t.Helper()
	run := s.addTo("with deliveries")[0]
	end := ended()
	for i := range n {
		end.Deliveries = append(end.Deliveries, newDelivery(run, i))
	}
	s.endQueued(run, end)
}

// accepted adds a sync run whose caller waits on this node.
func (s *store) accepted(chat string) *engine.Run {
	s.t.Helper()
	run := newRun(chat)
	run.Sync, run.Owner = true, s.Node()
	s.add(run)
	return run
}

// awaited claims a run on this node, tells whether somebody waits for it, and puts it back.
func (s *store) awaited(run *engine.Run) bool {
	s.t.Helper()
	claim := s.claimFirst(run)
	s.requeue(claim)
	return claim.Awaited
}

// A node says that it is alive whenever it renews its claims, also if it has none.
func awaitedOverNodes(t *testing.T, a *store) {
	b := a.join()
	a.holds(time.Hour)
	run := a.accepted("a")
	if !b.awaited(run) || !a.awaited(run) {
		t.Error("nobody waits for a run whose node has just renewed its claims")
	}
	a.advance(50 * time.Minute)
	a.holds(time.Hour)
	a.advance(50 * time.Minute)
	if !b.awaited(run) {
		t.Error("nobody waits for a run whose node renews its claims in time")
	}
	a.advance(20 * time.Minute)
	if b.awaited(run) {
		t.Error("somebody waits for a run whose node was silent for a lease")
	}
	// Nor when it is claimed at the end of another run.
	b.endQueued(run, ended())
	run = b.addTo("a")[0]
	claim := b.claimFirst(run)
	second := a.accepted("a")
	a.advance(2 * time.Hour) // for a store that takes any call for a sign of life
	next := b.endAnd(claim, ended(), upTo(1))
	b.sameRuns("claimed", next, second)
	if next[0].Awaited {
		t.Error("somebody waits for a run that was claimed at the end of another, whose node was silent for a lease")
	}
	b.requeue(next[0])
	// It can come back.
	a.holds(time.Hour)
	if !b.awaited(second) {
		t.Error("nobody waits for a run whose node renews its claims again")
	}
}

func notAwaitedWhenClosed(t *testing.T, a *store) {
	b, c := a.join(), a.join()
	b.holds(longLease)
	c.holds(longLease)
	run, other := b.accepted("a"), c.accepted("b")
	b.requeueAll(b.claimAll(run, other))
	b.close()
	for _, claim := range a.claimAll(run, other) {
		if claim.Run.ID == run.ID && claim.Awaited {
			t.Error("somebody waits for a run whose node was closed")
		}
		if claim.Run.ID == other.ID && !claim.Awaited {
			t.Error("nobody waits for a run although only another node was closed")
		}
	}
}

func (s *store) requeueAll(claims []*engine.Claim) {
	s.t.Helper()
	for _, claim := range claims {
		s.requeue(claim)
	}
}

// The node that opened the data first is closed first.
func goesOnAlone(t *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "a", "b")
	a.save("settings", 0)
	a.claimFor(shortLease, 1)
	a.endQueued(runs[2], endedWith(newDelivery(runs[2], 0)))
	a.close()
	b.advance(2 * shortLease)
	claim := b.reclaim(runs[0])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	b.end(claim, ended())
	b.claimThrough(runs[1])
	if due, _ := b.due(10); len(due) != 1 {
		t.Errorf("%d deliveries are due, want 1", len(due))
	}
	b.lists(engine.Query{}, runs...)
	b.loads([]byte("settings"), 1)
	c := b.join()
	c.lists(engine.Query{}, runs...)
	late := newRun("c")
	if err := c.Runs().Add(t.Context(), late, engine.Terms{Settings: 1}); err != nil {
		t.Fatal(err)
	}
	b.claimThrough(late)
}

func settingsAtOnceOverNodes(_ *testing.T, a *store) { saveAtOnce(a, a.join()) }

func queuedEndsOnceOverNodes(t *testing.T, a *store) {
	b := a.join()
	for range 10 {
		run := a.addTo("a")[0]
		var mu sync.Mutex
		var ends []string
		var enders sync.WaitGroup
		for i, node := range []*store{a, b, a, b} {
			enders.Go(func() {
				end := ended()
				end.Outcome.Text = fmt.Sprint("end ", i)
				_, err := node.Runs().End(t.Context(), queued(run), end, engine.Batch{})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					ends = append(ends, end.Outcome.Text)
				} else if !isClaimLost(err) {
					t.Error(err)
				}
			})
		}
		enders.Wait()
		if len(ends) != 1 || a.get(run.ID).Outcome.Text != ends[0] {
			t.Fatalf("the run was ended by %q, and is known to have ended with %q", ends, a.get(run.ID).Outcome.Text)
		}
	}
}
