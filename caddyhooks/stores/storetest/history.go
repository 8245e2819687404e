package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var historyChecks = []check{
	{"a run keeps its input as long as it wants", keepsItsInput},
	{"the limit of time holds for all", limitOfTime},
	{"the oldest are forgotten when there is too much", limitOfBytes},
	{"forgotten runs count no more", forgottenRunsCountNoMore},
	{"what is too long is cut, and marked so", cutIfTooLong},
	{"a lot of it is forgotten in steps", historyInSteps},
}

// withHistory makes a run that keeps its input.
func withHistory(chat string, history time.Duration) *engine.Run {
	run := newRun(chat)
	run.History = history
	return run
}

// tells expects that a run that has ended still has its input, all of it.
func (s *store) tells(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		record := s.get(run.ID)
		same(s.t, "Kept", record.Kept, engine.KeptWhole)
		same(s.t, "the run's input", record.Run.Input(), run.Input())
	}
}

// tellsNothing expects that runs that have ended are there without their input.
func (s *store) tellsNothing(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		record := s.get(run.ID)
		same(s.t, "Kept", record.Kept, engine.KeptNothing)
		same(s.t, "the run's input", record.Run.Input(), engine.Input{})
	}
}

func keepsItsInput(t *testing.T, s *store) {
	limits := engine.Limits{Retention: 10 * time.Hour, History: 9 * time.Hour, HistoryBytes: 1 << 20}
	full, empty, waiting := fullRun(t, "a"), withHistory("b", 5*time.Hour), fullRun(t, "c")
	empty.Message = ""
	s.add(full, empty, waiting)
	s.advance(20 * time.Hour) // how long it waits is of no account
	for _, claim := range s.claim(2) {
		s.requeue(claim)
	}
	for _, claim := range s.claim(3) {
		if claim.Run.ID == full.ID {
			s.end(claim, endedWith(newDelivery(full, 0)))
		} else {
			s.requeue(claim)
		}
	}
	s.endQueued(empty, endedAs(engine.Cancelled, ""))
	s.endQueued(waiting, endedAs(engine.TimedOut, ""))
	s.tells(full, empty, waiting)
	s.advance(5*time.Hour - slack)
	s.prune(limits)
	s.tells(full, empty, waiting)
	s.advance(2 * slack)
	s.prune(limits)
	s.tellsNothing(full, empty, waiting)
	s.lists(engine.Query{}, full, empty, waiting)
}

func limitOfTime(_ *testing.T, s *store) {
	long, short := withHistory("a", 100*time.Hour), withHistory("b", 2*time.Hour)
	s.carryOut(long, ended())
	s.carryOut(short, ended())
	s.advance(time.Hour)
	late := withHistory("c", 100*time.Hour)
	s.carryOut(late, ended())
	s.prune(engine.Limits{})
	s.prune(engine.Limits{History: 90 * time.Minute})
	s.tells(long, short, late)
	s.prune(engine.Limits{History: 30 * time.Minute})
	s.tellsNothing(long, short)
	s.tells(late)
	s.advance(99 * time.Hour)
	s.prune(engine.Limits{}) // without a limit its own time counts
	s.tells(late)
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{})
	s.tellsNothing(late)
}

// endMany ends runs with long messages, and returns them.
func (s *store) endMany(n int, history time.Duration) (runs []*engine.Run) {
	s.t.Helper()
	for i := range n {
		run := withHistory(fmt.Sprint("chat ", i), history)
		run.Message = strings.Repeat("x", 1000)
		s.add(run)
		s.endQueued(run, ended())
		s.advance(time.Millisecond)
		runs = append(runs, run)
	}
	return runs
}

// keepsLatest expects that of runs with messages of 1000 bytes the latest ones still have them. How many fit in a limit is
// not exact, since stores count in different ways.
func (s *store) keepsLatest(n int, runs ...*engine.Run) {
	s.t.Helper()
	var kept int
	for i, run := range runs {
		switch s.get(run.ID).Kept {
		case engine.KeptWhole:
			kept++
		default:
			if kept > 0 {
				s.t.Errorf("run %d has forgotten its input, and an older one has not", i)
			}
		}
	}
	if kept > n || kept < n*4/5 {
		s.t.Errorf("%d runs have kept their input, want about %d", kept, n)
	}
}

func limitOfBytes(_ *testing.T, s *store) {
	runs := s.endMany(20, time.Hour)
	s.prune(engine.Limits{HistoryBytes: 1 << 20})
	s.tells(runs...)
	s.prune(engine.Limits{HistoryBytes: 10_000})
	s.keepsLatest(10, runs...)
	s.lists(engine.Query{}, runs...)
	more := s.endMany(5, 2*time.Hour)
	s.tells(more...)
	s.prune(engine.Limits{HistoryBytes: 10_000})
	s.keepsLatest(10, append(runs, more...)...)
	s.tells(more...)
	s.prune(engine.Limits{HistoryBytes: 1})
	s.tellsNothing(runs...)
	s.tellsNothing(more...)
	// Nothing is counted that is not there.
	runs = s.endMany(8, time.Hour)
	s.prune(engine.Limits{HistoryBytes: 10_000})
	s.tells(runs...)
}

func forgottenRunsCountNoMore(_ *testing.T, s *store) {
	for _, run := range s.endMany(20, 100*time.Hour) {
		s.tells(run)
	}
	s.advance(2 * time.Hour)
	limits := engine.Limits{Retention: time.Hour, HistoryBytes: 10_000}
	s.prune(engine.Limits{Retention: time.Hour})
	s.lists(engine.Query{})
	runs := s.endMany(8, 100*time.Hour)
	s.prune(limits)
	s.tells(runs...)
}

// The message comes first, and may be cut. The rest is kept whole or not at all.
func cutIfTooLong(t *testing.T, s *store) {
	const most = engine.MaxInput
	object := func(size int) []byte { return []byte(`{"a":"` + strings.Repeat("x", size-8) + `"}`) }
	long := strings.Repeat("x", most-200)
	for _, c := range []struct{ run, want engine.Input }{
		{engine.Input{Message: long, Metadata: object(100), Schema: object(100)},
			engine.Input{Message: long, Metadata: object(100), Schema: object(100)}},
		{engine.Input{Message: long + long}, engine.Input{Message: strings.Repeat("x", most), Cut: true}},
		{engine.Input{Message: "x" + strings.Repeat("𝄞", most), Metadata: []byte("{ }"), Schema: object(100)},
			engine.Input{Message: "x" + strings.Repeat("𝄞", most/4-1), Metadata: []byte("{ }"), Cut: true}},
		{engine.Input{Message: "x", Metadata: object(most), Schema: object(100)}, engine.Input{Message: "x", Schema: object(100), Cut: true}},
		{engine.Input{Message: long, Metadata: object(100), Schema: object(101)}, engine.Input{Message: long, Metadata: object(100), Cut: true}},
	} {
		run := withHistory("a", time.Hour)
		run.Message, run.Metadata, run.Schema = c.run.Message, c.run.Metadata, c.run.Schema
		s.carryOut(run, ended())
		record, got := s.get(run.ID), engine.Input{}
		got.Message, got.Metadata, got.Schema, got.Cut = record.Run.Message, record.Run.Metadata, record.Run.Schema, record.Kept == engine.KeptCut
		same(t, "what is kept", got, c.want)
	}
}

func historyInSteps(t *testing.T, s *store) {
	const storms, each = 10, 210
	for storm := range storms {
		var runs []*engine.Run
		for range each { // which end together
			run := folding(fmt.Sprint("chat ", storm), "storm", each)
			run.Message, run.History = "x", time.Hour
			runs = append(runs, run)
		}
		s.addAll(runs...)
		s.end(s.claimFirst(runs[0]), ended())
	}
	s.advance(90 * time.Minute)
	young := withHistory("b", time.Hour)
	s.carryOut(young, ended())
	s.prune(engine.Limits{Retention: 10 * time.Hour, History: 2 * time.Hour})
	kept := 0
	for _, record := range s.list(engine.Query{Input: true}) {
		if record.Kept != engine.KeptNothing {
			kept++
		}
	}
	if s.tells(young); kept != 1 {
		t.Errorf("%d runs still have their input, want one", kept)
	}
}
