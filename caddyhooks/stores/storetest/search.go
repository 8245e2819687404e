package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var searchChecks = []check{
	{"runs are found by words in their texts", foundByWords},
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
