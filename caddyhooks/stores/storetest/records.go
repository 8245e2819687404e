package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var recordChecks = []check{
	{"a run is known in every state", knownInEveryState},
	{"odd content comes back as it was", oddContent},
	{"what is empty stays empty", emptyStaysEmpty},
	{"runs that never were are not found", notFound},
}

func knownInEveryState(t *testing.T, s *store) {
	run := fullRun(t, "a")
	original := *run
	s.add(run)
	original.ID, original.AcceptedAt, original.Together = run.ID, run.AcceptedAt, []engine.Sibling{{ID: run.ID, ChatID: run.ChatID}}
	original.Gates = nil
	original.FillID()
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

var pastChecks = []check{
	{"the last runs come first, as many as are wanted", pastOfAChat},
	{"it ends with the run that is too much", pastOfSomeBytes},
	{"runs that are forgotten are left out", pastForgotten},
	{"runs without their message are left out, and what is before many of them", pastWithoutMessages},
}

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

func pastOfSomeBytes(_ *testing.T, s *store) {
	runs := s.haveTurns("a", 4)
	size := len(runs[0].Message) + len(ended().Outcome.Text)
	s.pastIs("a", 10, 0, runs[3])
	s.pastIs("a", 10, size-1, runs[3])
	s.pastIs("a", 10, 2*size-1, runs[2:]...)
	s.pastIs("a", 10, 4*size, runs...)
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

func pastWithoutMessages(_ *testing.T, s *store) {
	told := make(map[string]*engine.Run)
	for chat, n := range map[string]int{"few": 10, "many": 200} {
		told[chat] = turnOf(chat)
		told[chat].History = 10 * time.Hour
		s.carryOut(told[chat], ended())
		var last *engine.Run
		for range n {
			last = turnOf(chat)
			s.add(last)
			s.endQueued(last, ended())
		}
		s.pastIs(chat, 1, 1<<20, last)
	}
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{})
	s.tells(told["few"], told["many"])
	s.pastIs("few", 10, 1<<20, told["few"])
	s.pastIs("many", 10, 1<<20)
}

func notFound(t *testing.T, s *store) {
	run := s.addTo("a")[0]
	for _, id := range []string{
		"", "x", "\x00", uuid.Nil.String(), uuid.Must(uuid.NewV7()).String(), run.ID[:35], run.ID + "0", run.ID + "\x00", " " + run.ID,
		strings.Repeat("z", len(run.ID)), strings.Repeat("0123456789abcdef", 1<<16),
		// Other ways to write a UUID are not the id that was given out.
		"{" + run.ID + "}", "urn:uuid:" + run.ID, strings.ReplaceAll(run.ID, "-", ""),
	} {
		s.gone(id)
		if err := s.Runs().Cancel(t.Context(), id, "somebody"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("cancelling %.80q: got %v, want ErrNotFound", id, err)
		}
		if again := againOf(&engine.Run{ID: id, ChatID: "a"}); id != "" && !errors.Is(s.tryAgain(again), engine.ErrNotFound) {
			t.Errorf("running %.80q again: want ErrNotFound", id)
		}
		for _, token := range []string{"", "forged"} {
			s.endsNothing(&engine.Claim{Run: &engine.Run{ID: id, ChatID: "a"}, Token: token}, ended())
		}
	}
	s.status(run, engine.Queued, 0)
	s.lists(engine.Query{}, run)
}
