package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

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

// stepNotes are the turns of an attempt at a run.
type stepNotes struct {
	began    time.Time // when the attempt did, by this engine's clock …
	storedAt time.Time // … and by that of the store
	redactor Redactor  // nil if the runner has no secrets

	mu    sync.Mutex
	steps []Step
	open  bool // the last one is under way
}

func newStepNotes(claim *Claim, began time.Time, runner Runner) *stepNotes {
	redactor, _ := runner.(Redactor)
	return &stepNotes{began: began, storedAt: claim.StartedAt, redactor: redactor}
}

// at is a time by the clock of the store, whoever sets that of this engine meanwhile.
func (n *stepNotes) at(t time.Time) time.Time { return n.storedAt.Add(t.Sub(n.began)) }

// begin notes that a turn begins.
func (n *stepNotes) begin(turn Turn) {
	phase := PhaseTurn
	if turn.Repair > 0 {
		phase = PhaseRepair
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.steps = append(n.steps, Step{Phase: phase, StartedAt: n.at(time.Now()), Tier: turn.Tier})
	n.open = true
}

// end notes that the turn is over, and how long its answer is.
func (n *stepNotes) end(size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := &n.steps[len(n.steps)-1]
	last.Took, last.Bytes = n.at(time.Now()).Sub(last.StartedAt), size
	n.open = false
}

// refuse notes what is wrong with the last answer, without the secrets of the runner.
func (n *stepNotes) refuse(failures []string) {
	var kept []string
	room := maxValidationErrors
	for _, text := range failures[:min(len(failures), maxStepErrors)] {
		if n.redactor != nil {
			text = n.redactor.Redact(text) // before a secret can be cut in two
		}
		text = oneline.Of(text, maxValidationError)
		if room -= len(text); room < 0 {
			break
		}
		kept = append(kept, text)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.steps) > 0 {
		n.steps[len(n.steps)-1].Errors = kept
	}
}

// soFar are the steps, with one that is under way as long as it has taken until now.
func (n *stepNotes) soFar() []Step {
	n.mu.Lock()
	defer n.mu.Unlock()
	steps := slices.Clone(n.steps)
	if n.open {
		last := &steps[len(steps)-1]
		last.Took = n.at(time.Now()).Sub(last.StartedAt)
	}
	return steps
}

// completeSteps adds the wait in the queue to the steps of a record, and the turns of a run that is carried out by this engine.
// Stores keep only turns: the record tells the rest.
func (f *records) completeSteps(record *Record) {
	if record.Status == Running {
		if turn := f.turns.newest(record.Run.ID); turn != nil && turn.claim.Attempt == record.Attempts {
			record.Steps = turn.steps.soFar()
		}
	}
	queued := Step{Phase: PhaseQueued, StartedAt: record.Run.AcceptedAt}
	until := record.StartedAt
	switch {
	case !until.IsZero():
	case record.Status.Ended():
		until = record.FinishedAt
	default:
		until = time.Now()
	}
	queued.Took = max(0, until.Sub(queued.StartedAt)) // somebody may have set the clock
	record.Steps = append([]Step{queued}, record.Steps...)
}
