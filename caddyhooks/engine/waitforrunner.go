package engine

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/runnerstate"
)

// waitForRunner is the end of a claim on a run that its runner did not take on, if the run is to wait for the runner. A
// caller who waits would rather know at once, and a run with an answer was taken on.
func waitForRunner(ctx context.Context, claim *Claim, outcome Outcome, err error) (end End, waits bool) {
	unavailable, refused := errors.AsType[*UnavailableError](err)
	_, cancelled := errors.AsType[*cancelledError](context.Cause(ctx))
	if claim.Awaited || outcome.HasText || !refused || cancelled {
		return End{}, false
	}
	if unavailable.Failing && claim.Waits+1 >= failingTries {
		return End{}, false
	}
	return End{Requeue: true, WaitingFor: waitingFor(unavailable), Pause: runnerstate.PauseBefore(claim.Waits+1, unavailable.RetryAfter)},
		true
}

// waitingFor says why a run waits for its runner.
func waitingFor(err *UnavailableError) string {
	if err.Failing {
		return "The agent has trouble with its model. The run is tried again in a moment."
	}
	if err.Busy {
		return "The agent is busy. The run starts as soon as the agent has time for it."
	}
	return "The agent cannot be reached. The run starts as soon as the agent is back."
}

// refusalOf is the error as the notes on its runner keep it.
func refusalOf(e *UnavailableError) *runnerstate.Refusal {
	return &runnerstate.Refusal{Busy: e.Busy, RetryAfter: e.RetryAfter, Reason: waitingFor(e), Cause: e.Error()}
}

const (
	// takenOnAfter is how long after it was sent a turn counts as taken on. A runner that is busy says so sooner.
	takenOnAfter = time.Second
	// reachedWithin is how long it takes at most to reach a runner that is there.
	reachedWithin = 2 * time.Second
	// failingTries is how often a turn is tried that fails without effects, and may itself be the cause.
	failingTries = 10
)
