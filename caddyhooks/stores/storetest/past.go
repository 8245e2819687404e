package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var pastChecks = []check{
	{"there is none at first", func(_ *testing.T, s *store) { s.pastIs("a", 10, 1000) }},
	{"the last runs come first, as many as are wanted", pastOfAChat},
	{"only runs that are recalled are part of it", onlyRecalled},
	{"it ends with the run that is too much", pastOfSomeBytes},
	{"runs that do not keep their message are left out", pastWithoutMessages},
	{"runs that are forgotten are left out", pastForgotten},
}

var durablePastChecks = []check{}

var nodePastChecks = []check{}

// turnOf makes a run that later turns of their chat recall.
func turnOf(chat string) *engine.Run {
	run := newRun(chat)
	run.MemoryPreset, run.History = "general_chat", time.Hour
	return run
}

// haveTurns carries out runs of a chat that later turns of their chat recall.
func (s *store) haveTurns(chat string, n int) (runs []*engine.Run) {
	s.t.Helper()
	for range n {
		run := turnOf(chat)
		s.carryOut(run, ended())
		runs = append(runs, run)
	}
	return runs
}

// pastIs expects the past of a chat to be these runs, the newest last.
func (s *store) pastIs(chat string, turns, bytes int, want ...*engine.Run) {
	s.t.Helper()
	past, err := s.Runs().Past(s.t.Context(), chat, turns, bytes)
	var got, wanted []string
	for _, record := range past {
		got = append([]string{record.Run.ID}, got...)
	}
	for _, run := range want {
		wanted = append(wanted, run.ID)
	}
	if err != nil || !reflect.DeepEqual(got, wanted) {
		s.t.Errorf("%d turns and %d bytes of the past of %q are %v, %v, want %v", turns, bytes, chat, got, err, wanted)
	}
}

func pastOfAChat(_ *testing.T, s *store) {
	var runs, others []*engine.Run
	for range 4 {
		runs = append(runs, s.haveTurns("a", 1)...)
		others = append(others, s.haveTurns("b", 2)...)
	}
	for n := range 6 {
		s.pastIs("a", n, 1<<20, runs[max(0, len(runs)-n):]...)
	}
	s.pastIs("b", 100, 1<<20, others...)
	s.pastIs("ab", 100, 1<<20)
	s.pastIs("", 100, 1<<20)
}

func onlyRecalled(_ *testing.T, s *store) {
	var want []*engine.Run
	others := func() {
		s.carryOut(newRun("a"), ended()) // without memory
		unkept := turnOf("a")
		unkept.History = 0
		s.carryOut(unkept, ended())
		s.carryOut(turnOf("a"), endedAs(engine.Failed, engine.RunnerFailed))
		s.carryOut(turnOf("a"), endedAs(engine.TimedOut, ""))
		s.carryOut(turnOf("a"), endedAs(engine.Cancelled, ""))
	}
	others()
	want = append(want, s.haveTurns("a", 2)...)
	others()
	requeued := turnOf("a")
	s.add(requeued)
	s.requeue(s.claimFirst(requeued))
	s.pastIs("a", 2, 1<<20, want...)
	s.end(s.claimFirst(requeued), ended())
	want = append(want, requeued)
	others()
	s.pastIs("a", 10, 1<<20, want...)
	running := turnOf("a")
	s.add(running, turnOf("a"))
	s.claimFirst(running)
	s.pastIs("a", 10, 1<<20, want...)
}

func pastOfSomeBytes(_ *testing.T, s *store) {
	runs := s.haveTurns("a", 4)
	size := len(runs[0].Message) + len(ended().Outcome.Text)
	s.pastIs("a", 10, 0, runs[3])
	s.pastIs("a", 10, size-1, runs[3])
	s.pastIs("a", 10, 2*size-1, runs[2:]...)
	s.pastIs("a", 10, 4*size, runs...)
}

func pastWithoutMessages(_ *testing.T, s *store) {
	first := turnOf("a")
	first.History = 10 * time.Hour
	s.carryOut(first, ended())
	s.haveTurns("a", 5)
	s.advance(2 * time.Hour)
	last := s.haveTurns("a", 1)[0]
	s.prune(engine.Limits{Retention: 100 * time.Hour})
	s.pastIs("a", 10, 1<<20, first, last)
	s.prune(engine.Limits{History: engine.NoHistory})
	s.pastIs("a", 10, 1<<20)
	s.pastIs("a", 10, 1<<20, s.haveTurns("a", 1)...)
}

func pastForgotten(_ *testing.T, s *store) {
	for round := range 3 {
		for i := range 3 {
			s.haveTurns(fmt.Sprint("chat ", round, i), 2)
		}
		s.haveTurns("a", 2)
		s.advance(30 * time.Minute)
	}
	last := s.haveTurns("a", 2)
	s.advance(45 * time.Minute)
	s.prune(engine.Limits{Retention: time.Hour})
	s.pastIs("a", 10, 1<<20, last...)
	s.pastIs("chat 00", 10, 1<<20)
}
