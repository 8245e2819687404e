package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

var gateChecks = []check{
	{"a value that was there is not accepted twice in a time", valueTwice},
	{"a value is free again if nothing came of its run", freedValue},
	{"a run that stands alone is the only one of its gate until it ends", runAlone},
	{"no more runs are accepted in a time than may be", rateOfRuns},
	{"of several runs those are left out whose value was there", someLeftOut},
	{"a rate refuses all runs of a request", rateOfSeveral},
	{"a request that is refused passes no gate", refusedPassesNothing},
	{"a repeated request is known by its key before its gates", keyBeforeGates},
	{"one of many requests at once passes a gate", gatesAtOnce},
}

var gateNodeChecks = []check{
	{"nodes share gates", gatesOfNodes},
}

var durableGateChecks = []check{
	{"gates survive", gatesSurvive},
}

// gated makes a run that has gates.
func gated(chat string, gates ...gate.Gate) *engine.Run {
	run := newRun(chat)
	run.Gates = gates
	return run
}

// onceAnHour is a gate for a value.
func onceAnHour(value string) gate.Gate {
	return gate.Gate{ID: gate.NewID(gate.Once, "hook", value), Kind: gate.Once, Per: time.Hour}
}

func aloneIn(value string) gate.Gate {
	return gate.Gate{ID: gate.NewID(gate.Alone, "hook", value), Kind: gate.Alone}
}

func anHour(most int, value string) gate.Gate {
	return gate.Gate{ID: gate.NewID(gate.Rate, "hook", value), Kind: gate.Rate, Most: most, Per: time.Hour}
}

// closed expects a gate to be closed to a new run, because of first if that is not nil.
func (s *store) closed(g gate.Gate, first *engine.Run) {
	s.t.Helper()
	s.isClosedBy(s.closing(g), first)
}

// closing is why a gate is closed to a new run.
func (s *store) closing(g gate.Gate) *gate.ClosedError {
	s.t.Helper()
	run := gated("closed", g)
	err := s.tryAdd(run, engine.Limits{})
	var closed *gate.ClosedError
	if !errors.As(err, &closed) || run.ID != "" {
		s.t.Fatalf("a closed gate: run %q, %v", run.ID, err)
	}
	return closed
}

func (s *store) isClosedBy(closed *gate.ClosedError, first *engine.Run) {
	s.t.Helper()
	want := gate.First{}
	if first != nil {
		want = gate.First{RunID: first.ID, ChatID: first.ChatID, Action: string(first.Action), Sync: first.Sync}
	}
	if closed.First != want {
		s.t.Errorf("closed because of %+v, want %+v", closed.First, want)
	}
}

// passes expects a gate to be open, and ends the run that has passed.
func (s *store) passes(g gate.Gate) {
	s.t.Helper()
	run := gated("open", g)
	s.add(run)
	s.endQueued(run, ended())
}

func valueTwice(_ *testing.T, s *store) {
	first := gated("a", onceAnHour("x"))
	first.Sync = true
	s.add(first)
	s.closed(onceAnHour("x"), first)
	s.passes(onceAnHour("y"))
	s.end(s.claimFirst(first), ended())
	s.closed(onceAnHour("x"), first)
	s.advance(58 * time.Minute)
	s.prune(engine.Limits{Retention: time.Minute})
	s.gone(first.ID)
	s.closed(onceAnHour("x"), first) // whatever became of the run
	shorter := onceAnHour("x")
	shorter.Per = 10 * time.Minute
	s.passes(shorter) // the hook has another time now
	s.advance(11 * time.Minute)
	s.prune(engine.Limits{})
	s.passes(onceAnHour("x"))
	s.passes(onceAnHour("y"))
}

func freedValue(_ *testing.T, s *store) {
	for end, isFree := range map[[2]string]bool{
		{string(engine.Completed)}: false, {string(engine.Failed), string(engine.RunnerFailed)}: false,
		{string(engine.Cancelled), string(engine.Replaced)}: false, {string(engine.Cancelled)}: true, {string(engine.Expired)}: true,
		{string(engine.Failed), string(engine.Interrupted)}: true,
	} {
		g := onceAnHour(fmt.Sprint(end))
		first := gated("a", g)
		s.carryOut(first, endedAs(engine.Status(end[0]), engine.Failure(end[1])))
		if isFree {
			s.passes(g)
		} else {
			s.closed(g, first)
		}
	}
}

func runAlone(_ *testing.T, s *store) {
	g := aloneIn("chat")
	for range 2 {
		first := gated("a", g)
		s.add(first)
		s.closed(g, first)
		claim := s.claimFirst(first)
		s.closed(g, first)
		s.end(claim, aside(fullQuestion(0), time.Minute))
		s.closed(g, first)
		s.advance(24 * time.Hour)
		s.prune(engine.Limits{})
		s.closed(g, first)
		s.end(s.claimFirst(first), ended())
	}
	s.passes(g)
}

func rateOfRuns(_ *testing.T, s *store) {
	for i := range 3 {
		s.passes(anHour(3, "x"))
		if i < 2 {
			s.advance(10 * time.Minute)
		}
	}
	s.waits(s.closing(anHour(3, "x")).Wait, 40*time.Minute)
	s.passes(anHour(3, "y"))
	s.advance(41 * time.Minute)
	s.passes(anHour(3, "x"))
	s.closed(anHour(3, "x"), nil)
	s.passes(anHour(4, "x")) // the hook has another rate now
	s.closed(anHour(4, "x"), nil)
	s.advance(2 * time.Hour)
	s.prune(engine.Limits{})
	for range 3 {
		s.passes(anHour(3, "x"))
	}
	s.closed(anHour(3, "x"), nil)
}

// add3 adds a request with a key that becomes three runs.
func (s *store) add3(key *engine.Key, gates ...gate.Gate) (runs []*engine.Run, err error) {
	for i, g := range gates {
		runs = append(runs, gated(fmt.Sprint("chat ", i), g))
	}
	runs[0].Key = key
	return runs, s.tryAddAll(engine.Terms{Limits: engine.Limits{Queue: 100}}, runs...)
}

func someLeftOut(t *testing.T, s *store) {
	x := gated("x", onceAnHour("x"))
	s.add(x)
	key := newKey()
	runs, err := s.add3(key, onceAnHour("x"), onceAnHour("y"), onceAnHour("y"), onceAnHour("z"))
	if err != nil || runs[0].ID != "" || runs[1].ID == "" || runs[2].ID != "" || runs[3].ID == "" {
		t.Fatalf("of four runs: %q %q %q %q, %v", runs[0].ID, runs[1].ID, runs[2].ID, runs[3].ID, err)
	}
	together := siblings(runs[1], runs[3])
	s.repeated(engine.Limits{}, runs[1], keyed("d", key), true, together...)
	same(t, "the runs of the request", s.get(runs[1].ID).Run.Together, together)
	s.lists(engine.Query{}, x, runs[1], runs[3])

	// One that is left is still one of a request that could have been several.
	other := newKey()
	runs, err = s.add3(other, onceAnHour("z"), onceAnHour("w"))
	if err != nil || runs[0].ID != "" || runs[1].ID == "" {
		t.Fatalf("of two runs: %q %q, %v", runs[0].ID, runs[1].ID, err)
	}
	s.repeated(engine.Limits{}, runs[1], keyed("d", other), true, siblings(runs[1])...)

	// If none is left, nothing is stored.
	none, err := s.add3(newKey(), onceAnHour("x"), onceAnHour("w"))
	var closed *gate.ClosedError
	if !errors.As(err, &closed) || none[0].ID != "" || none[1].ID != "" {
		t.Fatalf("of no runs: %v", err)
	}
	s.isClosedBy(closed, x)
}

func rateOfSeveral(t *testing.T, s *store) {
	var closed *gate.ClosedError
	if _, err := s.add3(newKey(), anHour(2, "x"), anHour(2, "x"), anHour(2, "x")); !errors.As(err, &closed) || closed.Wait != 0 {
		t.Fatalf("more than ever pass: %v, %+v", err, closed)
	}
	s.lists(engine.Query{})
	if _, err := s.add3(newKey(), anHour(2, "x"), anHour(2, "x"), anHour(2, "y")); err != nil {
		t.Fatal(err)
	}
	key := newKey()
	if _, err := s.add3(key, anHour(2, "y"), anHour(2, "x")); !errors.As(err, &closed) || closed.Wait == 0 {
		t.Fatalf("more than pass now: %v", err)
	}
	s.passes(anHour(2, "y"))
	s.add(keyed("d", key))
}

func refusedPassesNothing(t *testing.T, s *store) {
	s.addTo("a")
	first := gated("a", onceAnHour("x"), aloneIn("x"), anHour(1, "x"))
	s.refuse(first, engine.Limits{Queue: 1}, engine.ErrQueueFull)
	s.refuse(first, engine.Limits{Chat: 1}, engine.ErrChatFull)
	refuse := errors.New("refused")
	if err := s.tryAddAll(engine.Terms{Refuse: refuse}, first); !errors.Is(err, refuse) {
		t.Errorf("a refused request: %v", err)
	}
	s.add(first)
	var closed *gate.ClosedError
	if err := s.tryAddAll(engine.Terms{Refuse: refuse}, gated("b", onceAnHour("x"))); !errors.As(err, &closed) {
		t.Errorf("a refused request that is repeated: %v", err)
	}
	for _, g := range []gate.Gate{aloneIn("x"), anHour(1, "x")} {
		if err := s.tryAddAll(engine.Terms{Refuse: refuse}, gated("b", g)); !errors.Is(err, refuse) {
			t.Errorf("a refused request that is not repeated: %v", err)
		}
	}
	// A run that one gate leaves out passes no other.
	if err := s.tryAdd(gated("b", onceAnHour("y"), aloneIn("x")), engine.Limits{}); !errors.As(err, &closed) {
		t.Errorf("a run beside another one: %v", err)
	}
	s.passes(onceAnHour("y"))
}

func keyBeforeGates(_ *testing.T, s *store) {
	first := gated("a", onceAnHour("x"), anHour(1, "x"))
	first.Key = newKey()
	s.add(first)
	again := gated("a", onceAnHour("x"), anHour(1, "x"))
	again.Key = first.Key
	s.duplicateOf(first, again, engine.Limits{})
}

func gatesAtOnce(_ *testing.T, s *store) { oneOfManyPasses(s, s) }

func gatesOfNodes(_ *testing.T, s *store) {
	other := s.join()
	oneOfManyPasses(s, other)
	first := gated("a", onceAnHour("a"), aloneIn("a"))
	s.add(first)
	other.closed(onceAnHour("a"), first)
	other.closed(aloneIn("a"), first)
	s.passes(anHour(2, "a"))
	other.passes(anHour(2, "a"))
	s.closed(anHour(2, "a"), nil)
	other.closed(anHour(2, "a"), nil)
}

// oneOfManyPasses has callers of all nodes add runs with the same gate at once.
func oneOfManyPasses(nodes ...*store) {
	t := nodes[0].t
	const rounds, callers = 10, 8
	for round := range rounds {
		for _, g := range []gate.Gate{onceAnHour(fmt.Sprint(round)), aloneIn(fmt.Sprint(round)), anHour(1, fmt.Sprint(round))} {
			var mu sync.Mutex
			var stored, first []string
			var adders sync.WaitGroup
			for i := range callers {
				adders.Go(func() {
					run := gated(fmt.Sprint("chat ", i%3), g)
					err := nodes[i%len(nodes)].tryAdd(run, engine.Limits{})
					mu.Lock()
					defer mu.Unlock()
					var closed *gate.ClosedError
					switch {
					case err == nil:
						stored = append(stored, run.ID)
					case errors.As(err, &closed):
						first = append(first, closed.First.RunID)
					default:
						t.Error(err)
					}
				})
			}
			adders.Wait()
			if len(stored) != 1 || len(first) != callers-1 {
				t.Fatalf("gate %d: %d were stored and %d left out", g.Kind, len(stored), len(first))
			}
			for _, id := range first {
				if id != stored[0] && g.Kind != gate.Rate {
					t.Errorf("left out because of %s, want %s", id, stored[0])
				}
			}
		}
	}
}

func gatesSurvive(_ *testing.T, s *store) {
	first := gated("a", onceAnHour("x"), aloneIn("x"))
	s.add(first)
	s.passes(anHour(1, "x"))
	s.reopen()
	s.closed(onceAnHour("x"), first)
	s.closed(aloneIn("x"), first)
	s.closed(anHour(1, "x"), nil)
	s.end(s.claimFirst(first), ended())
	s.reopen()
	s.closed(onceAnHour("x"), first)
	s.passes(aloneIn("x"))
}
