package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Everything that a store has reported as done is there when it was closed and opened again.
var durabilityChecks = []check{
	{"queued runs are there, in order", queuedRunsAreThere},
	{"claimed runs are carried out again, and the attempt counts", claimedRunsAreThere},
	{"every attempt that did not survive counts", attemptsAreThere},
	{"released runs are there as if they had not been started", releasedRunsAreThere},
	{"ended runs are there with their outcomes and deliveries", endedRunsAreThere},
	{"pending deliveries are handed out again", deliveriesAreThere},
	{"keys are there", keysAreThere},
	{"limits count what was there", limitsCountWhatWasThere},
	{"what was forgotten stays so", forgottenStaysSo},
	{"settings are there", settingsAreThere},
	{"ids ascend although the clock was set back", idsAscendAfterClockWasSetBack},
	{"all is as it was after a lot has happened", allIsAsItWas},
}

func queuedRunsAreThere(t *testing.T, s *store) {
	var runs []*engine.Run
	for i := range 12 {
		run := fullRun(t, fmt.Sprint("chat ", i%3))
		s.add(run)
		runs = append(runs, run)
	}
	s.withdraw(runs[3], ended())
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
		s.finish(claim, ended())
	}
	late := s.addTo("chat 0")[0]
	for _, claim := range s.claimAll(runs[6], runs[4], runs[5]) {
		s.finish(claim, ended())
	}
	for _, claim := range s.claimAll(runs[9], runs[7], runs[8]) {
		s.finish(claim, ended())
	}
	for _, claim := range s.claimAll(late, runs[10], runs[11]) {
		s.finish(claim, ended())
	}
	s.claimAll()
}

// A store that is shared cannot know that the claimer is gone before the lease is over.
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
	s.finish(claim, ended())
	s.status(runs[0], engine.Completed, 2)

	// Likewise when it was claimed at the end of another one.
	next := s.finishAnd(s.claimFirst(runs[1]), ended(), engine.Want{Runs: 1, Lease: shortLease})
	s.sameRuns("claimed", next, runs[2])
	s.reopen()
	s.status(runs[1], engine.Completed, 1)
	claim = s.reclaim(runs[2])
	if claim.Attempt != 2 {
		t.Errorf("claimed for attempt %d, want 2", claim.Attempt)
	}
	s.finish(claim, ended())
	s.claimAll()
}

func attemptsAreThere(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	s.abandon(runs[0])
	for attempt := 2; attempt < 6; attempt++ {
		if attempt != 3 { // some end with the process, some do not
			s.reopen()
		}
		var claims []*engine.Claim
		eventually(t, "the run is handed out again", func() bool {
			claims = s.claimWith(engine.Want{Runs: 1, Lease: shortLease})
			return len(claims) > 0
		})
		s.sameRuns("claimed", claims, runs[0])
		if claims[0].Attempt != attempt {
			t.Errorf("claimed for attempt %d, want %d", claims[0].Attempt, attempt)
		}
	}
	s.release(s.reclaim(runs[0]))
	s.reopen()
	s.status(runs[0], engine.Queued, 5)
	s.withdraw(runs[0], ended())
	s.reopen()
	s.status(runs[0], engine.Completed, 5)
	s.claimThrough(runs[1])
}

func releasedRunsAreThere(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	s.release(s.claimFirst(runs[0]))
	s.reopen()
	same(t, "the released run", s.get(runs[0].ID), &engine.Record{Run: runs[0], Status: engine.Queued})
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
		{Status: engine.Cancelled, Message: "cancelled"},
	} {
		for _, withdrawn := range []bool{false, true} {
			run := fullRun(t, "a")
			s.add(run)
			end := engine.End{Outcome: outcome, At: time.Now()}
			for index := range i {
				end.Deliveries = append(end.Deliveries, newDelivery(run, index, time.Now().Add(time.Hour)))
			}
			record := recordOf(run, end)
			if withdrawn {
				s.withdraw(run, end)
			} else {
				claim := s.claimFirst(run)
				s.finish(claim, end)
				record.Attempts, record.StartedAt = 1, claim.StartedAt
			}
			want[run.ID] = record
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
	start := longAgo()
	run, deliveries := s.endWith(start, start.Add(time.Second), start.Add(2*time.Second), start.Add(3*time.Second))
	_, waiting := s.endWith(start.Add(time.Hour))
	got := s.handsOut(start.Add(time.Minute), deliveries, start.Add(time.Hour))
	s.settle(got[0], engine.Delivered, got[0].Due, "")
	s.settle(got[1], engine.Dead, got[1].Due, "no such chat")
	s.settle(got[2], engine.Pending, start.Add(30*time.Minute), "busy")
	// The last one is under way.
	before := s.get(run.ID)
	s.reopen()
	same(t, "the run", s.get(run.ID), before)
	tried := *deliveries[2]
	tried.Due, tried.Attempt, tried.LastError = start.Add(30*time.Minute), 1, "busy"
	got = s.handsOut(time.Now(), []*engine.Delivery{deliveries[3], &tried, waiting[0]}, time.Time{})
	for _, d := range got {
		s.settle(d, engine.Delivered, d.Due, "")
	}
	s.reopen()
	s.noneDue()
	for i, want := range []engine.DeliveryStatus{engine.Delivered, engine.Dead, engine.Delivered, engine.Delivered} {
		if d := s.get(run.ID).Deliveries[i]; d.Status != want {
			t.Errorf("delivery %d is %s, want %s", i, d.Status, want)
		}
	}
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
		if err := s.Add(t.Context(), run, limits); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	// The first has made room. One run is forgotten, one has ended, one has ended in a way that frees its key, one has
	// left its key to a run that came later, and two are queued.
	s.withdraw(runs[1], ended())
	s.prune(time.Now().Add(2*time.Hour), limits)
	s.withdraw(runs[2], ended())
	s.withdraw(runs[3], endedAs(engine.Cancelled, ""))
	s.withdraw(runs[4], endedAs(engine.Cancelled, ""))
	heir := keyed("heir", runs[4].Key)
	s.add(heir)
	s.reopen()
	known := []*engine.Run{runs[1], runs[2], heir, runs[5], runs[6]}
	for _, run := range known {
		s.duplicateOf(run, keyed("new", run.Key), limits)
		s.duplicateOf(run, keyed("new", another(run.Key)), limits)
	}
	for _, i := range []int{0, 3} {
		if err := s.Add(t.Context(), keyed("new", runs[i].Key), engine.Limits{}); err != nil {
			t.Errorf("key %d is not free: %v", i, err)
		}
	}
	// There are 7 keys now. One more makes 8, and of those the oldest have to make room.
	if err := s.Add(t.Context(), keyed("new", newKey()), limits); err != nil {
		t.Fatal(err)
	}
	for _, run := range known[2:] {
		s.duplicateOf(run, keyed("new", run.Key), limits)
	}
	for _, run := range known[:2] {
		if err := s.Add(t.Context(), keyed("new", run.Key), engine.Limits{}); err != nil {
			t.Errorf("a key has not made room for others: %v", err)
		}
	}
}

func limitsCountWhatWasThere(_ *testing.T, s *store) {
	runs := s.addTo("a", "a", "b", "a")
	s.withdraw(runs[1], ended())
	s.reopen()
	s.refuse(newRun("c"), engine.Limits{Queue: 3}, engine.ErrQueueFull)
	s.refuse(newRun("a"), engine.Limits{Chat: 2}, engine.ErrChatFull)
	if err := s.Add(s.t.Context(), newRun("b"), engine.Limits{Queue: 4, Chat: 2}); err != nil {
		s.t.Error(err)
	}
}

func forgottenStaysSo(t *testing.T, s *store) {
	pruned, withPending := keyed("a", newKey()), newRun("a")
	s.carryOut(pruned, endedAt(time.Now()))
	s.add(withPending)
	end := ended()
	end.Deliveries = []*engine.Delivery{newDelivery(withPending, 0, longAgo())}
	s.finish(s.claimFirst(withPending), end)
	limits := engine.Limits{Retention: time.Hour, KeyAge: time.Hour}
	s.prune(time.Now().Add(2*time.Hour), limits)
	s.reopen()
	s.gone(pruned.ID)
	s.lists(engine.Query{}, withPending)
	if err := s.Add(t.Context(), keyed("a", pruned.Key), engine.Limits{}); err != nil {
		t.Errorf("the key is there again: %v", err)
	}
	s.prune(time.Now().Add(2*time.Hour), limits)
	s.status(withPending, engine.Completed, 1)
	s.settle(s.handsOut(time.Now(), end.Deliveries, time.Time{})[0], engine.Delivered, longAgo(), "")
	s.reopen()
	s.prune(time.Now().Add(2*time.Hour), limits)
	s.gone(withPending.ID)
}

func settingsAreThere(t *testing.T, s *store) {
	s.reopen()
	noSettings(t, s)
	for _, settings := range []string{`{"enabled": true}`, `{"enabled": false}`} {
		if err := s.SaveSettings(t.Context(), []byte(settings)); err != nil {
			t.Fatal(err)
		}
		s.reopen()
		if got, err := s.Settings(t.Context()); err != nil || !bytes.Equal(got, []byte(settings)) {
			t.Errorf("got %q and %v, want %q", got, err, settings)
		}
	}
}

// In a synctest bubble it is the year 2000.
func idsAscendAfterClockWasSetBack(t *testing.T, s *store) {
	queued := s.addTo("a")[0]
	synctest.Test(t, func(t *testing.T) {
		bubble := s.in(t)
		bubble.reopen()
		s.Store = nil // it is closed
		defer func() {
			if err := bubble.Close(); err != nil {
				t.Error(err)
			}
		}()
		second := bubble.addTo("a")[0]
		if second.ID <= queued.ID {
			t.Errorf("%s was given out after %s", second.ID, queued.ID)
		}
		bubble.withdraw(second, ended())
		bubble.reopen()
		third := bubble.addTo("a")[0]
		if third.ID <= second.ID {
			t.Errorf("%s was given out after %s, which has ended", third.ID, second.ID)
		}
		bubble.claimThrough(queued, third)
	})
}

// allIsAsItWas compares all that can be seen of a store before and after.
func allIsAsItWas(t *testing.T, s *store) {
	chance := random(1)
	var known []*engine.Run
	for round := range 6 {
		for range 60 {
			s.doSomething(chance.IntN(10), &known)
		}
		// What is claimed would not be the same.
		records := map[string]*engine.Record{}
		queues := map[string][]*engine.Run{}
		pending := []*engine.Delivery{}
		for _, run := range known {
			record, err := s.Get(t.Context(), run.ID)
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
		due, _ := s.due(time.Now(), len(pending)+10)
		if !slices.IsSortedFunc(due, func(a, b *engine.Delivery) int { return a.Due.Compare(b.Due) }) {
			t.Error("what is due is not in order")
		}
		for _, all := range [][]*engine.Delivery{due, pending} {
			slices.SortFunc(all, func(a, b *engine.Delivery) int { return strings.Compare(a.ID, b.ID) })
		}
		for _, d := range due {
			if want := fmt.Sprintf("body %d of run %s", d.Index, d.RunID); d.Body != want {
				t.Errorf("a delivery has body %q, want %q", d.Body, want)
			}
			d.Body = ""
		}
		same(t, "what is due", due, pending)
		for _, d := range due {
			d.Body = fmt.Sprintf("body %d of run %s", d.Index, d.RunID)
			s.settle(d, engine.Pending, d.Due, fmt.Sprint("failed in round ", round))
		}
		first := []*engine.Run{}
		for _, runs := range queues {
			first = append(first, runs[0])
		}
		for _, claim := range s.claimAll(first...) {
			if claim.Attempt != records[claim.Run.ID].Attempts+1 {
				t.Errorf("claimed for attempt %d after %d", claim.Attempt, records[claim.Run.ID].Attempts)
			}
			s.release(claim)
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
		for i, claim := range s.claim(2) {
			end := ended()
			end.Deliveries = []*engine.Delivery{newDelivery(claim.Run, 0, longAgo().Add(time.Duration(n*what-i)*time.Minute))}
			if what == 4 {
				s.finish(claim, end)
			} else {
				s.release(claim)
			}
		}
	case 7:
		if queued := s.list(engine.Query{Status: engine.Queued}); len(queued) > 0 {
			s.withdraw(queued[len(queued)/2].Run, ended())
		}
	case 8:
		due, _ := s.due(time.Now(), 2)
		for i, d := range due {
			s.settle(d, []engine.DeliveryStatus{engine.Delivered, engine.Dead}[i], d.Due, "")
		}
	case 9:
		// Those that have ended by now, but for what is still to be delivered.
		s.prune(time.Now().Add(time.Hour), engine.Limits{Retention: time.Hour})
	}
}
