package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// mostLooks is how often a request is decided on before it fails, because other nodes were quicker to change one of its gates.
const mostLooks = 100

// errGatesChanged says that other nodes were quicker each time.
var errGatesChanged = errors.New("other nodes change the gates of the request all the time")

// addGatedStatement accepts requests that have passed gates.
var addGatedStatement = callStatement("add_gated_2", 6+addParameters)

// lookedGates are the gates of some requests, as the database has them.
type lookedGates struct {
	local.Gates
	states   map[[32]byte]gate.State
	versions map[[32]byte]int64
	fates    map[string]gate.Fate // by the run that has passed
}

// look asks for the gates of requests, and returns nil if they have none.
func (a *adding) look(ctx context.Context, together []*addition) (*lookedGates, error) {
	asked := make(map[[32]byte]struct{})
	for _, one := range together {
		one.eachGate(func(id [32]byte) { asked[id] = struct{}{} })
	}
	if len(asked) == 0 {
		return nil, nil
	}
	looked := &lookedGates{states: make(map[[32]byte]gate.State), versions: make(map[[32]byte]int64), fates: make(map[string]gate.Fate)}
	looked.State = func(id [32]byte) gate.State { return looked.states[id] }
	looked.Fate = func(runID string) gate.Fate { return looked.fates[runID] }
	var ids [][]byte
	for id := range asked {
		ids = append(ids, id[:])
	}
	return looked, a.on(addCalls).query(ctx, looked.read, "SELECT * FROM @.look_at_gates_2($1)", ids)
}

// read takes in a row.
func (l *lookedGates) read(row pgx.Rows) error {
	var now time.Time
	var id, encoded []byte
	var version *int64
	var until *time.Time
	var isUnfinished bool
	var status, failure *string
	if err := row.Scan(&now, &id, &version, &until, &encoded, &isUnfinished, &status, &failure); err != nil {
		return err
	}
	l.Now = now.UTC()
	if version == nil {
		return nil
	}
	l.versions[[32]byte(id)] = *version
	state, err := gate.Decode(encoded, until.UTC())
	if err != nil {
		return nil //nolint:nilerr // one that is damaged begins anew
	}
	l.states[[32]byte(id)] = state
	switch {
	case isUnfinished:
		l.fates[state.First.RunID] = gate.Unfinished
	case status != nil:
		ended := engine.Outcome{Status: engine.Status(*status)}
		if failure != nil {
			ended.Failure = engine.Failure(*failure)
		}
		if ended.ForgetsKey() {
			l.fates[state.First.RunID] = gate.CameToNothing
		}
	}
	return nil
}

// pass takes a request that has its ids through its gates. The requests after it find them as if it was accepted.
func (l *lookedGates) pass(a *addition) {
	a.passage, a.refuse = l.Pass(a.runs, a.terms.Refuse)
	a.runs = a.passage.Request(a.runs)
	for id, state := range a.passage.States {
		l.states[id] = state
		l.fates[state.First.RunID] = gate.Unfinished
	}
}

// arguments are those of addGatedStatement before those of addStatement.
func (l *lookedGates) arguments(together []*addition) []any {
	ids, states, requests, versions := [][]byte{}, [][]byte{}, []int32{}, []int64{}
	untils, runs := []*time.Time{}, []*string{}
	passed := make(map[[32]byte]bool)
	for i, one := range together {
		own := make(map[[32]byte]bool)
		one.eachGate(func(id [32]byte) {
			state, passes := one.passage.States[id]
			if own[id] || !passes && !passed[id] {
				return
			}
			own[id], passed[id] = true, true
			ids, requests, versions = append(ids, id[:]), append(requests, int32(i+1)), append(versions, l.versions[id])
			var until *time.Time
			var run *string
			var encoded []byte
			if passes {
				until, encoded = &state.Until, state.Encode()
			}
			if state.First.RunID != "" {
				run = &state.First.RunID
			}
			untils, runs, states = append(untils, until), append(runs, run), append(states, encoded)
		})
	}
	return []any{ids, requests, versions, untils, runs, states}
}

// eachGate calls f with the id of each gate of the runs.
func (a *addition) eachGate(f func(id [32]byte)) {
	for i := range a.asked {
		for _, g := range a.asked[i].Gates {
			f(g.ID)
		}
	}
}

// changed are the requests that have to be decided on again.
func (a *addAnswer) changed() (again []*addition) {
	for i, one := range a.together {
		if !errors.Is(a.refused[i], errGatesChanged) {
			continue
		}
		if one.looks++; one.looks < mostLooks {
			again = append(again, one)
		}
	}
	return again
}
