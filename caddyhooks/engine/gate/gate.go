// Package gate keeps runs of a hook from being accepted more often than operators allow. It is a part of package engine, and imports no
// other package of the project.
//
// A store keeps the State of each gate. It looks at the gates of a run in the step in which it accepts the run, and marks them in the same
// step: of two requests that come at the same time, on whatever nodes, one is the first.
package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Gate lets runs pass that have the same ID.
type Gate struct {
	ID   [32]byte
	Kind Kind
	Most int           // of a Rate: how many runs pass in a time
	Per  time.Duration // that time; of Once: for how long no other run passes
}

// Kind is what closes a gate.
type Kind byte

const (
	Once  Kind = 1 // a run has passed, and Per is not over
	Alone Kind = 2 // the run that has passed is unfinished
	Rate  Kind = 3 // as many runs have passed as may in a time
)

// MaxGates is how many gates a store remembers at most. When there are more, it forgets those that were passed longest ago.
const MaxGates = 1_000_000

// aloneTime is for how long a gate that lets one run pass at a time remembers it: longer than a run may take.
const aloneTime = 32 * 24 * time.Hour

// NewID is the id of a gate of a hook for values, such as a template and what its placeholders stand for. Another list of values has
// another id.
func NewID(kind Kind, hook string, values ...string) [32]byte {
	b := []byte{byte(kind)}
	for _, text := range append([]string{hook}, values...) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return sha256.Sum256(b)
}

// State is what is known about a gate. The zero value is a gate that nobody has passed.
type State struct {
	Until time.Time // from then on it is not kept
	At    int64     // of Once and Alone: when a run has passed, in nanoseconds since 1970
	First First     // … and which
	Times []Passage // of a Rate: when runs have passed, the oldest first
}

// First is as much of a run as callers are told who sent the same once more.
type First struct {
	RunID, ChatID, Action string
	Sync                  bool
}

// Passage is when some runs have passed, in nanoseconds since 1970.
type Passage struct {
	At   int64
	Runs int
}

// ClosedError says that a gate did not let a run pass.
type ClosedError struct {
	Gate  Gate
	First First         // of Once and Alone: the run that has passed
	Wait  time.Duration // of a Rate: when the next one passes, if no other comes before; 0 if so many runs never will
}

func (e *ClosedError) Error() string {
	switch e.Gate.Kind {
	case Once:
		return fmt.Sprintf("run %s was accepted with the same value (once)", e.First.RunID)
	case Alone:
		return fmt.Sprintf("run %s of the hook is unfinished in the chat (overlap skip)", e.First.RunID)
	default:
		return fmt.Sprintf("%d runs with the same value were accepted in %s (rate)", e.Gate.Most, e.Gate.Per)
	}
}

// Pass returns the state of the gate after a run has passed at a time, or a *ClosedError. passed tells what became of the run that has
// passed before; it is not called if that makes no difference.
func (g *Gate) Pass(state State, now time.Time, first First, passed func(runID string) Fate) (State, *ClosedError) {
	if g.Kind == Rate {
		return g.count(state, now)
	}
	// Somebody may have set the clock, or another time for the hook, since the run has passed.
	if since := now.Sub(time.Unix(0, state.At)).Abs(); state.First.RunID != "" && (g.Kind == Alone || since < g.Per) {
		fate := passed(state.First.RunID)
		if g.Kind == Once && fate != CameToNothing || g.Kind == Alone && fate == Unfinished {
			return state, &ClosedError{Gate: *g, First: state.First}
		}
	}
	per := g.Per
	if g.Kind == Alone {
		per = aloneTime
	}
	return State{Until: now.Add(per), At: now.UnixNano(), First: first}, nil
}

// Fate is what became of a run.
type Fate int

const (
	Ended         Fate = iota // or it is not known any more
	Unfinished                // it is queued, put aside or carried out
	CameToNothing             // it has ended without an answer that a repeated request could be given
)

// maxTimes is how many parts the time of a Rate has. Runs that pass in the same part are counted together, at the time of the last one.
const maxTimes = 64

// count lets a run pass if there were fewer than Most in the time before now.
func (g *Gate) count(state State, now time.Time) (State, *ClosedError) {
	at, runs := now.UnixNano(), 0
	var times []Passage
	for _, p := range state.Times {
		if p.At > at-int64(g.Per) {
			p.At = min(p.At, at) // somebody has set the clock back
			times, runs = append(times, p), runs+p.Runs
		}
	}
	if runs >= g.Most {
		over := runs - g.Most + 1 // so many have to be forgotten first
		for _, p := range times {
			if over -= p.Runs; over <= 0 {
				return state, &ClosedError{Gate: *g, Wait: max(time.Duration(p.At-at)+g.Per, 1)}
			}
		}
	}
	slot := max(int64(g.Per)/maxTimes, 1)
	if last := len(times) - 1; last >= 0 && times[last].At/slot == at/slot {
		times[last] = Passage{at, times[last].Runs + 1}
	} else {
		times = append(times, Passage{at, 1})
	}
	return State{Until: now.Add(g.Per), Times: times}, nil
}

// Encode writes a state down, without Until, which stores keep beside it.
func (s *State) Encode() []byte {
	if s.First.RunID != "" {
		b := []byte{0}
		if s.First.Sync {
			b[0] = 1
		}
		b = binary.AppendVarint(b, s.At)
		for _, text := range [...]string{s.First.RunID, s.First.ChatID, s.First.Action} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
		return b
	}
	b := []byte{2}
	before := int64(0)
	for _, p := range s.Times {
		b = binary.AppendUvarint(binary.AppendVarint(b, p.At-before), uint64(p.Runs))
		before = p.At
	}
	return b
}

// Decode reads what Encode wrote.
func Decode(b []byte, until time.Time) (State, error) {
	state := State{Until: until}
	if len(b) == 0 || b[0] > 2 {
		return State{}, errDamaged
	}
	kind, b := b[0], b[1:]
	if kind < 2 {
		at, size := binary.Varint(b)
		if size <= 0 {
			return State{}, errDamaged
		}
		state.At, state.First.Sync, b = at, kind == 1, b[size:]
		for _, text := range [...]*string{&state.First.RunID, &state.First.ChatID, &state.First.Action} {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return State{}, errDamaged
			}
			*text, b = string(b[size:size+int(n)]), b[size+int(n):]
		}
		if len(b) > 0 || state.First.RunID == "" {
			return State{}, errDamaged
		}
		return state, nil
	}
	at := int64(0)
	for len(b) > 0 {
		later, size := binary.Varint(b)
		if size <= 0 {
			return State{}, errDamaged
		}
		runs, more := binary.Uvarint(b[size:])
		if more <= 0 || runs == 0 || runs > 1<<31 || len(state.Times) > 4*maxTimes {
			return State{}, errDamaged
		}
		at += later
		state.Times, b = append(state.Times, Passage{at, int(runs)}), b[size+more:]
	}
	return state, nil
}

var errDamaged = errors.New("the state of a gate is damaged")
