package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var listChecks = []check{
	{"an empty store has no runs", emptyList},
	{"the newest run is first", newestFirst},
	{"runs are selected by hook, chat and status", selected},
	{"a list of a hook takes one page however many runs of other hooks wait", longQueueOfOthers},
	{"listed runs have no texts", noTexts},
	{"every page has as many as asked for at most, and each run is on one", pages},
	{"each run is listed once while others come, end and go", pagesWhileThingsHappen},
	{"a cursor that is none is refused", badCursor},
	{"a run that ends is never seen queued again", neverQueuedAgain},
}

func emptyList(t *testing.T, s *store) {
	page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 10})
	if len(page) > 0 || next != "" || err != nil {
		t.Errorf("got %d runs, %q and %v", len(page), next, err)
	}
}

func newestFirst(t *testing.T, s *store) {
	runs := s.addTo("b", "a", "c", "a", "b")
	s.lists(engine.Query{}, runs...)
	// The store knows at once that there are no more.
	page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 100})
	if len(page) != len(runs) || next != "" || err != nil {
		t.Errorf("got %d runs, %q and %v, want all and no cursor", len(page), next, err)
	}
	// The order is that of acceptance, whatever happens to them.
	claims := s.claimAll(runs[0], runs[1], runs[2])
	s.end(claims[1], ended())
	s.endQueued(runs[4], ended())
	s.requeue(claims[2])
	s.lists(engine.Query{}, runs...)
}

func selected(t *testing.T, s *store) {
	var all []*engine.Run
	for i := range 24 {
		run := newRun([]string{"a", "b"}[i%2])
		run.Hook = []string{"github", "stripe", "agent"}[i%3]
		s.add(run)
		all = append(all, run)
	}
	chats := func(runs []*engine.Run, chat string) []*engine.Run {
		return slices.DeleteFunc(slices.Clone(runs), func(r *engine.Run) bool { return r.ChatID != chat })
	}
	hooks := func(runs []*engine.Run, hook string) []*engine.Run {
		return slices.DeleteFunc(slices.Clone(runs), func(r *engine.Run) bool { return r.Hook != hook })
	}
	ofA, ofB := chats(all, "a"), chats(all, "b")
	// Of a, one run completes, one fails, one runs; of b, one is cancelled.
	s.endQueued(ofB[5], endedAs(engine.Cancelled, ""))
	claimOfA := func() *engine.Claim {
		for _, claim := range s.claim(2) {
			if claim.Run.ChatID == "a" {
				return claim
			}
		}
		t.Fatal("no run of chat a was claimed")
		return nil
	}
	s.end(claimOfA(), ended())
	s.end(claimOfA(), endedAs(engine.Failed, engine.RunnerFailed))
	claimOfA()

	for _, limit := range []int{1, 3, 1000} {
		t.Run(fmt.Sprint("pages of ", limit), func(t *testing.T) {
			s := s.in(t)
			list := func(hook, chat string, status engine.Status, want ...*engine.Run) {
				t.Helper()
				query := engine.Query{ChatID: chat, Limit: limit}
				if hook != "" {
					query.Hooks = []string{hook}
				}
				if status != "" {
					query.Statuses = []engine.Status{status}
				}
				s.lists(query, want...)
			}
			list("", "", "", all...)
			list("", "a", "", ofA...)
			list("", "b", "", ofB...)
			list("", "c", "")
			list("stripe", "", "", hooks(all, "stripe")...)
			list("str", "", "")
			list("STRIPE", "", "")
			list("stripe", "b", "", hooks(ofB, "stripe")...)
			list("", "", engine.Completed, ofA[0])
			list("", "", engine.Failed, ofA[1])
			list("", "", engine.Running, ofB[0], ofA[2])
			list("", "", engine.Cancelled, ofB[5])
			list("", "", engine.TimedOut)
			list("", "a", engine.Running, ofA[2])
			list("", "a", engine.Cancelled)
			list("", "a", engine.Queued, ofA[3:]...)
			list(ofA[1].Hook, "a", engine.Failed, ofA[1])
			list(ofA[0].Hook, "a", engine.Failed)
		})
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

func noTexts(t *testing.T, s *store) {
	var want []*engine.Record
	for i := range 4 {
		run := fullRun(t, fmt.Sprint("chat ", i))
		if i == 2 {
			run.Key, run.Sync, run.Name = nil, false, ""
		}
		s.add(run)
		kept := *run
		kept.Message, kept.Metadata, kept.Schema = "", nil, nil
		record := &engine.Record{Run: &kept, Status: engine.Queued}
		if i > 0 {
			claim := s.claim(1)[0]
			if claim.Run.ID != run.ID { // the first one, which is to be left alone
				next := s.claimFirst(run)
				s.requeue(claim)
				claim = next
			}
			record.Status, record.Attempts, record.StartedAt = engine.Running, 1, claim.StartedAt
			if i > 1 {
				end := endedWith(newDelivery(run, 0))
				end.Steps = twoSteps(t, run)
				end.Outcome = engine.Outcome{Status: engine.Failed, Text: "text", HasText: true, JSON: []byte(`"json"`), Repairs: 2,
					Failure: engine.SchemaUnmet, Message: "why", RetryAfter: time.Second,
					Account: engine.Account{CancelledBy: "somebody", Reason: "why not", LastAnswer: "text", ValidationErrors: []string{"no"},
						Permissions: []engine.Permission{{Kind: "edit", Title: "a file", Answer: "allowed"}}, MorePermissions: 2},
					SessionRenewed: true}
				s.end(claim, end)
				record = s.recordOf(run, claim, end)
				record.Run, record.Kept, record.Deliveries, record.Steps = &kept, engine.KeptNothing, nil, nil
				record.Outcome.Text, record.Outcome.JSON = "", nil
				account := &record.Outcome.Account
				account.LastAnswer, account.ValidationErrors, account.Permissions, account.MorePermissions = "", nil, nil, 0
			}
		}
		want = append(want, record)
	}
	slices.Reverse(want)
	got := s.list(engine.Query{})
	if len(got) != len(want) {
		t.Fatalf("got %d runs", len(got))
	}
	for i := range got {
		for _, d := range got[i].Deliveries {
			if d.Body != "" {
				t.Error("a delivery is listed with its body")
			}
		}
		// A list may leave these out.
		got[i].Deliveries = nil
		want[i].Outcome.HasText = got[i].Outcome.HasText
		same(t, "the listed run", got[i], want[i])
	}
	// They have not lost theirs.
	if record := s.get(got[3].Run.ID); record.Run.Message == "" || record.Run.Metadata == nil || record.Run.Schema == nil {
		t.Error("a run has lost its message since it was listed")
	}
	if record := s.get(got[0].Run.ID); record.Outcome.Text == "" || record.Outcome.JSON == nil || record.Run.Message == "" {
		t.Error("a run has lost its answer since it was listed")
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

// Runs that are being carried out end while others look at them.
func neverQueuedAgain(t *testing.T, s *store) {
	const chats = 100
	for i := range chats {
		s.addTo(fmt.Sprint("chat ", i))
	}
	claims := s.claim(chats)
	if len(claims) != chats {
		t.Fatalf("claimed %d runs, want %d", len(claims), chats)
	}
	over := make(chan struct{})
	var watchers sync.WaitGroup
	watch := func(look func() error) {
		watchers.Go(func() {
			for {
				if err := look(); err != nil {
					t.Error(err)
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
	watch(func() error {
		page, _, err := s.Runs().List(t.Context(), engine.Query{Limit: chats, Statuses: []engine.Status{engine.Queued}})
		if err == nil && len(page) > 0 {
			err = fmt.Errorf("run %s is listed as %s", page[0].Run.ID, page[0].Status)
		}
		return err
	})
	watch(func() error {
		for _, claim := range claims {
			record, err := s.Runs().Get(t.Context(), claim.Run.ID)
			if err == nil && (record.Status == engine.Queued || record.Attempts != 1 || record.Status.Ended() == record.FinishedAt.IsZero()) {
				err = fmt.Errorf("run %s is %s after %d attempts, finished at %v", claim.Run.ID, record.Status, record.Attempts, record.FinishedAt)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	defer watchers.Wait()
	defer close(over)
	for _, claim := range claims {
		s.end(claim, ended())
	}
}
