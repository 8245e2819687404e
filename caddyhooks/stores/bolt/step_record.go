package bolt

import (
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// stepPhases are the phases by their numbers. A number must never be used for something else.
var stepPhases = []engine.Phase{"", engine.PhaseQueued, engine.PhaseTurn, engine.PhaseRepair}

// encodeStep writes down a step of a run that was accepted at a time. Most are about 20 bytes.
func encodeStep(s *engine.Step, accepted time.Time) []byte {
	phase, start := slices.Index(stepPhases, s.Phase), s.StartedAt.Sub(accepted)
	return encodePart(stepFields(s, &phase, &start))
}

// decodeStep reads what encodeStep wrote.
func decodeStep(data []byte, accepted time.Time) (s engine.Step, err error) {
	var phase int
	var start time.Duration
	err = decodePart(data, stepFields(&s, &phase, &start))
	if phase >= 0 && phase < len(stepPhases) {
		s.Phase = stepPhases[phase]
	}
	s.StartedAt = accepted.Add(start)
	return s, err
}

func stepFields(s *engine.Step, phase *int, start *time.Duration) []any {
	return []any{phase, start, &s.Took, &s.Tier, &s.Bytes, &s.Errors}
}

func permissionFields(p *engine.Permission) []any { return []any{&p.Kind, &p.Title, &p.Answer} }

func useFields(u *engine.Use) []any {
	return []any{&u.Model, &u.HasTokens, &u.Input, &u.Output, &u.Cached, &u.Reasoning, &u.HasCost, &u.Cost}
}
