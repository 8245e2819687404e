package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var filterChecks = []check{
	{"whatever filters are combined, a list has all runs that they select", combinedFilters},
}

var setClockFilterChecks = []check{
	{"a list has all runs of a time, however the clock was set", filtersAndSetClocks},
}

var durableFilterChecks = []check{}

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
	all := h.list(engine.Query{Input: true, Replies: true})
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
