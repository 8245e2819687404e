package caddyhooks

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// stepJSON is a step of a run as operators see it.
type stepJSON struct {
	Phase     engine.Phase `json:"phase"`
	StartedAt *time.Time   `json:"startedAt"`
	Seconds   float64      `json:"seconds"`
	Tier      string       `json:"tier,omitempty"`
	Bytes     int          `json:"bytes,omitempty"`
	Errors    []string     `json:"errors,omitempty"`
}

func newStepJSON(s engine.Step) stepJSON {
	return stepJSON{s.Phase, jsonTime(s.StartedAt), jsonSeconds(s.Took), s.Tier, s.Bytes, s.Errors}
}

// jsonSeconds is a duration in seconds, to the millisecond.
func jsonSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
