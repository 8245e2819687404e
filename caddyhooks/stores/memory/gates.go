package memory

import (
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// maxGates is how many gates are remembered: fewer than in a file, since each takes some hundred bytes.
const maxGates = gate.MaxGates / 10

// gates are the states of gates.
type gates struct {
	states map[[32]byte]*gate.State
	order  []writtenGate // the oldest first; some of them are out of date
}

// writtenGate is a state that was kept once.
type writtenGate struct {
	id    [32]byte
	state *gate.State
}

// put keeps a state. When there are too many, those are forgotten that came first.
func (g *gates) put(id [32]byte, state gate.State) {
	if g.states == nil {
		g.states = make(map[[32]byte]*gate.State)
	}
	g.states[id] = &state
	g.order = append(g.order, writtenGate{id, &state})
	if len(g.order) > 2*len(g.states)+1000 {
		g.order = slices.DeleteFunc(g.order, func(w writtenGate) bool { return g.states[w.id] != w.state })
	}
	for len(g.states) > maxGates {
		g.forgetOldest()
	}
}

// forgetOldest forgets the state that came first, or finds that there is a newer one.
func (g *gates) forgetOldest() {
	if oldest := g.order[0]; g.states[oldest.id] == oldest.state {
		delete(g.states, oldest.id)
	}
	g.order = g.order[1:]
}

// prune forgets the state that came first if its time was over, and reports whether there may be more.
func (g *gates) prune(at time.Time) bool {
	if len(g.order) == 0 || g.states[g.order[0].id] == g.order[0].state && g.order[0].state.Until.After(at) {
		return false
	}
	g.forgetOldest()
	return true
}

// state is that of a gate, the zero value if there is none.
func (g *gates) state(id [32]byte) gate.State {
	if state := g.states[id]; state != nil {
		return *state
	}
	return gate.State{}
}

// passGates takes runs that have their ids through their gates.
func (s runs) passGates(added []*engine.Run, refuse error, now time.Time) (local.Passage, error) {
	checked := local.Gates{Now: now, State: s.gates.state, Fate: func(runID string) gate.Fate {
		id, _ := local.ParseID(runID)
		switch record := s.runs[id]; {
		case record == nil:
			return gate.Ended
		case !record.Status.Ended():
			return gate.Unfinished
		case record.Outcome.ForgetsKey():
			return gate.CameToNothing
		default:
			return gate.Ended
		}
	}}
	return checked.Pass(added, refuse)
}
