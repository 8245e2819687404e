package storetest

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Checks of two nodes that work on the same data.
var nodeChecks = append(inPairs(pairChecks), []check{
	{"every node has a name of its own", nodesHaveNames},
	{"a node that stood still for a lease can do nothing about a run that moved on", frozenNode},
	{"a caller waits as long as its node is alive", awaitedOverNodes},
	{"a caller does not wait when its node was closed", notAwaitedWhenClosed},
	{"a node goes on when another one is closed", goesOnAlone},
	{"a node that stood still for a lease can settle nothing that moved on", frozenNodeSettles},
	{"word comes when another node ended a run and left the next one", wordOfSuccessors},
	{"other nodes are told what is followed", othersLearn},
	{"a node that joins is told what is followed", joiningNodeLearns},
	{"who asks again is heard", whoAsksAgainIsHeard},
	{"a run is wanted until the last node has let go", wantedUntilTheLast},
	{"what a node that was closed followed is not wanted", closedNodeWantsNothing},
	{"frames arrive once, in order and whole", framesArrive},
	{"frames arrive at all nodes that follow, and at no other", framesArriveAtAll},
	{"a node that does not read holds a sender no longer than it wants", slowNodeIsNotWaitedFor},
	{"every run ends once and in order over two nodes", func(_ *testing.T, a *store) { carryOutAtRandom(a, longLease, a.join()) }},
	{"every run ends once and in order over two nodes that renew short leases",
		func(_ *testing.T, a *store) { carryOutAtRandom(a, 2*shortLease, a.join()) }},
	{"every run ends once and in order over three nodes",
		func(_ *testing.T, a *store) { carryOutAtRandom(a, 2*shortLease, a.join(), a.join()) }},
}...)

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
	a.claimDeliveries(engine.DeliveryBatch{Max: 1, Lease: shortLease})
	a.close()
	b.advance(2 * shortLease)
	claim := b.reclaim(runs[0])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	b.end(claim, ended())
	b.claimThrough(runs[1])
	eventually(t, "the delivery that the other node had is handed out", func() bool { due, _ := b.due(10); return len(due) == 1 })
	b.lists(engine.Query{}, runs...)
	b.loads([]byte("settings"), 1)
	c := b.join()
	c.lists(engine.Query{}, runs...)
	late := newRun("c")
	hears(t, b.Watch().Claimable(), "a run was added", func() {
		if err := c.Runs().Add(t.Context(), late, engine.Terms{Settings: 1}); err != nil {
			t.Fatal(err)
		}
	})
	b.claimThrough(late)
}

// The node that ended the run claims no more, since it has no room or is about to stop.
func wordOfSuccessors(t *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "a", "a")
	claim := a.claimFirst(runs[0])
	hears(t, b.Watch().Claimable(), "a run ended and the next one waits", func() { a.end(claim, ended()) })
	claim = b.claimFirst(runs[1])
	hears(t, a.Watch().Claimable(), "a run ended and the next one waits", func() { b.end(claim, ended()) })
	claim = a.claimFirst(runs[2])
	more := a.addTo("a", "b")
	// Likewise if it has room for one of two.
	hears(t, b.Watch().Claimable(), "a run ended and another one waits", func() {
		if next := a.endAnd(claim, ended(), upTo(1)); len(next) != 1 {
			t.Errorf("claimed %d runs, want 1", len(next))
		}
	})
	if n := len(b.claim(10)); n != 1 {
		t.Errorf("there were %d of %d runs left, want 1", n, len(more))
	}
	// And if the first of a chat was ended while it was queued.
	runs = a.addTo("c", "c")
	hears(t, b.Watch().Claimable(), "a queued run ended and the next one waits", func() { a.endQueued(runs[0], ended()) })
	b.claimAll(runs[1])
}

// A claims deliveries and stands still. When it goes on, its lease is over and B has them.
func frozenNodeSettles(t *testing.T, a *store) {
	b := a.join()
	_, deliveries := a.endWith(3)
	old := a.abandonDeliveries(deliveries...)
	got := b.takesAgain(deliveries...)
	for _, d := range old {
		a.isLostDelivery(d)
	}
	a.takes(nil)
	b.staysWith(got...)
	b.settle(got[0], engine.Delivered, 0, "")
	b.settle(got[1], engine.Dead, 0, "gone")
	b.settle(got[2], engine.Pending, time.Hour, "busy")
	for i, d := range old {
		a.isLostDelivery(d)
		known := a.delivery(d.ID)
		known.Body = got[i].Body
		same(t, "the delivery", known, got[i])
	}
	a.handsOut(10, nil, time.Hour)
}

// claimDue claims up to n deliveries, and expects these.
func (s *store) claimDue(n int, want []*engine.Delivery) []*engine.Delivery {
	s.t.Helper()
	got, _ := s.due(n)
	s.areThese(got, want)
	return got
}
