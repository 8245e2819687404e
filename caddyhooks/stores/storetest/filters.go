package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var filterChecks = []check{
	{"runs are selected by when they were accepted", selectedByTime},
	{"whatever filters are combined, a list has all runs that they select", combinedFilters},
	{"runs are listed in the order in which they were accepted, in whatever order they ended", endedInAnyOrder},
	{"runs are found by every filter while they end", filtersWhileRunsEnd},
}

var setClockFilterChecks = []check{
	{"a list has all runs of a time, however the clock was set", filtersAndSetClocks},
}

var durableFilterChecks = []check{
	{"runs and chats are found when the store is opened again", filtersAfterReopening},
}

func selectedByTime(_ *testing.T, s *store) {
	var runs []*engine.Run
	for range 5 {
		run := s.addTo("a")[0]
		runs = append(runs, run)
		s.endQueued(run, ended())
		runs = append(runs, s.addTo("b")...)
		s.advance(time.Hour)
	}
	for _, limit := range []int{1, 3, 100} {
		for i := 0; i < len(runs); i += 2 {
			at := runs[i].AcceptedAt
			s.lists(engine.Query{Since: at, Limit: limit}, runs[i:]...)
			s.lists(engine.Query{Until: at, Limit: limit}, runs[:i]...)
			s.lists(engine.Query{Since: at, Until: at.Add(time.Hour / 2), Limit: limit}, runs[i:i+2]...)
			s.lists(engine.Query{Since: at.Add(time.Hour / 2), Until: at.Add(time.Hour / 2), Limit: limit})
		}
	}
	for _, at := range []time.Time{time.Unix(0, 0), {}, time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)} {
		s.lists(engine.Query{Since: at}, runs...)
	}
	s.lists(engine.Query{Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, runs...)
	s.lists(engine.Query{Since: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
	s.lists(engine.Query{Until: time.Unix(1, 0)})
}

func endedInAnyOrder(_ *testing.T, s *store) {
	var runs []*engine.Run
	for range 30 {
		runs = append(runs, s.addTo("a")...)
	}
	for _, first := range []int{2, 0, 1} {
		for i := first; i < len(runs); i += 3 {
			s.endQueued(runs[i], endedAs(engine.Failed, engine.RunnerFailed))
		}
	}
	for _, limit := range []int{1, 7, 100} {
		s.lists(engine.Query{ChatID: "a", Limit: limit}, runs...)
		s.lists(engine.Query{Hooks: []string{"agent"}, Limit: limit}, runs...)
		s.lists(engine.Query{Statuses: []engine.Status{engine.Failed}, Limit: limit}, runs...)
		s.lists(engine.Query{ChatID: "a", Statuses: []engine.Status{engine.Failed}, Hooks: []string{"agent"}, Limit: limit}, runs...)
	}
	s.listsChats(engine.ChatQuery{}, "a 30")
}

// someHistory makes runs of several hooks and chats, in every status, and lets time pass between them.
type someHistory struct {
	*store
	random *rand.Rand
	chats  []string
}

func newHistory(s *store) *someHistory {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same runs every time
	return &someHistory{s, random, []string{"a", "b", "c"}}
}

func (h *someHistory) add(n int, between func()) {
	h.t.Helper()
	statuses := []engine.Status{engine.Completed, engine.Completed, engine.Completed, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired}
	for range n {
		run := newRun(h.chats[h.random.IntN(len(h.chats))])
		if h.random.IntN(4) == 0 {
			run = newChat()
			h.chats = append(h.chats, run.ChatID) // some are gone on with
		}
		run.Hook = []string{"github", "github", "stripe", "rare"}[h.random.IntN(4)]
		if err := h.tryAdd(run, engine.Limits{}); err != nil {
			h.t.Fatal(err)
		}
		switch h.random.IntN(10) {
		case 0:
		case 1:
			if _, _, err := h.Runs().Claim(h.t.Context(), upTo(1)); err != nil {
				h.t.Fatal(err)
			}
		default:
			_, err := h.Runs().End(h.t.Context(), queued(run), endedAs(statuses[h.random.IntN(len(statuses))], ""), engine.Batch{})
			if err != nil {
				h.t.Fatal(err)
			}
		}
		if between != nil && h.random.IntN(5) == 0 {
			between()
		}
	}
}

// query makes a query of several filters.
func (h *someHistory) query(all []*engine.Record) (query engine.Query) {
	some := func(n int) bool { return h.random.IntN(n) == 0 }
	time := func() time.Time { return all[h.random.IntN(len(all))].Run.AcceptedAt }
	if some(2) {
		query.Hooks = [][]string{{"github"}, {"stripe", "rare"}, {"rare", "rare"}, {"github", "none"}, {"none"}}[h.random.IntN(5)]
	}
	if some(2) {
		query.Statuses = [][]engine.Status{
			{engine.Failed}, {engine.Completed}, {engine.Queued}, {engine.Running}, {engine.Running, engine.Queued}, {engine.Failed, engine.TimedOut, engine.Expired},
			{engine.Completed, engine.Failed}, {engine.Failed, engine.Running}, {engine.Completed, engine.Queued}, {"none"},
		}[h.random.IntN(10)]
	}
	if some(3) {
		query.ChatID = h.chats[h.random.IntN(len(h.chats))]
	}
	if some(4) {
		query.Since = time()
	}
	if some(4) {
		query.Until = time()
	}
	if some(6) {
		id := all[h.random.IntN(len(all))].Run.ID
		query.Prefix = id[:8+h.random.IntN(len(id)-8)]
	}
	if some(6) {
		query.Text = []string{"MESSAGE", "a message", "hook:", "nothing"}[h.random.IntN(4)]
	}
	query.OldestFirst = some(3)
	if query.OldestFirst && some(2) {
		query.UpTo = all[h.random.IntN(len(all))].Run.ID
	}
	query.Limit = []int{1, 2, 3, 7, 1000}[h.random.IntN(5)]
	return query
}

// check compares lists with what the records say.
func (h *someHistory) check(queries int) {
	h.t.Helper()
	all := h.list(engine.Query{Told: true, Replies: true})
	if len(all) == 0 {
		h.t.Fatal("there are no runs")
	}
	found := 0
	for range queries {
		query := h.query(all)
		words := query.Words()
		var want, got []string
		for _, record := range all {
			upTo := query.UpTo == "" || slices.IndexFunc(all, func(r *engine.Record) bool { return r.Run.ID == query.UpTo }) <=
				slices.IndexFunc(all, func(r *engine.Record) bool { return r.Run.ID == record.Run.ID })
			if query.Selects(record) && words.In(record) && upTo {
				want = append(want, record.Run.ID)
			}
		}
		if query.OldestFirst {
			slices.Reverse(want)
		}
		for _, record := range h.list(query) {
			got = append(got, record.Run.ID)
		}
		if !slices.Equal(got, want) {
			h.t.Fatalf("listing %+v: got %d runs %v, want %d %v", query, len(got), got, len(want), want)
		}
		found += min(len(want), 1)
	}
	if found < queries/10 {
		h.t.Errorf("only %d of %d queries found something", found, queries)
	}
	h.checkChats(all)
}

// checkChats compares the list of chats with what the records say.
func (h *someHistory) checkChats(all []*engine.Record) {
	h.t.Helper()
	var order []string
	runs, named := make(map[string]int), make(map[string]bool)
	for _, record := range all {
		chat := record.Run.ChatID
		if runs[chat]++; runs[chat] == 1 {
			order = append(order, chat)
		}
		named[chat] = named[chat] || !record.Run.NewChat
	}
	var want []string
	for _, chat := range order {
		if named[chat] {
			want = append(want, fmt.Sprint(chat, " ", runs[chat]))
		}
	}
	h.listsChats(engine.ChatQuery{}, want...)
}

func combinedFilters(_ *testing.T, s *store) {
	h := newHistory(s)
	h.add(80, func() { s.advance(time.Minute) })
	h.check(150)
	s.advance(30 * time.Minute)
	h.add(40, func() { s.advance(time.Minute) })
	s.prune(engine.Limits{Retention: 30 * time.Minute})
	h.check(150)
}

func filtersAndSetClocks(_ *testing.T, s *store) {
	h := newHistory(s)
	h.add(20, nil)
	for _, set := range someSets {
		s.setClock(set)
		h.add(20, func() { s.advance(time.Minute) })
		h.check(60)
	}
}

func filtersAfterReopening(_ *testing.T, s *store) {
	h := newHistory(s)
	h.add(60, nil)
	s.reopen()
	h.Store = s.Store
	h.check(60)
	h.add(20, nil)
	h.check(60)
}

// filtersWhileRunsEnd looks for runs that are there all the time.
func filtersWhileRunsEnd(t *testing.T, s *store) {
	const chats, each = 10, 6
	for i := range chats * each {
		run := newRun(fmt.Sprint("chat ", i%chats))
		run.Hook = fmt.Sprint("hook ", i%2)
		s.add(run)
	}
	over := make(chan struct{})
	var watchers sync.WaitGroup
	watch := func(want int, query engine.Query) {
		watchers.Go(func() {
			for {
				found := make(map[string]bool)
				for next := query; ; {
					page, cursor, err := s.Runs().List(t.Context(), next)
					if err != nil {
						t.Error(err)
						return
					}
					for _, record := range page {
						if found[record.Run.ID] {
							t.Errorf("listing %+v: run %s is listed twice", query, record.Run.ID)
							return
						}
						found[record.Run.ID] = true
					}
					if next.Cursor = cursor; cursor == "" {
						break
					}
				}
				if len(found) != want {
					t.Errorf("listing %+v: %d runs are listed, want %d", query, len(found), want)
					return
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	watch(each, engine.Query{ChatID: "chat 3", Limit: 4})
	watch(each, engine.Query{ChatID: "chat 3", Hooks: []string{"hook 1"}, Limit: 4})
	watch(chats*each/2, engine.Query{Hooks: []string{"hook 1"}, Limit: 7})
	watch(chats*each, engine.Query{Hooks: []string{"hook 1", "hook 0"}, Limit: 7, OldestFirst: true})
	watch(0, engine.Query{Statuses: []engine.Status{engine.TimedOut}, Limit: 7})
	for claims := s.claim(3); len(claims) > 0; claims = s.claim(3) {
		for _, claim := range claims {
			s.end(claim, endedAs(engine.Failed, engine.RunnerFailed))
		}
	}
	close(over)
	watchers.Wait()
	if failed := s.list(engine.Query{Statuses: []engine.Status{engine.Failed}}); len(failed) != chats*each {
		t.Errorf("%d runs are listed as failed", len(failed))
	}
}
