package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var againChecks = []check{
	{"a run is run again once, if that is asked for", runAgainOnce},
	{"of many that run it again at once one does", onceAmongMany},
	{"the oldest run is first, if that is asked for", oldestFirst},
}

// againOf makes a run that is another one again.
func againOf(first *engine.Run) *engine.Run {
	run := withHistory(first.ChatID, first.History)
	run.Message, run.AgainOf = first.Message, first.ID
	return run
}

// tryAgain adds a run that is another one again, if that was not run again before.
func (s *store) tryAgain(run *engine.Run) error {
	return s.Runs().Add(s.t.Context(), run, engine.Terms{Once: true})
}

// againAs expects that a run was last run again as another one, nil for none.
func (s *store) againAs(first, want *engine.Run) {
	s.t.Helper()
	id := ""
	if want != nil {
		id = want.ID
	}
	if got := s.get(first.ID).AgainAs; got != id {
		s.t.Errorf("run %s was run again as %q, want %q", first.ID, got, id)
	}
}

func runAgainOnce(t *testing.T, s *store) {
	first := withHistory("a", time.Hour)
	s.carryOut(first, endedAs(engine.TimedOut, ""))
	again := againOf(first)
	if err := s.tryAgain(again); err != nil {
		t.Fatal(err)
	}
	s.againAs(first, again)
	if err := s.tryAgain(againOf(first)); !errors.Is(err, engine.ErrRunAgain) {
		t.Errorf("once more: got %v, want ErrRunAgain", err)
	}
	s.againAs(first, again)
	s.lists(engine.Query{}, first, again)
	// The new one can be run again itself, and the first one too, without Once.
	s.end(s.claimFirst(again), endedAs(engine.Failed, engine.RunnerFailed))
	second := againOf(again)
	if err := s.tryAgain(second); err != nil {
		t.Error(err)
	}
	s.againAs(again, second)
	third := againOf(first)
	s.add(third)
	s.againAs(first, third)
	if err := s.tryAgain(againOf(first)); !errors.Is(err, engine.ErrRunAgain) {
		t.Errorf("once more: got %v, want ErrRunAgain", err)
	}
}

func onceAmongMany(t *testing.T, s *store) {
	var firsts []*engine.Run
	for i := range 20 {
		run := withHistory(fmt.Sprint(i), time.Hour)
		s.carryOut(run, endedAs(engine.Failed, ""))
		firsts = append(firsts, run)
	}
	var started atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, first := range firsts {
				switch err := s.tryAgain(againOf(first)); {
				case err == nil:
					started.Add(1)
				case !errors.Is(err, engine.ErrRunAgain):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if started.Load() != int64(len(firsts)) {
		t.Errorf("%d runs were started for %d", started.Load(), len(firsts))
	}
	if n := len(s.list(engine.Query{Statuses: []engine.Status{engine.Queued}})); n != len(firsts) {
		t.Errorf("%d runs are queued", n)
	}
}

// listsForward expects a query to find these runs, from the oldest on.
func (s *store) listsForward(query engine.Query, runs ...*engine.Run) {
	s.t.Helper()
	query.OldestFirst = true
	got, want := []string{}, []string{}
	for _, record := range s.list(query) {
		got = append(got, record.Run.ID)
	}
	for _, run := range runs {
		want = append(want, run.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("listing %+v: got %v, want %v", query, got, want)
	}
}

func oldestFirst(t *testing.T, s *store) {
	s.listsForward(engine.Query{})
	runs := s.addTo("b", "a", "c", "a", "b")
	s.listsForward(engine.Query{}, runs...)
	claims := s.claimAll(runs[0], runs[1], runs[2])
	s.end(claims[1], endedAs(engine.Failed, ""))
	s.endQueued(runs[4], endedAs(engine.Failed, ""))
	s.requeue(claims[2])
	s.listsForward(engine.Query{}, runs...)
	s.listsForward(engine.Query{ChatID: "a"}, runs[1], runs[3])
	s.listsForward(engine.Query{UpTo: runs[2].ID}, runs[:3]...)
	s.listsForward(engine.Query{UpTo: runs[4].ID}, runs...)
	s.listsForward(engine.Query{UpTo: runs[3].ID, Statuses: []engine.Status{engine.Failed}}, claims[1].Run)
	for _, query := range []engine.Query{{Cursor: "x"}, {UpTo: "x"}} {
		query.OldestFirst, query.Limit = true, 10
		if _, _, err := s.Runs().List(t.Context(), query); !errors.Is(err, engine.ErrCursor) {
			t.Errorf("listing %+v: got %v, want ErrCursor", query, err)
		}
	}
}
