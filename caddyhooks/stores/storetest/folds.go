package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var foldChecks = []check{
	{"a fold is handed out when its window is over", foldAfterWindow},
	{"a fold is handed out when it has as many runs as it may have", foldAtMax},
	{"no other run is taken along", foldTakesNoOthers},
	{"runs of other hooks divide folds, and those that leave do not", foldsAreDivided},
	{"a run leaves a fold that was not handed out, and the next one leads", foldIsLeft},
	{"word comes when a window is opened, and when a fold is full", wordOfFolds},
	{"word comes when a window is open after the end of another run", wordOfNextWindow},
	{"all runs of a fold are carried out, and can be cancelled", foldUnderWay},
	{"all runs of a fold end alike, each with its own record", foldEnds},
	{"a fold is one past turn", foldIsOneTurn},
	{"a fold that waits takes more along", foldWaits},
	{"a fold whose lease is over comes back as it was", foldLeaseIsOver},
	{"a fold whose lease is over can be renewed unless it has changed", foldIsTakenBack},
	{"runs that a caller waits for and runs that are run again are alone", foldsOfNobody},
	{"messages of a fold are not more than a turn takes", foldOfLargeMessages},
	{"overdue runs leave their fold", foldOverdue},
	{"limits hold for runs that are folded", foldLimits},
	{"a batch counts turns, and bounds hold for hooks", foldsOfABatch},
}

const foldWindow = time.Hour

// folding makes a run that is folded.
func folding(chat, hook string, most int) *engine.Run {
	run := newRun(chat)
	run.Hook, run.Fold = hook, engine.Fold{Window: foldWindow, Max: most}
	return run
}

// addFolding adds runs of a hook to a chat.
func (s *store) addFolding(chat, hook string, most, n int) (runs []*engine.Run) {
	s.t.Helper()
	for range n {
		runs = append(runs, folding(chat, hook, most))
	}
	s.add(runs...)
	return runs
}

// isFold expects a claim of these runs, in this order.
func (s *store) isFold(claim *engine.Claim, runs ...*engine.Run) *engine.Claim {
	s.t.Helper()
	var got, want []string
	for _, run := range append([]*engine.Run{claim.Run}, claim.Folded...) {
		got = append(got, run.ID)
	}
	for _, run := range runs {
		want = append(want, run.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Fatalf("claimed together %v, want %v", got, want)
	}
	return claim
}

// claimFold takes one fold, and expects it to be of these runs, in this order.
func (s *store) claimFold(runs ...*engine.Run) *engine.Claim {
	s.t.Helper()
	claim := s.isFold(s.claimFirst(runs[0]), runs...)
	for i, run := range runs[1:] {
		same(s.t, "a folded run", claim.Folded[i], run)
	}
	return claim
}

// claimFoldFor is claimFold for a lease.
func (s *store) claimFoldFor(lease time.Duration, runs ...*engine.Run) *engine.Claim {
	s.t.Helper()
	claims := s.claimFor(lease, 1)
	s.sameRuns("claimed", claims, runs[0])
	return s.isFold(claims[0], runs...)
}

func foldAfterWindow(_ *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 10, 2)
	s.claimAll()
	s.advance(foldWindow - time.Minute)
	runs = append(runs, s.addFolding("a", "storm", 10, 1)...)
	s.claimAll()
	s.advance(time.Minute + slack)
	runs = append(runs, s.addFolding("a", "storm", 10, 1)...) // the window is over, and nobody has claimed it
	s.end(s.claimFold(runs...), ended())

	// What comes then has a window of its own.
	next := s.addFolding("a", "storm", 10, 1)
	s.claimAll()
	s.advance(foldWindow + slack)
	s.claimFold(next...)
	s.claimAll()
}

func foldAtMax(_ *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 3, 2)
	s.claimAll()
	runs = append(runs, s.addFolding("a", "storm", 3, 5)...)
	claim := s.claimFold(runs[:3]...)
	s.claimAll()
	s.end(claim, ended())
	claim = s.claimFold(runs[3:6]...)
	s.end(claim, ended())
	s.claimAll()
	s.advance(foldWindow + slack)
	s.claimFold(runs[6])
}

func foldTakesNoOthers(_ *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 10, 2)
	unfolded := newRun("a")
	unfolded.Hook = "storm"
	s.add(unfolded)
	behind := s.addFolding("a", "storm", 10, 1)
	elsewhere := s.addFolding("b", "storm", 10, 2)
	byAnother := folding("a", "storm", 10)
	byAnother.Runner = "another"
	s.add(byAnother)
	s.advance(foldWindow + slack)
	for _, claim := range s.claimAll(runs[0], elsewhere[0]) {
		if claim.Run.ID == runs[0].ID {
			s.end(s.isFold(claim, runs...), ended())
		} else {
			s.isFold(claim, elsewhere...)
		}
	}
	s.end(s.claimFold(unfolded), ended())
	s.end(s.claimFold(behind...), ended())
	s.claimFold(byAnother)
}

func foldsAreDivided(_ *testing.T, s *store) {
	first := s.addFolding("a", "storm", 4, 2)
	divides := s.addTo("a")[0]
	second := s.addFolding("a", "storm", 4, 2)
	s.claimAll()
	s.endQueued(divides, endedAs(engine.Cancelled, "")) // nothing is between them any more
	claim := s.claimFold(append(first, second...)...)
	s.end(claim, ended())

	// Nor is a run of another hook taken along, though it is folded too.
	third := s.addFolding("a", "storm", 10, 1)
	other := s.addFolding("a", "calm", 10, 2)
	fourth := s.addFolding("a", "storm", 10, 2)
	s.advance(foldWindow + slack)
	s.end(s.claimFold(third...), ended())
	s.end(s.claimFold(other...), ended())
	s.end(s.claimFold(fourth...), ended())
	s.claimAll()
}

func foldIsLeft(_ *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 4, 3)
	s.advance(foldWindow / 2)
	late := s.addFolding("a", "storm", 4, 1)
	s.endQueued(runs[1], endedAs(engine.Cancelled, "")) // it was full, and is not any more
	s.claimAll()
	s.endQueued(runs[0], endedAs(engine.Cancelled, ""))
	s.endQueued(runs[2], endedAs(engine.Cancelled, ""))
	s.advance(foldWindow/2 + slack)
	s.claimAll() // the next one leads, with its own window
	s.advance(foldWindow / 2)
	s.claimFold(late...)
}

// waitsAnHour expects Claim to have nothing, and to tell an hour: a window that was just opened, or a pause.
func (s *store) waitsAnHour() {
	s.t.Helper()
	claims, wait, err := s.Runs().Claim(s.t.Context(), upTo(1))
	if err != nil || len(claims) > 0 {
		s.t.Fatalf("claimed %d runs, %v, want none", len(claims), err)
	}
	s.isWait("until a run is due", wait, time.Hour)
}

func wordOfFolds(t *testing.T, s *store) {
	word := s.Watch().Claimable()
	var runs []*engine.Run
	hears(t, word, "a window was opened", func() { runs = s.addFolding("a", "storm", 3, 2) })
	hears(t, word, "a fold was full", func() { runs = append(runs, s.addFolding("a", "storm", 3, 1)...) })
	s.claimFold(runs...)
	hears(t, word, "a window was opened that is over before all others", func() {
		short := folding("b", "storm", 3)
		short.Fold.Window = time.Minute
		s.add(short)
	})
}

func wordOfNextWindow(t *testing.T, s *store) {
	first := s.addTo("a")[0]
	claim := s.claimFirst(first)
	s.addFolding("a", "storm", 10, 1)
	hears(t, s.Watch().Claimable(), "a window is open", func() { s.end(claim, ended()) })
	s.waitsAnHour()
}

func foldUnderWay(t *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 3, 4)
	claim := s.claimFold(runs[:3]...)
	for _, run := range runs[:3] {
		s.status(run, engine.Running, 1)
		same(t, "the start", s.get(run.ID).StartedAt, claim.StartedAt)
	}
	s.status(runs[3], engine.Queued, 0)
	s.backlogIs(engine.Backlog{Queued: 1, Running: 3})
	s.lists(engine.Query{ChatID: "a", Statuses: []engine.Status{engine.Running}}, runs[:3]...)
	s.lists(engine.Query{ChatID: "a"}, runs...)
	s.lists(engine.Query{Statuses: []engine.Status{engine.Running}}, runs[:3]...)
	if chats := s.chats(engine.ChatQuery{}); len(chats) != 1 || chats[0].Runs != 4 || chats[0].Last.Run.ID != runs[3].ID {
		t.Errorf("the chats are %+v", chats)
	}
	s.endsNothing(queued(runs[1]), ended())
	s.endsNothing(&engine.Claim{Run: runs[1], Token: claim.Token}, ended())
	s.endsNothing(&engine.Claim{Run: runs[0], Token: claim.Token}, ended()) // without the others
	s.holds(longLease, claim)

	hears(t, s.Watch().Cancelled(), "a folded run is to be cancelled", func() { s.cancel(runs[2]) })
	_, wishes, err := s.Runs().Renew(t.Context(), []*engine.Claim{claim}, longLease)
	if err != nil || len(wishes) != 1 || wishes[0].Claim != claim || wishes[0].RunID != runs[2].ID || wishes[0].By != "somebody" {
		t.Errorf("cancelled are %+v, %v", wishes, err)
	}
	s.cancel(runs[0])
	if _, wishes, _ = s.Runs().Renew(t.Context(), []*engine.Claim{claim}, longLease); len(wishes) != 2 || wishes[1].RunID != runs[0].ID {
		t.Errorf("cancelled are %+v, want two runs of the claim", wishes)
	}
}

// foldedEnd is the end of a fold with all that an end may have. The second run and the first have deliveries.
func (s *store) foldedEnd(runs []*engine.Run) engine.End {
	end := engine.End{Outcome: fullOutcome(s.t)}
	end.Steps = twoSteps(s.t, runs[0])
	end.Deliveries = []*engine.Delivery{newDelivery(runs[0], 0), newDelivery(runs[1], 0), newDelivery(runs[1], 1)}
	return end
}

// foldedRecords are the records that are expected of runs that have just ended together.
func (s *store) foldedRecords(claim *engine.Claim, end engine.End) (records []*engine.Record) {
	s.t.Helper()
	for i, run := range append([]*engine.Run{claim.Run}, claim.Folded...) {
		own := end
		own.Deliveries = nil
		for _, d := range end.Deliveries {
			if d.RunID == run.ID {
				own.Deliveries = append(own.Deliveries, d)
			}
		}
		record := s.recordOf(run, claim, own)
		if i == 0 {
			record.Folded = 1 + len(claim.Folded)
		} else {
			record.FoldedInto = claim.Run.ID
			record.Outcome.Usage = nil
		}
		records = append(records, record)
	}
	return records
}

func foldEnds(t *testing.T, s *store) {
	var runs []*engine.Run
	for i := range 3 {
		run := fullRun(t, "a")
		run.Sync, run.AgainOf, run.Fold = false, "", engine.Fold{Window: foldWindow, Max: 3}
		run.History = time.Duration(i) * time.Hour
		s.add(run)
		runs = append(runs, run)
	}
	claim := s.claimFold(runs...)
	var ends []<-chan struct{}
	for _, run := range runs {
		end, stop := s.Watch().Ended(run.ID)
		defer stop()
		ends = append(ends, end)
	}
	end := s.foldedEnd(runs)
	end.Session = engine.Session{Runner: "a runner", ID: "a session"}
	next := s.addTo("a")[0]
	s.sameRuns("claimed", s.endAnd(claim, end, upTo(10)), next)
	for i, want := range s.foldedRecords(claim, end) {
		hear(t, ends[i], "the end of a fold")
		same(t, fmt.Sprint("record ", i), s.get(runs[i].ID), want)
		s.unfinished(runs[i].ID, false)
	}
	s.sessionIs("a", "a session")
	s.handsOut(10, end.Deliveries, notATime)

	// Each of them has its own keys.
	for _, run := range runs {
		s.duplicateOf(run, keyed("b", run.Key), engine.Limits{})
	}
}

func foldIsOneTurn(t *testing.T, s *store) {
	before := s.haveTurns("a", 1)
	var runs []*engine.Run
	for i := range 3 {
		run := folding("a", "storm", 3)
		run.MemoryPreset, run.History, run.Message = "general_chat", time.Hour, fmt.Sprint("message ", i)
		runs = append(runs, run)
	}
	s.add(runs...)
	s.end(s.claimFold(runs...), ended())
	after := s.haveTurns("a", 1)
	s.pastIs("a", 10, 1<<20, before[0], runs[0], after[0])
	s.pastIs("a", 2, 1<<20, runs[0], after[0])
	past, err := s.Runs().Past(t.Context(), "a", 2, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if turn := past[1]; len(turn.Followers) != 2 || turn.Folded != 3 || turn.Run.Message != "message 0" {
		t.Errorf("the turn is %+v with %d followers", turn, len(turn.Followers))
	} else {
		for i, follower := range turn.Followers {
			if follower.ID != runs[i+1].ID || follower.Message != runs[i+1].Message || !follower.AcceptedAt.Equal(runs[i+1].AcceptedAt) {
				t.Errorf("follower %d is %+v", i, follower)
			}
		}
	}
	// Their messages count.
	size := len(after[0].Message) + 2*len("an answer") + len("message 0")
	s.pastIs("a", 10, size, runs[0], after[0])
	s.pastIs("a", 10, size+2*len("message 0"), before[0], runs[0], after[0])
}

func foldWaits(t *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 10, 2)
	s.advance(foldWindow + slack)
	s.end(s.claimFold(runs...), waitFor(time.Hour))
	if record := s.get(runs[0].ID); record.WaitingFor == "" {
		t.Error("nobody is told why the fold waits")
	}
	s.waitsAnHour()
	runs = append(runs, s.addFolding("a", "storm", 10, 2)...)
	s.claimAll()
	s.advance(time.Hour + slack)
	claim := s.claimFold(runs...)
	if claim.Attempt != 1 || claim.Waits != 1 {
		t.Errorf("attempt %d after %d waits, want 1 and 1", claim.Attempt, claim.Waits)
	}
	s.end(claim, waitFor(time.Hour))
	s.resume()
	s.claimFold(runs...)
}

func foldLeaseIsOver(t *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 10, 2)
	s.advance(foldWindow + slack)
	old := s.claimFoldFor(shortLease, runs...)
	later := s.addFolding("a", "storm", 10, 2)
	s.advance(foldWindow + slack)
	claim := s.isFold(s.reclaim(runs[0]), runs...) // nobody else: the turn may be what broke the node
	if claim.Attempt != 2 {
		t.Errorf("attempt %d, want 2", claim.Attempt)
	}
	s.isLost(old)
	s.end(claim, ended())
	for _, run := range runs {
		s.status(run, engine.Completed, 2)
	}
	s.claimFold(later...)
}

func foldIsTakenBack(_ *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 3, 3)
	claim := s.claimFoldFor(shortLease, runs...)
	s.advance(shortLease + slack)
	s.holds(shortLease, claim)
	s.advance(shortLease + slack)
	s.backlogIs(engine.Backlog{Queued: 3, Oldest: 2 * shortLease})
	s.holds(shortLease, claim)
	s.backlogIs(engine.Backlog{Running: 3})
	s.advance(shortLease + slack)
	s.backlogIs(engine.Backlog{Queued: 3, Oldest: 3 * shortLease})
	s.endQueued(runs[1], endedAs(engine.Cancelled, ""))
	s.isLost(claim)
	s.advance(foldWindow)
	s.claimFold(runs[0], runs[2])
}

func foldsOfNobody(_ *testing.T, s *store) {
	leader := folding("a", "storm", 10)
	awaited, again := folding("a", "storm", 10), folding("a", "storm", 10)
	awaited.Sync, awaited.Owner = true, s.Node()
	again.AgainOf = "01890a5d-ac96-774b-bcce-b302099a8057"
	s.add(leader, awaited, again)
	s.advance(foldWindow + slack)
	s.end(s.claimFold(leader), ended())
	s.end(s.claimFold(awaited), ended())
	s.end(s.claimFold(again), ended())
}

func foldOfLargeMessages(_ *testing.T, s *store) {
	var runs []*engine.Run
	for range 5 {
		run := folding("a", "storm", 10)
		run.Message = strings.Repeat("x", engine.MaxFoldMessage/2)
		runs = append(runs, run)
	}
	runs[4].Message += runs[4].Message + "x" // too large for any fold
	s.add(runs...)
	s.end(s.claimFold(runs[:2]...), ended()) // it waits no longer, since there is no room for others
	s.end(s.claimFold(runs[2:4]...), ended())
	s.claimAll()
	s.advance(foldWindow + slack)
	s.end(s.claimFold(runs[4]), ended())
}

func foldOverdue(_ *testing.T, s *store) {
	runs := []*engine.Run{folding("a", "storm", 10), folding("a", "storm", 10), folding("a", "storm", 10)}
	runs[0].QueueTime, runs[1].QueueTime = time.Minute, time.Minute
	s.add(runs...)
	s.overdue(time.Minute)
	s.advance(time.Minute + slack)
	s.overdue(0, runs[0], runs[1])
	s.endQueued(runs[0], endedAs(engine.Expired, ""))
	s.endQueued(runs[1], endedAs(engine.Expired, ""))
	s.advance(foldWindow)
	s.claimFold(runs[2])
}

func foldLimits(t *testing.T, s *store) {
	runs := s.addFolding("a", "storm", 2, 2)
	s.refuse(folding("a", "storm", 2), engine.Limits{Chat: 2}, engine.ErrChatFull)
	s.refuse(folding("b", "storm", 2), engine.Limits{Queue: 2}, engine.ErrQueueFull)
	s.claimFold(runs...)
	if err := s.tryAdd(folding("a", "storm", 2), engine.Limits{Chat: 1, Queue: 1}); err != nil {
		t.Error(err)
	}
}

func foldsOfABatch(_ *testing.T, s *store) {
	a, b, c := s.addFolding("a", "storm", 3, 3), s.addFolding("b", "storm", 3, 3), s.addFolding("c", "storm", 3, 3)
	other := s.addTo("d")[0]
	ofHooks := func(runs, atMost int, hooks ...string) engine.Batch {
		batch := upTo(runs)
		batch.Bounds = []engine.Bound{{Hooks: hooks, AtMost: atMost}}
		return batch
	}
	s.claimBatch(ofHooks(10, 0, "storm", other.Hook))
	first := s.claimBatch(ofHooks(10, 1, "storm"), a[0], other)
	s.claimBatch(ofHooks(10, 0, "storm"))
	for _, claim := range first {
		if claim.Run.ID == a[0].ID {
			s.isFold(claim, a...)
			s.sameRuns("claimed", s.endAnd(claim, ended(), ofHooks(10, 1, "storm")), b[0])
		}
	}
	both := upTo(10)
	both.Bounds = []engine.Bound{{Hooks: []string{"storm"}, AtMost: 5}, {Runners: []string{""}, AtMost: 0}}
	s.claimBatch(both)
	s.isFold(s.claimBatch(ofHooks(1, 5, "storm"), c[0])[0], c...)
}

func setClockAndFolds(_ *testing.T, s *store) {
	for _, set := range someSets {
		run := s.addFolding("a", "storm", 10, 1)[0]
		s.setClock(set)
		s.waitsAnHour()
		s.advance(foldWindow + slack)
		s.end(s.claimedAfter(foldWindow, run), ended())
	}
}
