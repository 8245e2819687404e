package account

import (
	"slices"
	"sync"
	"time"
)

// Steps are the turns of an attempt at a run.
type Steps struct {
	began    time.Time // when the attempt did, by this engine's clock …
	storedAt time.Time // … and by that of the store
	redact   Redact

	mu    sync.Mutex
	steps []Step
	open  bool // the last one is under way
}

// NewSteps are those of an attempt that began at a time, by the clock of this engine, and at a time by that of the store.
func NewSteps(began, storedAt time.Time, redact Redact) *Steps {
	return &Steps{began: began, storedAt: storedAt, redact: redact}
}

// at is a time by the clock of the store, whoever sets that of this engine meanwhile.
func (s *Steps) at(t time.Time) time.Time { return s.storedAt.Add(t.Sub(s.began)) }

// Begin notes that a turn begins.
func (s *Steps) Begin(phase Phase, tier string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, Step{Phase: phase, StartedAt: s.at(time.Now()), Tier: tier})
	s.open = true
}

// End notes that the turn is over, and how long its answer is.
func (s *Steps) End(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) > 0 {
		last := &s.steps[len(s.steps)-1]
		last.Took, last.Bytes = s.at(time.Now()).Sub(last.StartedAt), size
	}
	s.open = false
}

// Restore begins with the steps of an earlier attempt.
func (s *Steps) Restore(steps []Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = slices.Clone(steps)
}

// Reopen has the last step go on: its turn is with the agent.
func (s *Steps) Reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = len(s.steps) > 0
}

// Complete notes that the agent has answered the last turn, at a time by the clock of the store.
func (s *Steps) Complete(size int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) > 0 {
		last := &s.steps[len(s.steps)-1]
		last.Took, last.Bytes = max(0, at.Sub(last.StartedAt)), size
	}
}

// Refuse notes what is wrong with the last answer.
func (s *Steps) Refuse(failures []string) {
	kept := s.redact.lines(failures[:min(len(failures), maxStepErrors)])
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) > 0 {
		s.steps[len(s.steps)-1].Errors = kept
	}
}

// SoFar are the steps, with one that is under way as long as it has taken until now.
func (s *Steps) SoFar() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := slices.Clone(s.steps)
	if s.open {
		last := &steps[len(steps)-1]
		last.Took = s.at(time.Now()).Sub(last.StartedAt)
	}
	return steps
}

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

// maxStepErrors bounds the errors of a step. They have as many bytes as those of an Account.
const maxStepErrors = 8

// Size is about how many bytes a store needs for it.
func (s *Step) Size() int {
	size := 64 + len(s.Tier)
	for _, text := range s.Errors {
		size += len(text)
	}
	return size
}
