package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var waitChecks = []check{
	{"a run that waits is not handed out before its time", waitingRunIsNotHandedOut},
	{"a run says why it waits", waitIsShown},
	{"Resume ends the waits of the runners it names", resumeNamesRunners},
	{"Resume leaves word", resumeLeavesWord},
	{"a run that is held back is not tried", heldIsNotTried},
	{"a run that is held back is overdue as others are", heldIsOverdue},
	{"a run that was interrupted counts as started, and pauses", interruptedRunPauses},
	{"a batch keeps to its bounds", batchKeepsToBounds},
	{"a claim made at the end of another run keeps to its bounds", nextKeepsToBounds},
	{"a batch leaves chats out", batchLeavesChatsOut},
	{"a run is overdue when its queue time is over", overdueInTime},
	{"the number of overdue runs is bounded", overdueIsBounded},
	{"a run that was started is not overdue unless it waits", startedIsNotOverdue},
	{"a run that was interrupted is not overdue", interruptedIsNotOverdue},
}

// waitFor is the end of a claim on a run that is to wait.
func waitFor(pause time.Duration) engine.End {
	return engine.End{Requeue: true, WaitingFor: "The agent is unreachable.", Pause: pause}
}

// addFor adds a run for a runner to a chat of its own.
func (s *store) addFor(runner string) *engine.Run {
	s.t.Helper()
	run := newRun("a chat for " + runner)
	run.Runner = runner
	s.add(run)
	return run
}

func (s *store) resume(runners ...string) {
	s.t.Helper()
	if err := s.Runs().Resume(s.t.Context(), runners...); err != nil {
		s.t.Fatalf("resuming runs of %q: %v", runners, err)
	}
}

// overdue expects these runs to be overdue, and the next one after a time, negative if there is none.
func (s *store) overdue(wait time.Duration, runs ...*engine.Run) []*engine.Run {
	s.t.Helper()
	got, until, err := s.Runs().Overdue(s.t.Context(), len(runs)+10)
	if err != nil {
		s.t.Fatalf("looking for overdue runs: %v", err)
	}
	gotIDs, wantIDs := []string{}, []string{}
	for _, run := range got {
		gotIDs = append(gotIDs, run.ID)
	}
	for _, run := range runs {
		wantIDs = append(wantIDs, run.ID)
	}
	slices.Sort(gotIDs)
	slices.Sort(wantIDs)
	if !slices.Equal(gotIDs, wantIDs) {
		s.t.Fatalf("overdue are %v, want %v", gotIDs, wantIDs)
	}
	if len(runs) == 0 {
		s.isWait("until a run is overdue", until, wait)
	}
	return got
}

// isWait expects a time to wait for, or none.
func (s *store) isWait(name string, got, want time.Duration) {
	s.t.Helper()
	if want < 0 && got >= 0 || want >= 0 && (got < want-patience || got > want+slack) {
		s.t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func waitingRunIsNotHandedOut(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.end(s.claimFirst(run), waitFor(time.Hour))
	s.claimAll()
	s.advance(time.Hour - time.Minute)
	s.claimAll()
	s.advance(time.Minute + slack)
	s.end(s.claimFirst(run), ended())
	s.status(run, engine.Completed, 1)
}

func waitIsShown(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	claim := s.claimFirst(runs[0])
	wantReason := func(want string) {
		t.Helper()
		if got := s.get(runs[0].ID); got.WaitingFor != want {
			t.Errorf("a run that is %s waits for %q, want %q", got.Status, got.WaitingFor, want)
		}
		if listed := s.list(engine.Query{ChatID: "a"}); listed[1].WaitingFor != want || listed[0].WaitingFor != "" {
			t.Errorf("the list says %q and %q", listed[1].WaitingFor, listed[0].WaitingFor)
		}
	}
	wantReason("")
	s.end(claim, waitFor(time.Hour))
	wantReason("The agent is unreachable.")
	s.advance(time.Hour + slack)
	claim = s.claimFirst(runs[0])
	wantReason("")
	s.end(claim, waitFor(time.Hour))
	s.resume()
	wantReason("")
	s.end(s.claimFirst(runs[0]), ended())
	wantReason("")
}

func resumeNamesRunners(t *testing.T, s *store) {
	one, two, none := s.addFor("one"), s.addFor("two"), s.addFor("")
	for _, claim := range s.claimAll(one, two, none) {
		s.end(claim, waitFor(time.Hour))
	}
	s.resume("three")
	s.claimAll()
	s.resume("one", "")
	for _, claim := range s.claimAll(one, none) {
		if claim.Waits != 0 {
			t.Errorf("a run that was resumed has %d waits", claim.Waits)
		}
	}
	s.advance(time.Hour + slack)
	if claim := s.claimFirst(two); claim.Waits != 1 {
		t.Errorf("a run that was not resumed has %d waits", claim.Waits)
	}
}

func resumeLeavesWord(_ *testing.T, s *store) {
	run := s.addTo("a")[0]
	s.end(s.claimFirst(run), waitFor(time.Hour))
	hears(s.t, s.Watch().Claimable(), "waits were ended", func() { s.resume() })
}

// heldFor is the end of a claim on a run that is held back.
func heldFor(pause time.Duration) engine.End {
	return engine.End{Requeue: true, WaitingFor: "The budget is used up.", Pause: pause, Held: true}
}

func heldIsNotTried(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	claim := s.claimFirst(run)
	held, wait := heldFor(time.Hour), waitFor(time.Hour)
	for i, then := range []struct {
		end   engine.End
		waits int
	}{{held, 1}, {held, 1}, {wait, 2}, {wait, 3}, {held, 3}, {wait, 4}} {
		s.end(claim, then.end)
		if record := s.get(run.ID); record.Status != engine.Queued || record.Attempts != 0 || record.WaitingFor != then.end.WaitingFor {
			t.Errorf("after end %d it is %s, started %d times, and waits for %q", i, record.Status, record.Attempts, record.WaitingFor)
		}
		s.claimAll()
		s.advance(time.Hour + slack)
		if claim = s.claimFirst(run); claim.Attempt != 1 || claim.Waits != then.waits {
			t.Errorf("after end %d it is attempt %d after %d waits, want 1 and %d", i, claim.Attempt, claim.Waits, then.waits)
		}
	}
	s.end(claim, held)
	s.resume()
	claim = s.starts(run, 1)
	cutOff := interrupted(time.Hour)
	cutOff.Held = true
	s.end(claim, cutOff)
	s.advance(time.Hour + slack)
	s.starts(run, 2)
}

func heldIsOverdue(_ *testing.T, s *store) {
	run := s.addWithQueueTime(2 * time.Hour)
	s.end(s.claimFirst(run), heldFor(time.Hour))
	s.overdue(2 * time.Hour)
	s.advance(time.Hour + slack)
	s.end(s.claimFirst(run), interrupted(0))
	s.overdue(-1)
	s.end(s.starts(run, 2), heldFor(3*time.Hour))
	s.overdue(time.Hour - slack)
	s.advance(time.Hour)
	s.overdue(0, run)
	s.resume()
	s.overdue(-1)
}

// interrupted is the end of a claim on a run whose turn was cut off, and that pauses unless it may start at once.
func interrupted(pause time.Duration) engine.End {
	end := engine.End{Requeue: true, Interrupted: true}
	if pause > 0 {
		end.WaitingFor, end.Pause = "The agent went down.", pause
	}
	return end
}

// starts expects a run to be handed out for the nth time, though it did not have to wait for its runner.
func (s *store) starts(run *engine.Run, attempt int) *engine.Claim {
	s.t.Helper()
	claim := s.claimFirst(run)
	if claim.Attempt != attempt || claim.Waits != 0 {
		s.t.Errorf("attempt %d after %d waits, want %d and 0", claim.Attempt, claim.Waits, attempt)
	}
	return claim
}

func interruptedRunPauses(t *testing.T, s *store) {
	runs := s.addTo("a", "a")
	s.end(s.starts(runs[0], 1), interrupted(time.Hour))
	s.status(runs[0], engine.Queued, 1)
	if got := s.get(runs[0].ID).WaitingFor; got != "The agent went down." {
		t.Errorf("it waits for %q", got)
	}
	s.claimAll()
	s.resume() // which is for runs that wait for their runner
	s.claimAll()
	s.advance(time.Hour + slack)
	claim := s.starts(runs[0], 2)
	s.end(claim, interrupted(0))
	claim = s.starts(runs[0], 3)
	s.requeue(claim) // this start does not count
	s.status(runs[0], engine.Queued, 2)
	s.end(s.starts(runs[0], 3), ended())
	s.status(runs[0], engine.Completed, 3)
	s.starts(runs[1], 1)
}

func interruptedIsNotOverdue(_ *testing.T, s *store) {
	run := newRun("a")
	run.QueueTime = time.Hour
	s.add(run)
	s.end(s.claimFirst(run), waitFor(time.Minute))
	s.advance(time.Minute + slack)
	s.end(s.claimFirst(run), interrupted(3*time.Hour))
	s.advance(2 * time.Hour)
	s.overdue(-1)
	s.advance(time.Hour + slack)
	// If nobody takes it on after that, it is.
	s.end(s.starts(run, 2), waitFor(time.Hour))
	s.overdue(0, run)
	s.advance(time.Hour + slack)
	s.end(s.claimFirst(run), interrupted(0))
	s.starts(run, 3) // it has waited for no runner since
}

// bounded is a batch with one bound.
func bounded(runs, atMost int, runners ...string) engine.Batch {
	batch := upTo(runs)
	batch.Bounds = []engine.Bound{{Runners: runners, AtMost: atMost}}
	return batch
}

func (s *store) claimBatch(batch engine.Batch, runs ...*engine.Run) []*engine.Claim {
	s.t.Helper()
	claims, _, err := s.Runs().Claim(s.t.Context(), batch)
	if err != nil {
		s.t.Fatalf("claiming: %v", err)
	}
	s.sameRuns("claimed", claims, runs...)
	return claims
}

func batchKeepsToBounds(_ *testing.T, s *store) {
	var runs []*engine.Run
	for _, chat := range []string{"a", "b", "c", "d"} {
		run := newRun(chat)
		run.Runner = map[string]string{"a": "one", "b": "", "c": "two", "d": "one"}[chat]
		s.add(run)
		runs = append(runs, run)
	}
	s.claimBatch(bounded(10, 0, "one", "", "two"))
	s.claimBatch(bounded(0, 5, "one"))
	s.claimBatch(bounded(10, 0, "one", ""), runs[2])
	s.claimBatch(bounded(10, 1, "one", ""), runs[0])
	batch := upTo(10)
	batch.Bounds = []engine.Bound{{Runners: []string{"one"}, AtMost: 0}, {Runners: []string{""}, AtMost: 3}}
	s.claimBatch(batch, runs[1])
	s.claimBatch(bounded(10, 7, "nobody"), runs[3])
}

func nextKeepsToBounds(_ *testing.T, s *store) {
	one, two := s.addFor("one"), s.addFor("two")
	claim := s.claimBatch(bounded(1, 0, "two"), one)[0]
	s.sameRuns("claimed", s.endAnd(claim, ended(), bounded(1, 0, "two")))
	s.claimFirst(two)
}

// without is a batch that leaves chats out.
func without(runs int, chats ...string) engine.Batch {
	batch := upTo(runs)
	batch.Without = chats
	return batch
}

// Chats that are left out stay where they are, however many there are, and all other chats go on.
func batchLeavesChatsOut(_ *testing.T, s *store) {
	var chats []string
	var held []*engine.Run
	for i := range engine.MaxWithout {
		chats = append(chats, fmt.Sprint("paused ", i))
		held = append(held, newRun(chats[i]))
		s.add(held[i])
	}
	second := newRun(chats[0])
	s.add(second)
	a, b, c := newRun("a"), newRun("b"), newRun("c")
	c.Runner = "two"
	for _, run := range []*engine.Run{a, b, c} {
		s.add(run)
	}
	claim := s.claimBatch(without(1, chats...), a)[0]
	s.sameRuns("claimed", s.endAnd(claim, ended(), without(5, append(chats[:len(chats)-1:len(chats)-1], "c")...)), held[len(held)-1], b)
	batch := without(5, chats...)
	batch.Bounds = []engine.Bound{{Runners: []string{"two"}, AtMost: 0}}
	s.claimBatch(batch)
	batch.Bounds[0].AtMost = 1
	s.claimBatch(batch, c)
	s.claimBatch(without(5, append(chats[1:len(chats):len(chats)], "nobody's")...), held[0])
	s.claimBatch(without(5, chats[1:]...)) // the chat's next run waits for this one, as ever
	s.claimBatch(upTo(2), held[1], held[2])
}

// addWithQueueTime adds a run to a chat.
func (s *store) addWithQueueTime(queueTime time.Duration) *engine.Run {
	s.t.Helper()
	run := newRun("a")
	run.QueueTime = queueTime
	s.add(run)
	return run
}

func overdueInTime(_ *testing.T, s *store) {
	s.overdue(-1)
	long, short := s.addWithQueueTime(3*time.Hour), s.addWithQueueTime(time.Hour)
	s.overdue(time.Hour)
	s.advance(time.Hour - time.Minute)
	s.overdue(time.Minute)
	s.advance(time.Minute + slack)
	s.overdue(0, short)
	s.overdue(0, short) // it stays until somebody ends it
	s.endQueued(short, endedAs(engine.Expired, ""))
	s.overdue(2*time.Hour - slack)
	s.status(short, engine.Expired, 0)
	s.lists(engine.Query{Statuses: []engine.Status{engine.Expired}}, short)
	s.advance(2 * time.Hour)
	s.overdue(0, long)
}

func overdueIsBounded(t *testing.T, s *store) {
	for range 20 {
		s.addWithQueueTime(time.Hour)
	}
	s.advance(time.Hour + slack)
	for _, most := range []int{0, 1, 7} {
		if runs, _, err := s.Runs().Overdue(t.Context(), most); err != nil || len(runs) != most {
			t.Errorf("got %d overdue runs of up to %d: %v", len(runs), most, err)
		}
	}
}

func startedIsNotOverdue(_ *testing.T, s *store) {
	run := s.addWithQueueTime(10 * shortLease)
	s.abandon(run)
	claim := s.reclaimFor(shortLease, run)
	s.requeue(claim) // it was started once, and is queued
	s.advance(20 * shortLease)
	s.overdue(-1)
	s.end(s.claimFirst(run), waitFor(time.Hour))
	s.overdue(0, run)
	s.resume()
	s.overdue(-1)
}
