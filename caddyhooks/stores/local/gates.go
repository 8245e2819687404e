package local

import (
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

// Gates looks at the gates of runs that are to be accepted at a time.
type Gates struct {
	Now   time.Time
	State func(id [32]byte) gate.State // of a gate, as the store has it
	Fate  func(runID string) gate.Fate // of a run that has passed one
}

// Passage is how the runs of a request have passed their gates. The zero value is for runs that have none.
type Passage struct {
	LeftOut []bool                  // by the number of the run; nil if all have passed
	States  map[[32]byte]gate.State // what is to be kept
}

// HasGates reports whether one of the runs has a gate.
func HasGates(runs []*engine.Run) bool {
	return slices.ContainsFunc(runs, func(run *engine.Run) bool { return len(run.Gates) > 0 })
}

// Pass takes the runs of a request, which have their ids, through their gates, and the gates off them. The error is the one of
// Runs.AddAll. If refuse is not nil it is this one, unless the request is a repeated one.
func (g *Gates) Pass(runs []*engine.Run, refuse error) (Passage, error) {
	if !HasGates(runs) {
		return Passage{}, refuse
	}
	passage := Passage{LeftOut: make([]bool, len(runs)), States: make(map[[32]byte]gate.State)}
	own := make(map[[32]byte]int) // how many runs of this request have passed a gate
	var first *gate.ClosedError   // of the first run that is left out
	left := 0
	for i, run := range runs {
		closed := g.passOne(&passage, own, run)
		switch {
		case closed == nil:
		case closed.Gate.Kind == gate.Rate:
			if refuse != nil {
				return Passage{}, refuse
			}
			return Passage{}, closed
		default:
			passage.LeftOut[i] = true
			left++
			if first == nil {
				first = closed
			}
		}
	}
	isRepeated := left == len(runs) && first.Gate.Kind == gate.Once
	switch {
	case refuse != nil && !isRepeated:
		return Passage{}, refuse
	case left == len(runs):
		return Passage{}, first
	case left == 0:
		passage.LeftOut = nil
	}
	for _, run := range runs {
		run.Gates = nil
	}
	return passage, nil
}

// passOne takes a run through its gates. If one is closed, the others are as before.
func (g *Gates) passOne(passage *Passage, own map[[32]byte]int, run *engine.Run) *gate.ClosedError {
	first := gate.First{RunID: run.ID, ChatID: run.ChatID, Action: string(run.Action), Sync: run.Sync}
	next := make([]gate.State, len(run.Gates))
	for i := range run.Gates {
		at := &run.Gates[i]
		state, isOwn := passage.States[at.ID]
		fate := g.Fate
		if isOwn {
			fate = func(string) gate.Fate { return gate.Unfinished }
		} else {
			state = g.State(at.ID)
		}
		var closed *gate.ClosedError
		if next[i], closed = at.Pass(state, g.Now, first, fate); closed != nil {
			if closed.Gate.Kind == gate.Rate && own[at.ID] >= at.Most {
				closed.Wait = 0 // the request alone has too many
			}
			return closed
		}
	}
	for i := range run.Gates {
		passage.States[run.Gates[i].ID] = next[i]
		own[run.Gates[i].ID]++
	}
	return nil
}

// Request is the runs that were not left out, as the runs of the request: what belongs to it is that of the first now.
func (p *Passage) Request(runs []*engine.Run) []*engine.Run {
	passed := Passed(p, runs)
	if first, before := passed[0], runs[0]; first != before {
		first.Key, first.KeyHeader, first.Replay = before.Key, before.KeyHeader, before.Replay
	}
	if len(passed) == 1 && len(runs) > 1 {
		passed[0].Together = make([]engine.Sibling, 1) // it could have become several
	}
	return passed
}

// Passed are those of the runs that were not left out, or of whatever else there is of each run.
func Passed[T any](passage *Passage, all []T) []T {
	if passage.LeftOut == nil {
		return all
	}
	var passed []T
	for i := range all {
		if !passage.LeftOut[i] {
			passed = append(passed, all[i])
		}
	}
	return passed
}
