package gate

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func never(string) Fate { panic("nobody has passed") }

func TestGatesThatOneRunPasses(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	first, second := First{RunID: "first", ChatID: "c"}, First{RunID: "second", Sync: true}
	for _, tc := range []struct {
		name  string
		gate  Gate
		fate  Fate
		after time.Duration
		open  bool
	}{
		{"once", Gate{Kind: Once, Per: time.Hour}, Ended, time.Hour - 1, false},
		{"once, while the first is carried out", Gate{Kind: Once, Per: time.Hour}, Unfinished, time.Minute, false},
		{"once, later", Gate{Kind: Once, Per: time.Hour}, Ended, time.Hour, true},
		{"once, after nothing came of it", Gate{Kind: Once, Per: time.Hour}, CameToNothing, time.Second, true},
		{"once, when the clock was set back", Gate{Kind: Once, Per: time.Hour}, Ended, -time.Minute, false},
		{"once, when the clock was set back by far", Gate{Kind: Once, Per: time.Hour}, Ended, -2 * time.Hour, true},
		{"alone", Gate{Kind: Alone}, Unfinished, 24 * time.Hour, false},
		{"alone, after the end", Gate{Kind: Alone}, Ended, time.Second, true},
		{"alone, after nothing came of it", Gate{Kind: Alone}, CameToNothing, time.Second, true},
	} {
		state, err := tc.gate.Pass(State{}, start, first, never)
		if err != nil || state.First != first {
			t.Fatalf("%s: the first: %+v, %v", tc.name, state, err)
		}
		next, closed := tc.gate.Pass(state, start.Add(tc.after), second, func(id string) Fate {
			if id != "first" {
				t.Errorf("asked for %s", id)
			}
			return tc.fate
		})
		switch {
		case tc.open && (closed != nil || next.First != second):
			t.Errorf("%s: %+v, %v", tc.name, next, closed)
		case !tc.open && (closed == nil || closed.First != first || !reflect.DeepEqual(next, state)):
			t.Errorf("%s: %+v, %v", tc.name, next, closed)
		}
	}
}

// In no span of the time more runs pass than may, a run that waited as long as it was told passes, and what is kept is bounded.
func TestNoMoreRunsPassThanMay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		gate := Gate{Kind: Rate, Most: 1 + random.IntN(200), Per: time.Duration(1+random.IntN(100)) * time.Minute}
		now := time.Unix(1_000_000, int64(random.IntN(1e9)))
		var state State
		var passed []time.Time
		for range 1000 {
			now = now.Add(time.Duration(random.Int64N(int64(gate.Per) / int64(gate.Most))))
			next, closed := gate.Pass(state, now, First{}, never)
			if closed != nil {
				later := now.Add(closed.Wait)
				if _, err := gate.Pass(state, later, First{}, never); err != nil {
					t.Fatalf("seed %d: after %s: %v", seed, closed.Wait, err)
				}
				continue
			}
			state, passed = next, append(passed, now)
			if n := len(passed) - 1 - gate.Most; n >= 0 && now.Sub(passed[n]) < gate.Per {
				t.Fatalf("seed %d: %d runs passed in %s", seed, gate.Most+1, now.Sub(passed[n]))
			}
			if len(state.Times) > maxTimes+1 {
				t.Fatalf("seed %d: %d times are kept", seed, len(state.Times))
			}
			if again, err := Decode(state.Encode(), state.Until); err != nil || !reflect.DeepEqual(again, state) {
				t.Fatalf("seed %d: %+v was read as %+v, %v", seed, state, again, err)
			}
		}
		if len(passed) < gate.Most || len(passed) == 1000 {
			t.Errorf("seed %d: %d passed, of %d in %s", seed, len(passed), gate.Most, gate.Per)
		}
	}
}

func TestRateSurvivesAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	gate := Gate{Kind: Rate, Most: 1, Per: time.Hour}
	now := time.Unix(1_000_000, 0)
	state, _ := gate.Pass(State{}, now, First{}, never)
	if _, closed := gate.Pass(state, now.Add(-24*time.Hour), First{}, never); closed == nil || closed.Wait > time.Hour {
		t.Errorf("got %v", closed)
	}
}

func TestGatesOfHooksAndValuesAreDifferent(t *testing.T) {
	t.Parallel()
	ids := map[[32]byte]bool{NewID(Once, "a", "bc"): true, NewID(Once, "ab", "c"): true, NewID(Rate, "a", "bc"): true, NewID(Once, "a", ""): true,
		NewID(Once, "a", "b", "c"): true, NewID(Once, "a"): true, NewID(Once, "a", "", "bc"): true}
	if len(ids) != 7 {
		t.Errorf("%d ids", len(ids))
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&State{At: 5, First: First{RunID: "r", ChatID: "c", Action: "agent", Sync: true}}).Encode())
	f.Add((&State{Times: []Passage{{1, 1}, {5, 20}}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := Decode(data, time.Unix(1, 0))
		if err != nil {
			return
		}
		again, err := Decode(state.Encode(), state.Until)
		if err != nil || !reflect.DeepEqual(again, state) {
			t.Errorf("%+v was read as %+v, %v", state, again, err)
		}
	})
}
