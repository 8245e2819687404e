package storetest

import (
	"testing"
)

// Checks of what a node hears of another one.
var nodeWatchChecks = []check{
	{"word comes when another node added or requeued a run", func(t *testing.T, a *store) { hearOfRuns(t, a, a.join()) }},
	{"word comes when another node ended a run and left the next one", wordOfSuccessors},
	{"a node that claims all there is at every word misses nothing of another", func(_ *testing.T, a *store) { claimAtWord(a, a.join()) }},
	{"word comes when another node wants a run to be cancelled", func(t *testing.T, a *store) { hearOfCancel(t, a.join(), a) }},
	{"word comes when another node has deliveries to claim", func(t *testing.T, a *store) { hearOfDeliveries(t, a, a.join()) }},
	{"word comes when another node saved settings", func(t *testing.T, a *store) { hearOfSettings(t, a, a.join()) }},
	{"the end of a run on another node is told", func(t *testing.T, a *store) { hearOfEnds(t, a, a.join()) }},
	{"the end of a queued run on another node is told", func(t *testing.T, a *store) { hearOfEndsOfQueued(t, a, a.join()) }},
	{"only the end of a run on another node is told", func(t *testing.T, a *store) { hearOnlyOfEnds(t, a, a.join()) }},
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

// Checks of many goroutines on two nodes.
var nodeConcurrencyChecks = []check{
	{"every run ends once and in order over two nodes", func(_ *testing.T, a *store) { carryOutAtRandom(a, longLease, a.join()) }},
	{"every run ends once and in order over two nodes that renew short leases",
		func(_ *testing.T, a *store) { carryOutAtRandom(a, 2*shortLease, a.join()) }},
	{"every run ends once and in order over three nodes",
		func(_ *testing.T, a *store) { carryOutAtRandom(a, 2*shortLease, a.join(), a.join()) }},
}
