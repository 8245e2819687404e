package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// dispatch starts a worker for every run that can be claimed, as long as there are workers left.
func (e *Engine) dispatch() {
	defer e.loops.Done()
	for {
		e.startWorkers()
		select {
		case <-e.stopping:
			return
		case <-e.store.Claimable():
		case <-e.freed:
		}
	}
}

func (e *Engine) startWorkers() {
	for !e.isStopping() {
		config := e.config.Load()
		e.mu.Lock()
		free := max(config.Workers-e.active, 0)
		e.active += free
		e.mu.Unlock()
		if free == 0 {
			return
		}
		runs := e.claim(free)
		e.mu.Lock()
		e.active -= free - len(runs)
		e.mu.Unlock()
		for _, run := range runs {
			e.workers.Add(1)
			go e.work(run)
		}
		if len(runs) < free {
			return
		}
	}
}

// work carries out run, and then what else can be claimed.
func (e *Engine) work(run *Run) {
	defer e.workers.Done()
	for run != nil {
		e.protect("carrying out a run", func() { e.carryOut(e.config.Load(), run) })
		run = e.next()
	}
	e.mu.Lock()
	e.active--
	e.mu.Unlock()
	signal(e.freed)
}

// protect keeps a panic, of a store say, from taking the process down.
func (e *Engine) protect(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			e.log().Error("panic", zap.String("while", what), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		}
	}()
	f()
}

func (e *Engine) next() *Run {
	e.mu.Lock()
	surplus := e.active > e.config.Load().Workers // after a reload with fewer workers
	e.mu.Unlock()
	if surplus || e.isStopping() {
		return nil
	}
	if runs := e.claim(1); len(runs) == 1 {
		return runs[0]
	}
	return nil
}

// claim returns nothing if the store fails, and then sees to it that it is asked again.
func (e *Engine) claim(n int) (runs []*Run) {
	err := errors.New("the store panicked")
	e.protect("claiming runs", func() { runs, err = e.store.Claim(e.base, n) })
	if err != nil {
		e.log().Error("claiming runs failed, trying again in a second", zap.Error(err))
		time.AfterFunc(time.Second, func() { signal(e.freed) })
	}
	return runs
}

// carryOut brings a claimed run to its end.
func (e *Engine) carryOut(config *Config, run *Run) {
	start := time.Now()
	ctx, stop := context.WithDeadlineCause(e.base, run.deadline(start), errTimedOut)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.mu.Lock()
	e.running[run.ID] = cancel
	if cause := e.doomed[run.ID]; cause != nil {
		cancel(cause)
	}
	e.mu.Unlock()

	outcome, err := e.attempt(ctx, config, run)

	e.mu.Lock()
	delete(e.running, run.ID)
	e.mu.Unlock()
	if errors.Is(err, ErrStopping) && (!run.Sync || run.hasDeliveries()) {
		if err := e.store.Release(context.Background(), run.ID); err != nil {
			config.Log.Error("putting a run back failed", zap.String("run_id", run.ID), zap.Error(err))
		}
		e.tell(run.ID, outcome)
		return
	}
	deliveries := deliveriesOf(run, outcome)
	if storeErr := e.store.Finish(context.Background(), run.ID, outcome, deliveries); storeErr != nil {
		config.Log.Error("storing the end of a run failed", zap.String("run_id", run.ID), zap.Error(storeErr))
	}
	e.conclude(run, outcome, deliveries, time.Since(start), err)
}

// conclude tells everybody how a run ended, after the store was told. cause is why it failed, if it did.
func (e *Engine) conclude(run *Run, outcome Outcome, deliveries []*Delivery, took time.Duration, cause error) {
	if len(deliveries) > 0 {
		signal(e.deliveries)
	}
	e.tell(run.ID, outcome)
	level := zap.InfoLevel
	if outcome.Status != Completed && outcome.Status != Cancelled {
		level = zap.WarnLevel
	}
	if c := e.log().Check(level, "run finished"); c != nil {
		c.Write(zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.String("name", run.Name),
			zap.String("status", string(outcome.Status)), zap.Int("repairs", outcome.Repairs), zap.Duration("took", took),
			zap.Error(cause))
	}
}

// tell wakes the caller that waits for this very run, if there is one.
func (e *Engine) tell(id string, outcome Outcome) {
	e.mu.Lock()
	ended := e.waiting[id]
	e.mu.Unlock()
	if ended != nil {
		select {
		case ended <- outcome:
		default:
		}
	}
}

// attempt carries out the turn and sees to it that the answer fits the schema. The error is for the log. A panic, in a
// runner or here, is the failure of this run alone.
func (e *Engine) attempt(ctx context.Context, config *Config, run *Run) (outcome Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = failed(ctx, run, outcome, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	var schema *contract.Schema
	turn := Turn{
		RunID: run.ID, ChatID: run.ChatID, Action: run.Action, Hook: run.Hook, Name: run.Name,
		Message: run.Message, Tier: run.turnTier(), MemoryPreset: run.MemoryPreset,
		ResponseSchema: run.Schema, Metadata: run.Metadata, Timeout: run.Timeout, TraceParent: run.TraceParent,
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
	outcome = Outcome{Status: Completed, Text: reply.Text, HasText: true}
	if schema == nil {
		return outcome, nil
	}

	result, err := schema.Fulfil(ctx, reply.Text, func(ctx context.Context, n int, prompt contract.Prompt) (string, error) {
		repair := turn
		repair.Repair = n
		repair.System, repair.Message = prompt.System, prompt.Message
		repair.Tier = run.repairTier()
		repair.MemoryPreset = MemoryDisabled
		repair.Metadata = nil
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
	text, hasText, repairs := outcome.Text, outcome.HasText, outcome.Repairs
	var unavailable *UnavailableError
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
	default:
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent failed to answer."}
	}
	outcome.Text, outcome.HasText, outcome.Repairs = text, hasText, repairs
	return outcome, err
}

// turn calls the runner, again and again while it is busy and there is time. A runner that cannot be reached is
// tried again too, since it may just be starting; a caller that waits would rather know at once.
func (e *Engine) turn(ctx context.Context, config *Config, run *Run, turn Turn) (Reply, error) {
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		reply, err := config.Runner.Run(ctx, turn)
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
