package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var searchChecks = []check{
	{"a run is found by its id and by the beginning of it", foundByPrefix},
	{"runs are found by words in their texts", foundByWords},
	{"a list has the texts that are asked for, and no others", askedFor},
}

func foundByPrefix(_ *testing.T, s *store) {
	runs := s.addTo("a", "b", "c", "d")
	s.endQueued(runs[1], endedAs(engine.Failed, engine.RunnerFailed))
	s.end(s.claim(1)[0], ended())
	for _, run := range runs {
		for _, limit := range []int{1, 10} {
			s.lists(engine.Query{Prefix: run.ID, Limit: limit}, run)
		}
		s.lists(engine.Query{Prefix: run.ID, OldestFirst: true}, run)
	}
	for n := range len(runs[0].ID) {
		prefix := runs[0].ID[:n]
		var want []*engine.Run
		for _, run := range runs {
			if strings.HasPrefix(run.ID, prefix) {
				want = append(want, run)
			}
		}
		s.lists(engine.Query{Prefix: prefix}, want...)
		s.lists(engine.Query{Prefix: prefix, Limit: 1}, want...)
	}
	s.lists(engine.Query{Prefix: runs[1].ID, Statuses: []engine.Status{engine.Failed}}, runs[1])
	s.lists(engine.Query{Prefix: runs[1].ID, Statuses: []engine.Status{engine.Completed}})
	for _, prefix := range []string{"00000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "x", runs[0].ID + "0", runs[0].ID[:8] + "x", "-", strings.ReplaceAll(runs[0].ID, "-", "")} {
		s.lists(engine.Query{Prefix: prefix})
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
		"cherry":              {finished}, // what the other one was told is not kept
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

func askedFor(t *testing.T, s *store) {
	run := fullRun(t, "a")
	run.History, run.Key, run.Sync = time.Hour, nil, false
	s.add(run)
	claim := s.claimFirst(run)
	end := endedWith(newDelivery(run, 0))
	end.Outcome = engine.Outcome{Status: engine.Failed, Text: "text", HasText: true, JSON: []byte(`"json"`), Failure: engine.SchemaUnmet, Message: "why",
		Account: engine.Account{Reason: "why not", LastAnswer: "text", ValidationErrors: []string{"no"}, Permissions: []engine.Permission{{Kind: "edit"}}}}
	s.end(claim, end)
	again := newRun("a")
	again.AgainOf = run.ID
	s.add(again)
	for i := range 8 {
		query := engine.Query{Told: i&1 != 0, Replies: i&2 != 0, Deliveries: i&4 != 0}
		t.Run(fmt.Sprintf("%+v", query), func(t *testing.T) {
			s := s.in(t)
			got := s.list(query)
			if len(got) != 2 {
				t.Fatalf("got %d runs", len(got))
			}
			for _, record := range got {
				same(t, "the listed run", record, query.Listed(s.get(record.Run.ID)))
			}
			unfinished, ended := got[0], got[1]
			if (unfinished.Run.Message != "") != query.Told || (ended.Run.Message != "") != query.Told || (ended.Run.Metadata != nil) != query.Told || (ended.Kept != "") != query.Told {
				t.Errorf("the messages are %q and %q, %q is kept", unfinished.Run.Message, ended.Run.Message, ended.Kept)
			}
			if (ended.Outcome.Text != "") != query.Replies || (ended.Outcome.JSON != nil) != query.Replies || (ended.Outcome.Account.LastAnswer != "") != query.Replies ||
				(ended.Outcome.Account.Permissions != nil) != query.Replies ||
				(ended.AgainAs == again.ID) != query.Replies {
				t.Errorf("the answer is %+v, run again as %q", ended.Outcome, ended.AgainAs)
			}
			if (len(ended.Deliveries) == 1) != query.Deliveries || query.Deliveries && ended.Deliveries[0].Body != "" {
				t.Errorf("the deliveries are %+v", ended.Deliveries)
			}
		})
	}
}
