//go:build real

package postgres

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

func onceAnHour(value string) gate.Gate {
	return gate.Gate{ID: gate.NewID(gate.Once, "agent", value), Kind: gate.Once, Per: time.Hour}
}

func aloneIn(value string) gate.Gate {
	return gate.Gate{ID: gate.NewID(gate.Alone, "agent", value), Kind: gate.Alone}
}

func anHour(most int, value string) gate.Gate {
	return gate.Gate{ID: gate.NewID(gate.Rate, "agent", value), Kind: gate.Rate, Most: most, Per: time.Hour}
}

// newGated makes a run that has gates.
func newGated(chat, key string, gates ...gate.Gate) *engine.Run {
	run := newAdded(chat, key)
	run.Gates = gates
	return run
}

// Nodes that get many requests at once accept each value once, and no more than the rate allows, whatever else is refused.
func TestNodesPassGatesAtOnce(t *testing.T) {
	t.Parallel()
	first := newTestStore(t)
	nodes := []*store{first, joinTestStore(t, first), joinTestStore(t, first)}
	const callers, values, most = 6, 40, 70
	var mu sync.Mutex
	runs, firsts, repeated, rated := map[string]string{}, map[string]string{}, 0, 0
	var all sync.WaitGroup
	for _, node := range nodes {
		for caller := range callers {
			all.Go(func() {
				for i := range values {
					value, key := fmt.Sprint("value ", i), ""
					if caller%2 == 0 {
						key = value
					}
					// The rate is one gate of all requests. The value is another one of each, and nodes have them in another order.
					gates := []gate.Gate{onceAnHour(value), anHour(most, fmt.Sprint("rate ", i/20))}
					if caller%3 == 0 {
						gates[0], gates[1] = gates[1], gates[0]
					}
					run := newGated(fmt.Sprint("chat ", i%7), key, gates...)
					err := node.Runs().Add(t.Context(), run, engine.Terms{Limits: engine.Limits{KeyAge: time.Hour}})
					var closed *gate.ClosedError
					var duplicate *engine.DuplicateError
					mu.Lock()
					switch {
					case err == nil && runs[value] != "":
						t.Errorf("%s was accepted twice", value)
					case err == nil:
						runs[value] = run.ID
					case errors.As(err, &duplicate):
						repeated++
						firsts[duplicate.First.ID] = value
					case errors.As(err, &closed) && closed.Gate.Kind == gate.Once:
						repeated++
						firsts[closed.First.RunID] = value
					case errors.As(err, &closed):
						rated++
					default:
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if len(runs) != values || repeated != values*(len(nodes)*callers-1) || rated != 0 {
		t.Errorf("%d were accepted, %d repeated, and %d too many", len(runs), repeated, rated)
	}
	for id, value := range firsts {
		if runs[value] != id {
			t.Errorf("%s repeats %s, but %s was accepted", value, id, runs[value])
		}
	}
	checkQueue(t, first, values)
	if n := first.number(t, "SELECT count(*) FROM @.gate"); n != values+2 {
		t.Errorf("there are %d gates", n)
	}
}

// A rate that all nodes hit at once is used up exactly.
func TestNodesShareARate(t *testing.T) {
	t.Parallel()
	first := newTestStore(t)
	nodes := []*store{first, joinTestStore(t, first), joinTestStore(t, first)}
	const most, callers, each = 50, 4, 10
	var mu sync.Mutex
	passed := 0
	var all sync.WaitGroup
	for n, node := range nodes {
		for caller := range callers {
			all.Go(func() {
				for i := range each {
					err := node.Runs().Add(t.Context(), newGated(fmt.Sprint(n, caller, i), "", anHour(most, "x")), engine.Terms{})
					var closed *gate.ClosedError
					mu.Lock()
					if err == nil {
						passed++
					} else if !errors.As(err, &closed) {
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if passed != most {
		t.Errorf("%d have passed, want %d", passed, most)
	}
	checkQueue(t, first, most)
}

// What one request of a batch gets is no matter of the others, also if they share gates.
func TestGatedRequestsOfABatchAreOnTheirOwn(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	if _, err := addTo(t.Context(), s, "full"); err != nil {
		t.Fatal(err)
	}
	terms := engine.Terms{Limits: engine.Limits{Chat: 1, KeyAge: time.Hour}}
	batch := []struct {
		run  *engine.Run
		want error // of its type
	}{
		{newGated("full", "", onceAnHour("x")), engine.ErrChatFull},
		{newGated("a", "1", onceAnHour("x"), anHour(2, "x")), nil}, // the one before has not passed
		{newGated("b", "1", onceAnHour("x")), &engine.DuplicateError{}},
		{newGated("c", "2", onceAnHour("x")), &gate.ClosedError{}},
		{newGated("d", "", anHour(2, "x"), aloneIn("x")), nil},
		{newGated("e", "3", aloneIn("y"), anHour(2, "x")), &gate.ClosedError{}},
		{newGated("f", "", aloneIn("y")), nil},
		{newGated("g", "", aloneIn("x")), &gate.ClosedError{}},
	}
	var calls []*addition
	for _, request := range batch {
		a, err := newAddition([]*engine.Run{request.run}, terms)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, a)
	}
	if err := s.runs.gated.addAll(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	for i, request := range batch {
		if got := calls[i].err; fmt.Sprintf("%T", got) != fmt.Sprintf("%T", request.want) {
			t.Errorf("request %d: got %v, want %T", i+1, got, request.want)
		}
	}
	for _, key := range []string{"2", "3"} { // of requests that were refused
		if err := s.Runs().Add(t.Context(), newGated("h"+key, key), terms); err != nil {
			t.Error(err)
		}
	}
	checkQueue(t, s, 6)
}

var manyGates = flag.Int("gates", 20_000, "how many values TestTheNumberOfGatesIsBounded has; half of them are kept, or gate.MaxGates if there are more")

func TestTheNumberOfGatesIsBounded(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	const over = 2500
	kept, most := *manyGates, *manyGates/2
	if kept > gate.MaxGates {
		most = gate.MaxGates
	}
	for hours, n := range map[int]int{-1: over, 1: kept} {
		execForLong(t, s, "INSERT INTO @.gate (id, until, state) SELECT sha256(($1::int || ' ' || n)::bytea), now() + make_interval(hours => $1, secs => n), '\\x02' "+
			"FROM generate_series(1, $2::int) n", hours, n)
	}
	if _, err := s.Prune(t.Context(), engine.Limits{}); err != nil {
		t.Fatal(err)
	}
	if n := s.number(t, "SELECT count(*) FROM @.gate"); n != over+kept-pruneStep {
		t.Errorf("after one step there are %d gates", n)
	}
	for range 100 + kept/pruneStep {
		if s.number(t, "SELECT @.prune_gates_2($1, $2)::int", most, pruneStep) == 0 {
			break
		}
	}
	// Their number is an estimate from the few that are counted.
	if n := s.number(t, "SELECT count(*) FROM @.gate"); n < most/2 || n > most*3/2 {
		t.Errorf("%d gates are left, want about %d", n, most)
	} else {
		t.Logf("of %d gates %d are left, in %d MB", kept, n, s.number(t, "SELECT pg_total_relation_size('@.gate') / 1000000"))
	}
	if n := s.number(t, "SELECT count(*) FROM @.gate WHERE version <= (SELECT max(version) - count(*) FROM @.gate)"); n != 0 {
		t.Errorf("%d gates are left that are older than others that were forgotten", n)
	}
	if most == gate.MaxGates {
		return // by an estimate there may still be too many
	}
	before := s.number(t, "SELECT count(*) FROM @.gate")
	if _, err := s.Prune(t.Context(), engine.Limits{}); err != nil || s.number(t, "SELECT count(*) FROM @.gate") != before {
		t.Errorf("fewer gates than are allowed were forgotten: %v", err)
	}
}

func TestPassingGatesTakesNoLongerAmongMany(t *testing.T) {
	t.Parallel()
	fill := func(t *testing.T, s *store, from, to int) {
		fillRuns(t, s, from, to)
		execForLong(t, s, `INSERT INTO @.gate (id, until, run, state) SELECT sha256(('fill ' || n)::bytea), now() + make_interval(secs => n), gen_random_uuid(), '\x02'
			FROM generate_series($1::int, $2::int - 1) n`, from, to)
	}
	explains(t, fill, func(t *testing.T, s *store, n int) {
		var calls []*addition
		for i := range 20 {
			value := fmt.Sprint(n, " ", i%15)
			a, err := newAddition([]*engine.Run{newGated(value, "", onceAnHour(value), anHour(100, fmt.Sprint(i%3)), aloneIn(value))}, engine.Terms{})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, a)
		}
		if err := s.runs.gated.addAll(t.Context(), calls); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context(), engine.Limits{}); err != nil {
			t.Fatal(err)
		}
		if n := s.number(t, "SELECT @.prune_gates_2(100000000, 10)::int"); n != 0 {
			t.Errorf("there is more to forget")
		}
	})
}
