package storetest

import (
	"errors"
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
	{"nodes see the same", nodesSeeTheSame},
	{"order in a chat holds over all nodes", orderOverNodes},
	{"a chat has one claimed run over all nodes", oneClaimOverNodes},
	{"nothing is claimed twice by two nodes", nothingClaimedTwiceByNodes},
	{"limits count the runs of all nodes", limitsOverNodes},
	{"keys are known to all nodes", keysOverNodes},
	{"of runs that two nodes add at once with one key exactly one is stored", oneKeyOverNodes},
	{"a node that stood still for a lease can do nothing about a run that moved on", frozenNode},
	{"a node that stood still can end no run that another node has ended", frozenNodeAfterTheEnd},
	{"a node that stood still can requeue nothing", frozenNodeRequeues},
	{"a late renewal holds while no other node has the run", lateRenewalOverNodes},
	{"tokens are used once over all nodes", tokensOverNodes},
	{"a caller waits as long as its node is alive", awaitedOverNodes},
	{"a caller does not wait when its node was closed", notAwaitedWhenClosed},
	{"a node goes on when another one is closed", goesOnAlone},
	{"settings are the same for all nodes", settingsOverNodes},
	{"of settings that two nodes save at once exactly one is made from each revision", settingsAtOnceOverNodes},
	{"a run is not stored under settings that another node has changed", runUnderSettingsOfOthers},
	{"a run that two nodes end at once while it is queued ends once", queuedEndsOnceOverNodes},
	{"nodes that prune at the same time lose nothing", pruneOverNodes},
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

func nodesSeeTheSame(t *testing.T, a *store) {
	b := a.join()
	runs := append(a.addTo("a", "a"), b.addTo("a", "b")...)
	a.endQueued(runs[1], ended())
	b.requeue(b.claimFirst(runs[0]))
	a.claimAll(runs[0], runs[3])
	for _, run := range runs {
		same(t, "the run", b.get(run.ID), a.get(run.ID))
	}
	for _, query := range []engine.Query{{}, {Limit: 1}, {ChatID: "a"}, {Statuses: []engine.Status{engine.Running}}, {Statuses: []engine.Status{engine.Queued}}, {Statuses: []engine.Status{engine.Completed}}} {
		same(t, fmt.Sprintf("the list %+v", query), b.list(query), a.list(query))
	}
	b.lists(engine.Query{}, runs...)
}

func orderOverNodes(_ *testing.T, a *store) {
	b := a.join()
	var runs []*engine.Run
	for i := range 12 {
		runs = append(runs, []*store{a, b}[i/2%2].addTo("a")...)
	}
	b.lists(engine.Query{}, runs...)
	for i, run := range runs {
		node := []*store{a, b}[i%2]
		if i == 4 { // it begins anew on the other node
			a.requeue(node.claimFirst(run))
			node = b
		}
		node.end(node.claimFirst(run), ended())
	}
	a.claimAll()
	b.claimAll()
}

func oneClaimOverNodes(_ *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "a", "b", "b")
	claims := a.claimAll(runs[0], runs[2])
	b.claimAll()
	runs = append(runs, b.addTo("a", "c")...)
	claims = append(claims, b.claimAll(runs[5])...)
	a.claimAll()
	for _, claim := range claims {
		switch claim.Run.ChatID {
		case "a":
			b.sameRuns("claimed", a.endAnd(claim, ended(), upTo(10)), runs[1])
		case "b":
			a.end(claim, ended())
			b.claimAll(runs[3])
		case "c":
			b.end(claim, ended())
		}
	}
	a.claimAll()
	b.claimAll()
}

func nothingClaimedTwiceByNodes(t *testing.T, a *store) { everythingIsClaimedOnce(t, a, a.join()) }

func limitsOverNodes(_ *testing.T, a *store) {
	b := a.join()
	a.addTo("a")
	b.addTo("b")
	for _, node := range []*store{a, b} {
		node.refuse(newRun("c"), engine.Limits{Queue: 2}, engine.ErrQueueFull)
		node.refuse(newRun("a"), engine.Limits{Chat: 1}, engine.ErrChatFull)
		node.refuse(newRun("b"), engine.Limits{Chat: 1}, engine.ErrChatFull)
	}
	b.addWithin(engine.Limits{Queue: 3, Chat: 2}, newRun("a"))
	a.refuse(newRun("a"), engine.Limits{Chat: 2}, engine.ErrChatFull)
	a.claim(1)
	b.addWithin(engine.Limits{Queue: 3}, newRun("c"))
}

func keysOverNodes(_ *testing.T, a *store) {
	b := a.join()
	first := keyed("a", newKey())
	a.add(first)
	b.duplicateOf(first, keyed("b", first.Key), engine.Limits{})
	b.duplicateOf(first, keyed("b", another(first.Key)), engine.Limits{})
	b.end(b.claimFirst(first), endedAs(engine.Cancelled, "")) // it frees the key
	second := keyed("a", first.Key)
	b.add(second)
	a.duplicateOf(second, keyed("b", first.Key), engine.Limits{})
	a.advance(2 * time.Hour)
	b.prune(engine.Limits{KeyAge: time.Hour})
	a.add(keyed("a", first.Key))
}

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

func frozenNodeAfterTheEnd(t *testing.T, a *store) {
	b := a.join()
	run := a.addTo("a")[0]
	old := a.abandon(run)
	claim := b.reclaim(run)
	end := endedAs(engine.Failed, engine.RunnerFailed)
	b.end(claim, end)
	want := b.recordOf(run, claim, end)
	a.isLost(old)
	for _, node := range []*store{a, b} {
		same(t, "the run", node.get(run.ID), want)
	}
	b.isRepeated(claim, end)
}

func frozenNodeRequeues(_ *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "a")
	old := a.abandon(runs[0])
	claim := b.reclaim(runs[0])
	a.endsNothing(old, engine.End{Requeue: true})
	a.claimAll()
	b.requeue(claim)
	a.endsNothing(old, engine.End{Requeue: true})
	a.endsNothing(old, ended())
	b.status(runs[0], engine.Queued, 1)
	a.claimThrough(runs...)
}

func lateRenewalOverNodes(_ *testing.T, a *store) {
	b := a.join()
	runs := a.addTo("a", "b")
	claims := a.claimFor(shortLease, 10)
	a.sameRuns("claimed", claims, runs...)
	a.advance(10 * shortLease)
	a.holds(shortLease, claims...)
	b.claimAll()
	a.advance(10 * shortLease)
	again := b.claimOne(claims)
	lost, _ := a.renew(longLease, claims...)
	if len(lost) != 1 || lost[0].Run.ID != again.Run.ID {
		a.t.Fatalf("%d claims are lost, want one", len(lost))
	}
	b.claimAll()
	for _, claim := range claims {
		if claim != lost[0] {
			a.end(claim, ended())
		}
	}
	b.end(again, ended())
}

// That tokens are new is checked for every claim.
func tokensOverNodes(_ *testing.T, a *store) {
	nodes := []*store{a, a.join(), a.join()}
	a.addTo("a", "b", "c")
	a.endWithAny(3)
	for round := range 9 {
		node := nodes[round%3]
		eventually(a.t, "runs and deliveries are handed out", func() bool {
			claims := node.claimFor(shortLease, 10)
			due, _ := node.claimDeliveries(engine.DeliveryBatch{Max: 10, Lease: shortLease})
			return len(claims)+len(due) > 0
		})
		a.advance(2 * shortLease)
		if round == 4 {
			nodes[2].close()
			nodes[2] = a.join()
		}
	}
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

func settingsOverNodes(_ *testing.T, a *store) {
	b := a.join()
	b.loads(nil, 0)
	first := a.save("by A", 0)
	b.loads([]byte("by A"), first)
	b.isStale(0)
	second := b.save("by B", first)
	a.loads([]byte("by B"), second)
	a.isStale(first)
	a.loads([]byte("by B"), second)
	b.loads([]byte("by B"), second)
}

func settingsAtOnceOverNodes(_ *testing.T, a *store) { saveAtOnce(a, a.join()) }

func runUnderSettingsOfOthers(t *testing.T, a *store) {
	b := a.join()
	revision := a.save("by A", 0)
	for _, node := range []*store{a, b} {
		run := newRun("a")
		if err := node.Runs().Add(t.Context(), run, engine.Terms{}); !errors.Is(err, engine.ErrSettingsChanged) {
			t.Errorf("got %v, want ErrSettingsChanged", err)
		}
		if err := node.Runs().Add(t.Context(), run, engine.Terms{Settings: revision}); err != nil {
			t.Error(err)
		}
		before := revision
		revision = b.save("by B", before)
		if err := node.Runs().Add(t.Context(), newRun("a"), engine.Terms{Settings: before}); !errors.Is(err, engine.ErrSettingsChanged) {
			t.Errorf("got %v, want ErrSettingsChanged", err)
		}
	}
	if n := len(a.list(engine.Query{})); n != 2 {
		t.Errorf("there are %d runs, want 2", n)
	}
}

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

// Old runs without deliveries are forgotten while both nodes prune; others stay, and new ones are carried out.
func pruneOverNodes(t *testing.T, a *store) {
	b := a.join()
	const workers, each = 4, 40
	end := func(run *engine.Run, i int) engine.End {
		if i%4 == 0 {
			return endedWith(newDelivery(run, 0))
		}
		return ended()
	}
	carryOut := func(node *store, worker int) (stay, goes []*engine.Run) {
		for i := range each {
			run := keyed(fmt.Sprint("chat ", worker), newKey())
			if err := node.tryAdd(run, engine.Limits{}); err != nil {
				t.Error(err)
				return
			}
			if _, err := node.Runs().End(t.Context(), queued(run), end(run, i), engine.Batch{}); err != nil {
				t.Error(err)
				return
			}
			if i%4 == 0 {
				stay = append(stay, run)
			} else {
				goes = append(goes, run)
			}
		}
		return stay, goes
	}
	var mu sync.Mutex
	var stay, forgotten []*engine.Run
	round := func(old bool) {
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				some, others := carryOut([]*store{a, b}[worker%2], worker)
				mu.Lock()
				defer mu.Unlock()
				stay = append(stay, some...)
				if old {
					forgotten = append(forgotten, others...)
				} else {
					stay = append(stay, others...)
				}
			})
		}
		all.Wait()
	}
	round(true)
	a.advance(2 * time.Hour)
	over := make(chan struct{})
	var pruners sync.WaitGroup
	for _, node := range []*store{a, b, a, b} {
		pruners.Go(func() {
			for {
				if _, err := node.Prune(t.Context(), engine.Limits{Retention: time.Hour, KeyAge: time.Hour}); err != nil {
					t.Error(err)
				}
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	round(false)
	close(over)
	pruners.Wait()
	a.prune(engine.Limits{Retention: time.Hour, KeyAge: time.Hour})
	b.prune(engine.Limits{Retention: time.Hour, KeyAge: time.Hour})
	for _, run := range stay {
		a.status(run, engine.Completed, 0)
		b.status(run, engine.Completed, 0)
	}
	for _, run := range forgotten {
		a.gone(run.ID)
		b.gone(run.ID)
	}
	if n := len(b.list(engine.Query{})); n != len(stay) {
		t.Errorf("there are %d runs, want %d", n, len(stay))
	}
	due, _ := b.due(2 * workers * each)
	if len(due) != 2*workers*each/4 {
		t.Errorf("%d deliveries are due, want %d", len(due), 2*workers*each/4)
	}
}
