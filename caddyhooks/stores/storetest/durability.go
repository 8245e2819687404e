package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Everything that a store has reported as done is there when it was closed and opened again. A store that is shared cannot
// know that a node is gone before its leases are over.
var durabilityChecks = []check{
	{"queued runs are there, in order", queuedRunsAreThere},
	{"claimed runs are carried out again, and the attempt counts", claimedRunsAreThere},
	{"every attempt that did not survive counts", attemptsAreThere},
	{"requeued runs are there as if they had not been started", requeuedRunsAreThere},
	{"ended runs are there with their outcomes and deliveries", endedRunsAreThere},
	{"pending deliveries are handed out again", deliveriesAreThere},
	{"deliveries under way are handed out again when their lease is over", deliveriesUnderWayAreThere},
	{"throttles do not keep deliveries back for longer", throttlesAreOver},
	{"keys are there", keysAreThere},
	{"limits count what was there", limitsCountWhatWasThere},
	{"forgotten runs and keys stay so", forgottenStaysSo},
	{"settings are there", settingsAreThere},
	{"tokens and names of nodes are not used again", namesAreUsedOnce},
	{"an end that is repeated later does nothing", endRepeatedLater},
	{"all is as it was after a lot has happened", allIsAsItWas},
}

func queuedRunsAreThere(t *testing.T, s *store) {
	var runs []*engine.Run
	for i := range 12 {
		run := fullRun(t, fmt.Sprint("chat ", i%3))
		s.add(run)
		runs = append(runs, run)
	}
	s.endQueued(runs[3], ended())
	s.reopen()
	for i, run := range runs {
		if i != 3 {
			same(t, "the run", s.get(run.ID), &engine.Record{Run: run, Status: engine.Queued})
		}
	}
	s.lists(engine.Query{}, runs...)
	claims := s.claimAll(runs[0], runs[1], runs[2])
	for _, claim := range claims {
		i := slices.IndexFunc(runs, func(run *engine.Run) bool { return run.ID == claim.Run.ID })
		same(t, "the claimed run", claim.Run, runs[i])
		if claim.Attempt != 1 {
			t.Errorf("claimed for attempt %d, want 1", claim.Attempt)
		}
		s.end(claim, ended())
	}
	late := s.addTo("chat 0")[0]
	for _, claim := range s.claimAll(runs[6], runs[4], runs[5]) {
		s.end(claim, ended())
	}
	for _, claim := range s.claimAll(runs[9], runs[7], runs[8]) {
		s.end(claim, ended())
	}
	for _, claim := range s.claimAll(late, runs[10], runs[11]) {
		s.end(claim, ended())
	}
	s.claimAll()
}

func claimedRunsAreThere(t *testing.T, s *store) {
	runs := []*engine.Run{fullRun(t, "a"), fullRun(t, "a"), fullRun(t, "a")}
	s.add(runs...)
	old := s.abandon(runs[0])
	s.reopen()
	claim := s.reclaim(runs[0])
	same(t, "the claimed run", claim.Run, runs[0])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.isLost(old)
	s.end(claim, ended())
	s.status(runs[0], engine.Completed, 2)

	// Likewise when it was claimed at the end of another one.
	next := s.endAnd(s.claimFirst(runs[1]), ended(), engine.Batch{Max: 1, Lease: shortLease})
	s.sameRuns("claimed", next, runs[2])
	s.reopen()
	s.advance(2 * shortLease)
	s.status(runs[1], engine.Completed, 1)
	claim = s.reclaim(runs[2])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.end(claim, ended())
	s.claimAll()
}

func attemptsAreThere(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	s.abandon(runs[0])
	for attempt := 2; attempt < 6; attempt++ {
		if attempt != 3 { // some end with the process, some do not
			s.reopen()
		}
		if claim := s.reclaimFor(shortLease, runs[0]); claim.Attempt != attempt {
			t.Errorf("claimed for attempt %d, want %d", claim.Attempt, attempt)
		}
		s.advance(2 * shortLease)
	}
	s.requeue(s.reclaim(runs[0]))
	s.reopen()
	s.status(runs[0], engine.Queued, 5)
	s.endQueued(runs[0], ended())
	s.reopen()
	s.status(runs[0], engine.Completed, 5)
	s.claimThrough(runs[1])
}

func requeuedRunsAreThere(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	s.requeue(s.claimFirst(runs[0]))
	s.reopen()
	same(t, "the requeued run", s.get(runs[0].ID), &engine.Record{Run: runs[0], Status: engine.Queued})
	if claim := s.claimFirst(runs[0]); claim.Attempt != 1 {
		t.Errorf("claimed for attempt %d, want 1", claim.Attempt)
	}
}

func endedRunsAreThere(t *testing.T, s *store) {
	want := map[string]*engine.Record{}
	for i, outcome := range []engine.Outcome{
		{Status: engine.Completed, Text: "text", HasText: true, JSON: []byte(`{"a": 1}`), Repairs: 2},
		{Status: engine.Completed, HasText: true},
		{Status: engine.Failed, Failure: engine.RunnerUnavailable, Message: "busy", RetryAfter: time.Minute},
		{Status: engine.TimedOut, Message: "too late"},
		{Status: engine.Cancelled, Message: "cancelled", Account: engine.Account{CancelledBy: "somebody"}},
		{Status: engine.Failed, Failure: engine.SchemaUnmet, Message: "no match",
			Account: engine.Account{Reason: "no match", LastAnswer: "no", ValidationErrors: []string{"at the top: no", "at /a: no"}}},
		{Status: engine.Completed, HasText: true, SessionRenewed: true,
			Account: engine.Account{Permissions: []engine.Permission{{Kind: "edit", Title: "a file", Answer: "allowed"}}, MorePermissions: 1}},
	} {
		for _, whileQueued := range []bool{false, true} {
			run := fullRun(t, "a")
			s.add(run)
			end := engine.End{Outcome: outcome, Steps: twoSteps(t, run)}
			for index := range i {
				end.Deliveries = append(end.Deliveries, newDelivery(run, index))
			}
			claim := queued(run)
			if !whileQueued {
				claim = s.claimFirst(run)
			}
			s.end(claim, end)
			want[run.ID] = s.recordOf(run, claim, end)
		}
	}
	for range 2 {
		s.reopen()
		for id, record := range want {
			same(t, "the run", s.get(id), record)
		}
	}
	s.claimAll()
	if n := len(s.list(engine.Query{})); n != len(want) {
		t.Errorf("there are %d runs, want %d", n, len(want))
	}
}

func deliveriesAreThere(t *testing.T, s *store) {
	run, deliveries := s.endWith(4)
	got := s.takes(deliveries)
	s.settle(got[0], engine.Delivered, 0, "")
	s.settle(got[1], engine.Dead, 0, "no such chat")
	s.settle(got[2], engine.Pending, 30*time.Minute, "busy")
	s.settle(got[3], engine.Pending, 0, "busy")
	s.advance(time.Minute)
	_, waiting := s.endWith(1)
	before := s.get(run.ID)
	s.reopen()
	same(t, "the run", s.get(run.ID), before)
	due := s.handsOut(10, []*engine.Delivery{got[3], waiting[0]}, 29*time.Minute)
	s.advance(29 * time.Minute)
	due = append(due, s.handsOut(10, got[2:3], notATime)...)
	for _, d := range due {
		s.settle(d, engine.Delivered, 0, "")
	}
	s.reopen()
	s.noneDue()
	for i, want := range []engine.DeliveryStatus{engine.Delivered, engine.Dead, engine.Delivered, engine.Delivered} {
		if d := s.get(run.ID).Deliveries[i]; d.Status != want {
			t.Errorf("delivery %d is %s, want %s", i, d.Status, want)
		}
	}
}

func deliveriesUnderWayAreThere(_ *testing.T, s *store) {
	busy := s.endTo(engine.PerHost+1, toHost)
	chats := s.endTo(2, toChat)
	all := append(busy[:engine.PerHost:engine.PerHost], chats[0])
	old, _ := s.claimDeliveries(engine.DeliveryBatch{Max: 100, Lease: shortLease})
	s.areThese(old, all)
	s.reopen()
	s.advance(2 * shortLease)
	got := s.takesAgain(all...)
	s.takes(nil)
	for _, d := range old {
		s.isLostDelivery(d)
	}
	s.staysWith(longLease, got...)
	for _, d := range got {
		s.settle(d, engine.Delivered, 0, "")
	}
	s.takes([]*engine.Delivery{busy[engine.PerHost], chats[1]})
}

// A store may forget throttles when it is closed.
func throttlesAreOver(_ *testing.T, s *store) {
	busy := s.endTo(2, toHost)
	s.throttle(engine.Throttle{To: busy[0].Destination(), Pause: time.Hour})
	s.reopen()
	s.advance(time.Hour)
	s.handsOut(10, busy, notATime)
}

func keysAreThere(t *testing.T, s *store) {
	limits := engine.Limits{Retention: time.Hour, Keys: 6, KeyAge: 24 * time.Hour}
	var runs []*engine.Run
	for i := range 7 {
		run := keyed(fmt.Sprint("chat ", i), newKey())
		run.Sync = i%2 == 0
		if i == 1 {
			run.Action = engine.Wake
		}
		if err := s.tryAdd(run, limits); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	// The first has made room. One run is forgotten, one has ended, one has ended in a way that frees its key, one has
	// left its key to a run that came later, and two are queued.
	s.endQueued(runs[1], ended())
	s.advance(2 * time.Hour)
	s.prune(limits)
	s.endQueued(runs[2], ended())
	s.endQueued(runs[3], endedAs(engine.Cancelled, ""))
	s.endQueued(runs[4], endedAs(engine.Cancelled, ""))
	heir := keyed("heir", runs[4].Key)
	s.add(heir)
	s.reopen()
	known := []*engine.Run{runs[1], runs[2], heir, runs[5], runs[6]}
	for _, run := range known {
		s.duplicateOf(run, keyed("new", run.Key), limits)
		s.duplicateOf(run, keyed("new", another(run.Key)), limits)
	}
	for _, i := range []int{0, 3} {
		if err := s.tryAdd(keyed("new", runs[i].Key), engine.Limits{}); err != nil {
			t.Errorf("key %d is not free: %v", i, err)
		}
	}
	// There are 7 keys now. One more makes 8, and of those the oldest have to make room.
	if err := s.tryAdd(keyed("new", newKey()), limits); err != nil {
		t.Fatal(err)
	}
	for _, run := range known[2:] {
		s.duplicateOf(run, keyed("new", run.Key), limits)
	}
	for _, run := range known[:2] {
		if err := s.tryAdd(keyed("new", run.Key), engine.Limits{}); err != nil {
			t.Errorf("a key has not made room for others: %v", err)
		}
	}
}

func limitsCountWhatWasThere(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "b", "a")
	s.endQueued(runs[1], ended())
	s.reopen()
	s.refuse(newRun("c"), engine.Limits{Queue: 3}, engine.ErrQueueFull)
	s.refuse(newRun("a"), engine.Limits{Chat: 2}, engine.ErrChatFull)
	if err := s.tryAdd(newRun("b"), engine.Limits{Queue: 4, Chat: 2}); err != nil {
		s.t.Error(err)
	}
}

func forgottenStaysSo(t *testing.T, s *store) {
	pruned, withPending := keyed("a", newKey()), newRun("a")
	s.carryOut(pruned, ended())
	s.add(withPending)
	claim, end := s.claimFirst(withPending), endedWith(newDelivery(withPending, 0))
	s.end(claim, end)
	s.recordOf(withPending, claim, end)
	limits := engine.Limits{Retention: time.Hour, KeyAge: time.Hour}
	s.advance(2 * time.Hour)
	s.prune(limits)
	s.reopen()
	s.gone(pruned.ID)
	s.lists(engine.Query{}, withPending)
	if err := s.tryAdd(keyed("a", pruned.Key), engine.Limits{}); err != nil {
		t.Errorf("the key is there again: %v", err)
	}
	s.prune(limits)
	s.status(withPending, engine.Completed, 1)
	s.settle(s.takes(end.Deliveries)[0], engine.Delivered, 0, "")
	s.reopen()
	s.prune(limits)
	s.gone(withPending.ID)
}

func settingsAreThere(t *testing.T, s *store) {
	s.reopen()
	noSettings(t, s)
	revision := int64(0)
	for _, settings := range []string{`{"enabled": true}`, `{"enabled": false}`} {
		revision = s.save(settings, revision)
		s.reopen()
		s.loads([]byte(settings), revision)
		s.isStale(revision - 1)
		s.isStale(revision + 1)
	}
	if err := s.tryAdd(newRun("a"), engine.Limits{}); !errors.Is(err, engine.ErrSettingsChanged) {
		t.Errorf("adding a run under no settings: got %v, want ErrSettingsChanged", err)
	}
}

// That tokens are new is checked for every claim.
func namesAreUsedOnce(t *testing.T, s *store) {
	s.addTo("a", "b")
	s.endWithAny(2)
	names := map[string]bool{}
	for range 4 {
		if names[s.Node()] {
			t.Errorf("the node is called %q again", s.Node())
		}
		names[s.Node()] = true
		for range 2 {
			eventually(t, "runs and deliveries are handed out", func() bool {
				claims := s.claimFor(shortLease, 10)
				due, _ := s.claimDeliveries(engine.DeliveryBatch{Max: 10, Lease: shortLease})
				return len(claims)+len(due) > 0
			})
			s.advance(2 * shortLease)
		}
		s.reopen()
	}
}

// The node that lost the answer is gone, so it is left open whether End and Settle return nil or ErrClaimLost.
func endRepeatedLater(t *testing.T, s *store) {
	runs := s.addTo("a", "b", "b")
	claims := s.claimAll(runs[0], runs[1])
	if claims[0].Run.ID != runs[0].ID {
		claims[0], claims[1] = claims[1], claims[0]
	}
	end := endedWith(newDelivery(runs[0], 0))
	s.end(claims[0], end)
	s.requeue(claims[1])
	d := s.claimDue(10, s.given(runs[0], end))[0]
	s.settle(d, engine.Dead, 0, "gone")
	s.reopen()
	late := endedWith(newDelivery(runs[0], 0), newDelivery(runs[0], 1))
	s.endsNothingMore(claims[0], late)
	s.endsNothingMore(claims[0], engine.End{Requeue: true})
	s.endsNothingMore(claims[1], ended())
	s.endsNothingMore(claims[1], engine.End{Requeue: true})
	again := *d
	again.Status = engine.Delivered
	if err := s.Deliveries().Settle(t.Context(), &again, 0); err != nil && !isClaimLost(err) {
		t.Errorf("settling again: %v", err)
	}
	same(t, "the delivery", s.delivery(d.ID), d)
	s.noneDue()
	s.isLost(&engine.Claim{Run: runs[0], Token: "another", Attempt: 1})
	s.claimThrough(runs[1:]...)
}

// given are the deliveries of a run that has just ended, as they are expected.
func (s *store) given(run *engine.Run, end engine.End) []*engine.Delivery {
	s.t.Helper()
	s.recordOf(run, queued(run), end)
	return end.Deliveries
}

// allIsAsItWas compares all that can be seen of a store before and after.
func allIsAsItWas(t *testing.T, s *store) {
	chance := random(1)
	var known []*engine.Run
	for round := range 6 {
		for range 60 {
			s.doSomething(chance.IntN(10), &known)
		}
		// Nothing is claimed now: that would not be the same afterwards.
		records := map[string]*engine.Record{}
		queues := map[string][]*engine.Run{}
		pending := []*engine.Delivery{}
		for _, run := range known {
			record, err := s.Runs().Get(t.Context(), run.ID)
			if errors.Is(err, engine.ErrNotFound) {
				record = nil
			} else if err != nil {
				t.Fatal(err)
			}
			records[run.ID] = record
			if record == nil {
				continue
			}
			if record.Status == engine.Queued {
				queues[run.ChatID] = append(queues[run.ChatID], run)
			}
			for _, d := range record.Deliveries {
				if d.Status == engine.Pending {
					pending = append(pending, d)
				}
			}
		}
		list := s.list(engine.Query{})

		s.reopen()
		for id, want := range records {
			if want == nil {
				s.gone(id)
				continue
			}
			same(t, fmt.Sprintf("round %d: the run", round), s.get(id), want)
		}
		same(t, "the list", s.list(engine.Query{}), list)
		due, _ := s.due(len(pending) + 10)
		if !slices.IsSortedFunc(due, func(a, b *engine.Delivery) int { return a.Due.Compare(b.Due) }) {
			t.Error("deliveries were not handed out in the order in which they were due")
		}
		for _, all := range [][]*engine.Delivery{due, pending} {
			slices.SortFunc(all, func(a, b *engine.Delivery) int { return strings.Compare(a.ID, b.ID) })
		}
		for _, d := range due {
			if want := fmt.Sprintf("body %d of run %s", d.Index, d.RunID); d.Body != want {
				t.Errorf("a delivery has body %q, want %q", d.Body, want)
			}
		}
		for i, d := range pending {
			if i < len(due) {
				d.Body, d.TriedAt = due[i].Body, due[i].TriedAt
			}
		}
		same(t, "the deliveries handed out", due, pending)
		for _, d := range due {
			s.settle(d, engine.Pending, 0, fmt.Sprint("failed in round ", round))
		}
		first := []*engine.Run{}
		for _, runs := range queues {
			first = append(first, runs[0])
		}
		for _, claim := range s.claimAll(first...) {
			if claim.Attempt != records[claim.Run.ID].Attempts+1 {
				t.Errorf("claimed for attempt %d after %d", claim.Attempt, records[claim.Run.ID].Attempts)
			}
			s.requeue(claim)
		}
	}
}

// doSomething does one of many things, and leaves nothing claimed.
func (s *store) doSomething(what int, known *[]*engine.Run) {
	s.t.Helper()
	n := len(*known)
	chat := fmt.Sprint("chat ", (n*7+what)%5)
	switch what {
	case 0, 1, 2, 3:
		run := newRun(chat)
		if what == 0 {
			run.Key = newKey()
		}
		s.add(run)
		*known = append(*known, run)
	case 4, 5, 6:
		for _, claim := range s.claim(2) {
			if what == 4 {
				s.end(claim, endedWith(newDelivery(claim.Run, 0)))
			} else {
				s.requeue(claim)
			}
			s.advance(time.Second)
		}
	case 7:
		if waiting := s.list(engine.Query{Statuses: []engine.Status{engine.Queued}}); len(waiting) > 0 {
			s.endQueued(waiting[len(waiting)/2].Run, ended())
		}
	case 8:
		due, _ := s.due(2)
		for i, d := range due {
			s.settle(d, []engine.DeliveryStatus{engine.Delivered, engine.Dead}[i], 0, "")
		}
	case 9:
		// All that have ended by now, but for those with something to deliver.
		s.advance(time.Hour + time.Minute)
		s.prune(engine.Limits{Retention: time.Hour})
	}
}
