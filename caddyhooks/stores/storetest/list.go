package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var listChecks = []check{
	{"an empty store has no runs", emptyList},
	{"a list of a hook takes one page however many runs of other hooks wait", longQueueOfOthers},
	{"runs are found by every filter while they end", filtersWhileRunsEnd},
	{"a cursor that is none is refused", badCursor},
	{"runs are found by words in their texts", foundByWords},
	{"runs are found by their sender's id of the request as long as they are kept", foundByRequest},
	{"whatever filters are combined, a list has all runs that they select", combinedFilters},
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

func filtersWhileRunsEnd(t *testing.T, s *store) {
	const chats, each = 10, 6
	for i := range chats * each {
		run := newRun(fmt.Sprint("chat ", i%chats))
		run.Hook = fmt.Sprint("hook ", i%2)
		s.add(run)
	}
	over := make(chan struct{})
	var watchers sync.WaitGroup
	keepWatching := func(look func() error) {
		watchers.Go(func() {
			for isOver := false; !isOver; {
				select {
				case <-over:
					isOver = true
				default:
				}
				if err := look(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	watch := func(want int, query engine.Query) {
		keepWatching(func() error {
			found, listed := make(map[string]bool), 0
			for next := query; listed == 0 || next.Cursor != ""; {
				page, cursor, err := s.Runs().List(t.Context(), next)
				if err != nil {
					return err
				}
				for _, record := range page {
					found[record.Run.ID] = true
				}
				listed += max(len(page), 1)
				next.Cursor = cursor
			}
			if len(found) != want || listed != want {
				return fmt.Errorf("listing %+v: %d runs are listed %d times, want %d", query, len(found), listed, want)
			}
			return nil
		})
	}
	watch(each, engine.Query{ChatID: "chat 3", Hooks: []string{"hook 1"}, Limit: 4})
	watch(chats*each/2, engine.Query{Hooks: []string{"hook 1"}, Limit: 7})
	watch(chats*each, engine.Query{Hooks: []string{"hook 1", "hook 0"}, Limit: 7, OldestFirst: true})
	keepWatching(func() error { // each chat is listed once
		listed, found := s.chats(engine.ChatQuery{Limit: 3}), make(map[string]bool)
		for _, chat := range listed {
			found[chat.ChatID] = true
		}
		if len(listed) != chats || len(found) != chats {
			return fmt.Errorf("%d chats are listed %d times", len(found), len(listed))
		}
		return nil
	})
	queued := chats * each
	keepWatching(func() error { // none is seen queued again
		now := len(s.list(engine.Query{Statuses: []engine.Status{engine.Queued}}))
		if now > queued {
			return fmt.Errorf("%d runs are queued, and were %d before", now, queued)
		}
		queued = now
		return nil
	})
	for claims := s.claim(3); len(claims) > 0; claims = s.claim(3) {
		for _, claim := range claims {
			s.end(claim, endedAs(engine.Failed, engine.RunnerFailed))
		}
	}
	close(over)
	watchers.Wait()
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

func foundByWords(_ *testing.T, s *store) {
	long := strings.Repeat("x ", 4000) // has a record of its own in some stores
	queued, running, finished, failed, matched, forgetful := newRun("chat One"), newRun("b"), newRun("c"), newRun("d"), newRun("e"), newRun("f")
	queued.Message = "Deploy the APPLE cart"
	running.Message = long + "banana"
	finished.Message, finished.History = long+"Cherry Äpfel", time.Hour
	failed.Message, failed.History = "damson", time.Hour
	matched.Message, matched.History = "elder", time.Hour
	forgetful.Message = "Cherry and damson"
	s.add(running)
	s.claimFirst(running)
	carryOut := func(run *engine.Run, outcome engine.Outcome) {
		s.carryOut(run, engine.End{Outcome: outcome})
	}
	carryOut(finished, engine.Outcome{Status: engine.Completed, Text: "It is DONE, " + long, HasText: true})
	carryOut(failed, engine.Outcome{Status: engine.Failed, Failure: engine.RunnerFailed, Message: "The runner broke.", Account: engine.Account{Reason: "exit Status 7"}})
	carryOut(matched, engine.Outcome{Status: engine.Completed, JSON: []byte(`{"verdict":"Fine"}`)})
	carryOut(forgetful, engine.Outcome{Status: engine.Completed, Text: "grape", HasText: true})
	s.add(queued)
	for text, want := range map[string][]*engine.Run{
		"apple":               {queued},
		"deploy cart":         {queued},
		"CART  \t deploy":     {queued},
		"deploy banana":       nil,
		"chat one":            {queued},
		"banana":              {running},
		"cherry":              {finished}, // the other one's input is not kept
		"äPFEL done":          {finished},
		"damson":              {failed},
		"runner broke":        {failed},
		"status 7":            {failed},
		"status 8":            nil,
		"verdict fine":        {matched},
		"grape":               {forgetful},
		" ":                   {running, finished, failed, matched, forgetful, queued},
		"agent":               nil, // neither hooks nor ids
		"nowhere to be found": nil,
	} {
		for _, limit := range []int{1, 2, 100} {
			s.lists(engine.Query{Text: text, Limit: limit}, want...)
		}
	}
	s.lists(engine.Query{Text: "fine", Statuses: []engine.Status{engine.Completed}, ChatID: "e", Hooks: []string{"agent"}}, matched)
	s.lists(engine.Query{Text: "fine", Statuses: []engine.Status{engine.Failed}})
	// What is looked at is not what is shown.
	for _, record := range s.list(engine.Query{Text: "done"}) {
		if record.Run.Message != "" || record.Outcome.Text != "" || record.Kept != engine.KeptNothing {
			s.t.Errorf("a run that was found by its text is listed with it: %+v", record)
		}
	}
}

func foundByRequest(t *testing.T, s *store) {
	add := func(chat, request string) *engine.Run {
		run := newRun(chat)
		run.RequestID, run.Key = request, newKey()
		s.add(run)
		return run
	}
	first, other, none := add("a", "72d3162e-cc78"), add("b", "72d3162e-cc79"), add("c", "")
	second := add("a", "72d3162e-cc78")
	found := func(request string, want ...*engine.Run) {
		t.Helper()
		s.lists(engine.Query{RequestID: request}, want...)
		s.lists(engine.Query{RequestID: request, Limit: 1}, want...)
	}
	all := func() {
		t.Helper()
		found("72d3162e-cc78", first, second)
		found("72d3162e-cc79", other)
		found("72d3162e")
		s.lists(engine.Query{RequestID: "72d3162e-cc78", ChatID: "b"})
		s.lists(engine.Query{RequestID: "72d3162e-cc79", ChatID: "b", Hooks: []string{other.Hook}, Runners: []string{""}}, other)
		s.lists(engine.Query{RequestID: "72d3162e-cc79", Runners: []string{"other"}})
	}
	all()
	s.end(s.claimFirst(first), ended())
	s.endQueued(none, ended())
	all()
	s.lists(engine.Query{RequestID: "72d3162e-cc78", Statuses: []engine.Status{engine.Completed}}, first)
	s.lists(engine.Query{RequestID: "72d3162e-cc78", Statuses: []engine.Status{engine.Queued}}, second)
	s.endQueued(other, endedAs(engine.Cancelled, ""))
	all()
	// Keys are forgotten earlier.
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{KeyAge: time.Hour})
	all()
	s.prune(engine.Limits{Retention: time.Hour})
	found("72d3162e-cc78", second)
	found("72d3162e-cc79")
	s.endQueued(second, ended())
	found("72d3162e-cc78", second)
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{Retention: time.Hour})
	found("72d3162e-cc78")
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
		run.Runner = []string{"", "", "other"}[h.random.IntN(3)]
		run.RequestID = []string{"", "", "evt_1", "evt_2", "EVT_1 ✓"}[h.random.IntN(5)]
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
		query.RequestID = []string{"evt_1", "EVT_1 ✓", "evt_", "none"}[h.random.IntN(4)]
	}
	if some(4) {
		query.Runners = [][]string{{""}, {"other"}, {"none", ""}, {"none"}}[h.random.IntN(4)]
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
	all := len(s.list(engine.Query{}))
	far, first := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), s.list(engine.Query{})[0].Run.ID
	for _, c := range []struct {
		engine.Query
		want int
	}{
		{engine.Query{Since: time.Unix(0, 0)}, all}, {engine.Query{Since: time.Time{}.Add(1)}, all}, {engine.Query{Since: far}, 0},
		{engine.Query{Until: time.Unix(1, 0)}, 0}, {engine.Query{Until: far}, all}, {engine.Query{Prefix: first + "0"}, 0}, {engine.Query{Prefix: "x"}, 0},
		{engine.Query{Prefix: first[:8] + "x"}, 0}, {engine.Query{Prefix: "-"}, 0}, {engine.Query{Prefix: strings.ReplaceAll(first, "-", "")}, 0},
		{engine.Query{Prefix: first[:1]}, all},
	} {
		if got := len(s.list(c.Query)); got != c.want {
			s.t.Errorf("listing %+v: got %d runs, want %d", c.Query, got, c.want)
		}
	}
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
