package engine

import "time"

// Step is a part of the way of a run: its wait in the queue, a turn, or a repair.
type Step struct {
	Phase     Phase
	StartedAt time.Time
	Took      time.Duration
	Tier      string   // of a turn or a repair
	Bytes     int      // of the answer
	Errors    []string // why the answer did not do, at most 8
}

// Phase is the kind of a step.
type Phase string

const (
	PhaseQueued Phase = "queued"
	PhaseTurn   Phase = "turn"
	PhaseRepair Phase = "repair"
)
