package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var listChecks = []check{
	{"an empty store has no runs", emptyList},
	{"a list of a hook takes one page however many runs of other hooks wait", longQueueOfOthers},
	{"each run is listed once while others come, end and go", pagesWhileThingsHappen},
	{"a cursor that is none is refused", badCursor},
}

func emptyList(t *testing.T, s *store) {
	page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 10})
	if len(page) > 0 || next != "" || err != nil {
		t.Errorf("got %d runs, %q and %v", len(page), next, err)
	}
}

// A store may leave the rest of a list to the next page when it has looked at many runs. Those of other hooks do not count.
func longQueueOfOthers(t *testing.T, s *store) {
	const others, together = 10_500, 100
	ofHook := func(hook string, n int) (runs []*engine.Run) {
		for i := range n {
			run := newRun(fmt.Sprintf("chat %d of %s", i, hook))
			run.Hook = hook
			runs = append(runs, run)
		}
		if err := s.Runs().AddAll(t.Context(), runs, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		return runs
	}
	rare := ofHook("rare", 3)
	for range others / together {
		ofHook("busy", together)
	}
	rare = append(rare, ofHook("rare", 2)...)
	s.claimFirst(rare[0])
	for _, query := range []engine.Query{
		{Hooks: []string{"rare"}}, {Hooks: []string{"rare", "none"}, OldestFirst: true}, {Hooks: []string{"rare"}, Statuses: []engine.Status{engine.Queued, engine.Running}},
		{Hooks: []string{"rare"}, Statuses: []engine.Status{engine.Queued, engine.Running}, OldestFirst: true},
	} {
		query.Limit = 50
		page, next, err := s.Runs().List(t.Context(), query)
		if err != nil || len(page) != len(rare) || next != "" {
			t.Errorf("%+v: %d runs and the cursor %q, want %d runs and no cursor: %v", query, len(page), next, len(rare), err)
		}
	}
	// Those of the others take as many pages as they fill, each run on one.
	for _, query := range []engine.Query{{}, {OldestFirst: true}, {Hooks: []string{"busy"}}, {Hooks: []string{"busy", "rare"}, OldestFirst: true}} {
		query.Limit = 1000
		seen, want := make(map[string]bool), others
		if len(query.Hooks) != 1 {
			want += len(rare)
		}
		pages := 0
		for more := true; more && pages < 20; pages++ {
			page, next, err := s.Runs().List(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range page {
				seen[record.Run.ID] = true
			}
			query.Cursor, more = next, next != ""
		}
		if len(seen) != want || pages > want/query.Limit+1 {
			t.Errorf("%v: %d runs on %d pages, want %d", query.Hooks, len(seen), pages, want)
		}
	}
}

func pages(_ *testing.T, s *store) {
	var runs []*engine.Run
	for i := range 23 {
		run := s.addTo(fmt.Sprint("chat ", i%4))[0]
		if i%3 == 0 {
			s.endQueued(run, ended())
		}
		runs = append(runs, run)
	}
	for _, limit := range []int{1, 2, 5, 22, 23, 24} {
		s.lists(engine.Query{Limit: limit}, runs...)
	}
}

func pagesWhileThingsHappen(t *testing.T, s *store) {
	var runs []*engine.Run
	for i := range 30 {
		runs = append(runs, s.addTo(fmt.Sprint("chat ", i%5))...)
	}
	var got []string
	var last []*engine.Record
	query := engine.Query{Limit: 4}
	for step := 0; ; step++ {
		page, next, err := s.Runs().List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page {
			got = append(got, record.Run.ID)
		}
		if next == "" {
			break
		}
		if step == 1000 {
			t.Fatal("the list does not come to an end")
		}
		query.Cursor = next
		last = append(last, page...)

		// New runs come, and old ones are claimed and end, both listed ones and others. Listed runs are ended and forgotten,
		// and with them the run at which the list has to go on. Runs with a pending delivery are not forgotten.
		s.addTo("chat 0", "new")
		for _, claim := range s.claim(2) {
			s.end(claim, endedWith(newDelivery(claim.Run, 0)))
		}
		for _, record := range last {
			if s.get(record.Run.ID).Status == engine.Queued {
				s.endQueued(record.Run, ended())
			}
		}
		last = nil
		s.advance(2 * time.Hour)
		s.prune(engine.Limits{Retention: time.Hour})
	}
	var want []string
	for _, run := range slices.Backward(runs) {
		want = append(want, run.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func badCursor(t *testing.T, s *store) {
	for range 2 {
		for _, cursor := range []string{"x", "\x00", "%", "01234567-89ab", "zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz", " "} {
			page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 10, Cursor: cursor})
			if !errors.Is(err, engine.ErrCursor) {
				t.Errorf("%q: got %d runs, %q and %v, want ErrCursor", cursor, len(page), next, err)
			}
		}
		s.addTo("a", "b")
	}
}
