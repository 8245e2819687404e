package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// attempt carries out the turn and sees to it that the answer fits the schema. The error is for the log. A panic, in a
// runner or here, is the failure of this run alone.
func (e *Engine) attempt(ctx context.Context, config *Config, run *Run) (outcome Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = failed(ctx, run, outcome, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if ctx.Err() != nil {
		return failed(ctx, run, Outcome{}, context.Cause(ctx)) // it was cancelled before it began
	}
	var schema *contract.Schema
	turn := Turn{
		RunID: run.ID, ChatID: run.ChatID, Action: run.Action, Hook: run.Hook, Name: run.Name,
		Message: run.Message, Tier: run.turnTier(), MemoryPreset: run.MemoryPreset,
		ResponseSchema: run.Schema, Metadata: run.Metadata, Timeout: run.Timeout, TraceParent: run.TraceParent,
	}
	if config.Progress != nil {
		turn.Emit = func(update Progress) { config.Progress(run, update) }
	}
	turn.Deadline, _ = ctx.Deadline()
	if run.Schema != nil {
		if schema, err = e.schemas.Compile(run.Schema); err != nil {
			return Outcome{Status: Failed, Failure: SchemaUnmet, Message: err.Error()}, err
		}
		turn.System = schema.Instructions()
	}
	reply, err := e.turn(ctx, config, run, turn)
	if err != nil {
		return failed(ctx, run, Outcome{}, err)
	}
	outcome = Outcome{Status: Completed, Text: reply.Text, HasText: true, Checked: schema != nil}
	if schema == nil {
		return outcome, nil
	}

	result, err := schema.Fulfil(ctx, reply.Text, func(ctx context.Context, n int, prompt contract.Prompt) (string, error) {
		repair := turn
		repair.Repair = n
		repair.System, repair.Message = prompt.System, prompt.Message
		repair.Tier = run.repairTier()
		repair.MemoryPreset = MemoryDisabled
		repair.Metadata, repair.Emit = nil, nil
		reply, err := e.turn(ctx, config, run, repair)
		return reply.Text, err
	})
	outcome.Repairs = result.Repairs
	if errors.Is(err, contract.ErrNotFulfilled) && ctx.Err() == nil {
		outcome.Status, outcome.Failure = Failed, SchemaUnmet
		outcome.Message = fmt.Sprintf("The agent's answer did not match responseJsonSchema (%d repair attempts were made).", result.Repairs)
		return outcome, nil
	}
	if err != nil {
		return failed(ctx, run, outcome, err)
	}
	outcome.JSON = result.JSON
	return outcome, nil
}

// failed completes outcome with the reason for which a turn gave no answer.
func failed(ctx context.Context, run *Run, outcome Outcome, err error) (Outcome, error) {
	before := outcome
	var unavailable *UnavailableError
	var gone *RunnerGoneError
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimedOut):
		outcome = timedOut(run)
	case errors.Is(cause, errCancelled):
		outcome = Outcome{Status: Cancelled, Message: "The run was cancelled."}
	case errors.Is(cause, ErrStopping):
		outcome, err = stoppedOutcome(), ErrStopping
	case errors.As(err, &unavailable):
		outcome = Outcome{Status: Failed, Failure: RunnerUnavailable, RetryAfter: max(unavailable.RetryAfter, 5*time.Second),
			Message: "The agent is not available right now; try again later."}
	case errors.As(err, &gone):
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent that the run was accepted for is not configured any more."}
	default:
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent failed to answer."}
	}
	outcome.Text, outcome.HasText, outcome.Repairs, outcome.Checked = before.Text, before.HasText, before.Repairs, before.Checked
	return outcome, err
}

// turn calls the runner, again and again while it is busy and there is time. A runner that cannot be reached is
// tried again too, since it may just be starting; a caller that waits would rather know at once.
func (e *Engine) turn(ctx context.Context, config *Config, run *Run, turn Turn) (Reply, error) {
	name := run.Runner
	if name == "" {
		name = config.DefaultRunner
	}
	runner, ok := config.Runners[name]
	if !ok {
		return Reply{}, &RunnerGoneError{Name: name}
	}
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		start := time.Now()
		reply, err := call(ctx, runner, turn)
		e.metrics().TurnEnded(run, name, turn.Repair, time.Since(start), err)
		var unavailable *UnavailableError
		if err == nil || ctx.Err() != nil || !errors.As(err, &unavailable) {
			return reply, err
		}
		if run.Sync && (!unavailable.Busy || unavailable.RetryAfter > time.Until(turn.Deadline)) {
			return reply, err
		}
		timer := time.NewTimer(max(pause, unavailable.RetryAfter))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reply, err
		}
	}
}

// call makes a panic of the runner an error.
func call(ctx context.Context, runner Runner, turn Turn) (reply Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the runner panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return runner.Run(ctx, turn)
}
