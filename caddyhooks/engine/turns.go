package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/account"
)

// turns are those that are under way here, and the callers that wait for their runs.
type turns struct {
	mu      sync.Mutex
	running map[string][]*turnUnderWay // by run, the newest last; a turn may be for several runs
	callers map[string]chan Outcome    // of Do, by run: for an outcome that cannot be read from the store
}

func newTurns() *turns {
	return &turns{running: make(map[string][]*turnUnderWay), callers: make(map[string]chan Outcome)}
}

// turnUnderWay is a run that is being carried out, or several that are folded.
type turnUnderWay struct {
	claim     *Claim
	steps     *account.Steps
	cancel    context.CancelCauseFunc
	cancelled <-chan struct{}
	over      chan struct{} // closed when its end has been stored, or given up
	answer    *Outcome      // for a caller that was not known yet; under the lock of turns

	only [1]*turnUnderWay // itself: room for the list of turns of a run, of which there is mostly one
}

// begin makes a turn known, and reports whether it is the only one of its runs. There are two of a run if this engine lost its
// claim on it and then got it again.
func (t *turns) begin(ctx context.Context, claim *Claim, steps *account.Steps, cancel context.CancelCauseFunc) (turn *turnUnderWay,
	alone bool) {
	turn = &turnUnderWay{claim: claim, steps: steps, cancel: cancel, cancelled: ctx.Done(), over: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	alone = true
	for run := range claim.eachRun {
		earlier := t.running[run.ID]
		alone = alone && len(earlier) == 0
		if earlier == nil {
			earlier = turn.only[:0]
		}
		t.running[run.ID] = append(earlier, turn)
	}
	return turn, alone
}

// of is the newest turn of a run that is under way here, nil if there is none. It is called under the lock.
func (t *turns) of(id string) *turnUnderWay {
	if turns := t.running[id]; len(turns) > 0 {
		return turns[len(turns)-1]
	}
	return nil
}

// earlier is a turn of one of the same runs that is not over yet, nil if there is none.
func (t *turns) earlier(turn *turnUnderWay) *turnUnderWay {
	t.mu.Lock()
	defer t.mu.Unlock()
	for run := range turn.claim.eachRun {
		if first := t.running[run.ID][0]; first != turn {
			return first
		}
	}
	return nil
}

// awaitEarlier waits until a turn is the oldest one of its runs, or ctx is done. Both have their leases renewed, and the
// store tells which of them is to be cancelled.
func (t *turns) awaitEarlier(ctx context.Context, turn *turnUnderWay) {
	for {
		earlier := t.earlier(turn)
		if earlier == nil {
			return
		}
		select {
		case <-earlier.over:
		case <-ctx.Done():
			return
		}
	}
}

func (t *turns) finish(turn *turnUnderWay) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for run := range turn.claim.eachRun {
		turns := t.running[run.ID]
		if len(turns) == 1 {
			delete(t.running, run.ID)
		} else {
			t.running[run.ID] = slices.DeleteFunc(turns, func(other *turnUnderWay) bool { return other == turn })
		}
	}
	close(turn.over)
}

func (t *turns) isRunning(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, running := t.running[id]
	return running
}

// tell gives the caller who waits for a run in this engine its outcome, stored or not.
func (t *turns) tell(id string, outcome Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if caller := t.callers[id]; caller != nil {
		select {
		case caller <- outcome:
		default:
		}
	} else if turn := t.of(id); turn != nil {
		turn.answer = &outcome
	}
}

// wait returns what receives the outcome of a run if somebody tells it, until stop is called.
func (t *turns) wait(id string) (outcome <-chan Outcome, stop func()) {
	answer := make(chan Outcome, 1)
	t.mu.Lock()
	t.callers[id] = answer
	if turn := t.of(id); turn != nil && turn.answer != nil {
		answer <- *turn.answer
	}
	t.mu.Unlock()
	return answer, func() {
		t.mu.Lock()
		delete(t.callers, id)
		t.mu.Unlock()
	}
}

// newest is the newest turn of a run that is under way here, nil if there is none.
func (t *turns) newest(id string) *turnUnderWay {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(id)
}

// cancel cancels the turns of a run.
func (t *turns) cancel(id string, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, turn := range t.running[id] {
		turn.cancel(why)
	}
}
