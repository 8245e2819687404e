package bolt

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// The fields of a step of a run.
const (
	stepPhase protowire.Number = iota + 1
	stepStart                  // after the run was accepted
	stepTook
	stepTier
	stepBytes
	stepError // once for each
)

// stepPhases are the phases by their numbers. A number must never be used for something else.
var stepPhases = []engine.Phase{"", engine.PhaseQueued, engine.PhaseTurn, engine.PhaseRepair}

// encodeStep writes down a step of a run. Most are about 20 bytes.
func encodeStep(s *engine.Step, run *engine.Run) []byte {
	e := encoder{data: make([]byte, 0, 32)}
	e.number(stepPhase, int64(slices.Index(stepPhases, s.Phase)))
	e.number(stepStart, int64(s.StartedAt.Sub(run.AcceptedAt)))
	e.number(stepTook, int64(s.Took))
	e.text(stepTier, s.Tier)
	e.number(stepBytes, int64(s.Bytes))
	for _, text := range s.Errors {
		e.bytes(stepError, []byte(text))
	}
	return e.data
}

// decodeStep reads what encodeStep wrote.
func decodeStep(data []byte, run *engine.Run) (s engine.Step, err error) {
	s.StartedAt = run.AcceptedAt
	err = eachField(data, func(n protowire.Number, f field) bool {
		switch n {
		case stepPhase:
			if f.number < uint64(len(stepPhases)) {
				s.Phase = stepPhases[f.number]
			}
		case stepStart:
			s.StartedAt = run.AcceptedAt.Add(f.duration())
		case stepTook:
			s.Took = f.duration()
		case stepTier:
			s.Tier = f.text()
		case stepBytes:
			s.Bytes = f.int()
		case stepError:
			s.Errors = append(s.Errors, f.text())
		}
		return true
	})
	return s, err
}
