package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Step is a step of a run as operators see it.
type Step struct {
	Phase     engine.Phase `json:"phase"`
	StartedAt *time.Time   `json:"startedAt"`
	Seconds   float64      `json:"seconds"`
	Tier      string       `json:"tier,omitempty"`
	Bytes     int          `json:"bytes,omitempty"`
	Errors    []string     `json:"errors,omitempty"`
}

func NewStep(s engine.Step) Step {
	return Step{s.Phase, text.JSONTime(s.StartedAt), text.JSONSeconds(s.Took), s.Tier, s.Bytes, s.Errors}
}
