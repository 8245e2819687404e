package storetest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var recordChecks = []check{
	{"a run is known in every state", knownInEveryState},
	{"every kind of end is known as it was", everyKindOfEnd},
	{"odd content comes back as it was", oddContent},
	{"what is empty stays empty", emptyStaysEmpty},
}

func knownInEveryState(t *testing.T, s *store) {
	run := fullRun(t, "a")
	original := *run
	s.add(run)
	original.ID, original.AcceptedAt, original.Together = run.ID, run.AcceptedAt, []engine.Sibling{{ID: run.ID, ChatID: run.ChatID}}
	original.FillHole()
	same(t, "the run that was added", run, &original)
	same(t, "the queued run", s.get(run.ID), &engine.Record{Run: &original, Status: engine.Queued})

	claim := s.claimFirst(run)
	same(t, "the running run", s.get(run.ID),
		&engine.Record{Run: &original, Status: engine.Running, Attempts: 1, StartedAt: claim.StartedAt})

	end := endedWith(newDelivery(run, 0), newDelivery(run, 1), newDelivery(run, 2))
	s.end(claim, end)
	want := s.recordOf(&original, claim, end)
	same(t, "the run at its end", s.get(run.ID), want)

	// It is still the same when there are others.
	s.carryOut(fullRun(t, "a"), ended())
	s.addTo("a", "b")
	same(t, "the run later on", s.get(run.ID), want)
}

func everyKindOfEnd(t *testing.T, s *store) {
	all := engine.Outcome{
		Status: engine.Failed, Text: "an answer", HasText: true, JSON: []byte("{\"a\": 1.10,\t\"a\": \"\\u0000\"}"), Repairs: 3, Checked: true,
		Failure: engine.SchemaUnmet, Message: "It did not match.", RetryAfter: 1500 * time.Millisecond, SessionRenewed: true,
		Account: engine.Account{CancelledBy: "the run API, from 2001:db8::1", Reason: "the runner answered 500: \x00ü",
			LastAnswer: strings.Repeat("an answer\n", 170), ValidationErrors: []string{"at the top: an object is wanted", "", "at /a: ü"},
			Permissions:     []engine.Permission{{Kind: "execute", Title: "rm -r \x00 ü", Answer: "rejected"}, {}, {Kind: "read", Answer: "allowed"}},
			MorePermissions: 7},
	}
	allSet(t, &all)
	allSet(t, &all.Account)
	for name, outcome := range map[string]engine.Outcome{
		"everything":         all,
		"another session":    {Status: engine.Completed, Text: "answer", HasText: true, SessionRenewed: true},
		"a text":             {Status: engine.Completed, Text: "answer", HasText: true},
		"an empty text":      {Status: engine.Completed, HasText: true},
		"JSON":               {Status: engine.Completed, Text: `Here it is: "ü"`, HasText: true, JSON: []byte(`"ü"`), Repairs: 1, Checked: true},
		"no answer":          {Status: engine.Failed, Failure: engine.RunnerFailed, Message: "The agent failed to answer."},
		"an answer too late": {Status: engine.TimedOut, Text: "half", HasText: true, Message: "The agent did not finish."},
		"cancelled":          {Status: engine.Cancelled, Message: "The run was cancelled.", Account: engine.Account{CancelledBy: "somebody"}},
		"come back later":    {Status: engine.Failed, Failure: engine.RunnerUnavailable, RetryAfter: time.Hour},
		"shutting down":      {Status: engine.Failed, Failure: engine.ShuttingDown, RetryAfter: 5 * time.Second},
		"interrupted":        {Status: engine.Failed, Failure: engine.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			for _, whileQueued := range []bool{false, true} {
				run := fullRun(t, "a")
				s.add(run)
				claim := queued(run)
				if !whileQueued {
					claim = s.claimFirst(run)
				}
				end := engine.End{Outcome: outcome, Steps: twoSteps(t, run)}
				s.end(claim, end)
				same(t, "the run", s.get(run.ID), s.recordOf(run, claim, end))
			}
		})
	}
}

func oddContent(t *testing.T, s *store) {
	for name, text := range map[string]string{
		"NUL":               "a\x00b\x00",
		"emoji":             "👩‍👩‍👧 \U0001F600 é",
		"lines":             "\n\r\n\ttab\n",
		"quotes":            `'; -- "\" \\ %s $1 {}`,
		"blank":             " ",
		"as long as it may": strings.Repeat("𝄞", 64),
	} {
		t.Run(name, func(t *testing.T) { s.in(t).keeps(text, text) })
	}
	t.Run("a large message", func(t *testing.T) { s.in(t).keeps("large", strings.Repeat("0123456789abcde\n", 1<<16)) })
}

// keeps puts a short and a long text wherever there can be one, and expects both back.
func (s *store) keeps(short, long string) {
	t := s.t
	t.Helper()
	inJSON, err := json.Marshal(map[string]string{"text": long})
	if err != nil {
		t.Fatal(err)
	}
	withoutControls := strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}, short)
	run := newRun(withoutControls) // others are not accepted
	run.Name, run.To, run.Message, run.Metadata, run.Schema = short, short, long, inJSON, inJSON
	original := *run
	s.add(run)
	original.ID, original.AcceptedAt = run.ID, run.AcceptedAt
	same(t, "the queued run", s.get(run.ID).Run, &original)
	claim := s.claimFirst(run)
	same(t, "the claimed run", claim.Run, &original)
	end := engine.End{Outcome: engine.Outcome{Status: engine.Failed, Text: long, HasText: true, JSON: inJSON, Message: short}}
	d := newDelivery(run, 0)
	d.Body, d.LastError, d.To = long, short, short
	end.Deliveries = []*engine.Delivery{d}
	s.end(claim, end)
	same(t, "the run at its end", s.get(run.ID), s.recordOf(&original, claim, end))
	due := s.handsOut(10, end.Deliveries, notATime)
	s.settle(due[0], engine.Dead, 0, short)
	s.lists(engine.Query{ChatID: run.ChatID}, run)
}

func emptyStaysEmpty(t *testing.T, s *store) {
	run := &engine.Run{ChatID: "a"}
	s.add(run)
	original := *run
	same(t, "the queued run", s.get(run.ID), &engine.Record{Run: &original, Status: engine.Queued})
	claim := s.claimFirst(run)
	same(t, "the claimed run", claim.Run, &original)
	d := &engine.Delivery{ID: engine.DeliveryID(run.ID, 0), RunID: run.ID, Status: engine.Pending}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, Deliveries: []*engine.Delivery{d}}
	s.end(claim, end)
	same(t, "the run at its end", s.get(run.ID), s.recordOf(&original, claim, end))
	s.handsOut(10, end.Deliveries, notATime)
}
