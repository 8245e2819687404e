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
		claims := e.claim(free)
		e.mu.Lock()
		e.active -= free - len(claims)
		e.mu.Unlock()
		for _, claim := range claims {
			e.workers.Add(1)
			go e.work(claim)
		}
		if len(claims) < free {
			return
		}
	}
}

// work carries out a run, and then what else can be claimed.
func (e *Engine) work(claim *Claim) {
	defer e.workers.Done()
	for claim != nil {
		var next *Claim
		e.protect("carrying out a run", func() { next = e.carryOut(e.config.Load(), claim) })
		claim = next
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

// lease is how long a run stays with an engine that does not renew its claim. It ends the wait for an engine that died
// while others work on the same store.
const lease = time.Minute

// claim returns nothing if the store fails, and then sees to it that it is asked again.
func (e *Engine) claim(n int) (claims []*Claim) {
	err := errors.New("the store panicked")
	e.protect("claiming runs", func() { claims, err = e.store.Claim(e.base, Want{Runs: n, Lease: lease}) })
	if err != nil {
		e.log().Error("claiming runs failed, trying again in a second", zap.Error(err))
		time.AfterFunc(time.Second, func() { signal(e.freed) })
	}
	return claims
}

// another is what a worker wants when its run is over: one more run, unless it is not needed any more.
func (e *Engine) another() Want {
	e.mu.Lock()
	surplus := e.active > e.config.Load().Workers // after a reload with fewer workers
	e.mu.Unlock()
	if surplus || e.isStopping() {
		return Want{}
	}
	return Want{Runs: 1, Lease: lease}
}

// runningTurn is a run that is being carried out.
type runningTurn struct {
	claim  *Claim
	cancel context.CancelCauseFunc
	over   bool // its end has been stored, or given up
}

// carryOut brings a claimed run to its end, and returns the run that was claimed in its place, if any.
func (e *Engine) carryOut(config *Config, claim *Claim) (next *Claim) {
	run := claim.Run
	start := time.Now()
	awaited := run.Sync && run.Owner == e.id
	ctx, stop := context.WithDeadlineCause(e.base, run.deadline(start, awaited), errTimedOut)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.mu.Lock()
	if before := e.running[run.ID]; before != nil && !before.over {
		// The process stood still for so long that the claim ran out, and now the same run was claimed again.
		if claim.Attempt > before.claim.Attempt {
			before.claim = claim
		}
		e.mu.Unlock()
		return nil
	}
	turn := &runningTurn{claim: claim, cancel: cancel}
	e.running[run.ID] = turn
	if cause := e.doomed[run.ID]; cause != nil {
		cancel(cause)
		delete(e.doomed, run.ID)
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		turn.over = true
		if e.running[run.ID] == turn {
			delete(e.running, run.ID)
		}
		e.mu.Unlock()
	}()

	outcome, hopeless := hopelessOutcome(config, claim, awaited)
	var err error
	if !hopeless {
		outcome, err = e.attempt(ctx, config, run)
	}
	if errors.Is(err, ErrStopping) && (!run.Sync || run.hasDeliveries()) {
		if err := e.store.Release(context.Background(), e.claimOf(turn)); err != nil {
			config.Log.Error("putting a run back failed", zap.String("run_id", run.ID), zap.Error(err))
		}
		e.tell(run.ID, outcome)
		return nil
	}
	if errors.Is(context.Cause(ctx), ErrClaimLost) {
		return nil // it is carried out elsewhere
	}
	end := newEnd(run, outcome)
	end.Unstarted = hopeless
	next, storeErr := e.finish(config, turn, end)
	if errors.Is(storeErr, ErrClaimLost) {
		config.Log.Warn("the outcome of a run is thrown away, since it is carried out elsewhere", zap.String("run_id", run.ID))
		return nil
	}
	if storeErr != nil {
		config.Log.Error("the end of a run is not stored, so it will be started again",
			zap.String("run_id", run.ID), zap.String("status", string(outcome.Status)), zap.Error(storeErr))
		return nil
	}
	e.conclude(run, end, time.Since(start), err)
	return next
}

// hopelessOutcome is the end of a run that must not be started again after the process died.
func hopelessOutcome(config *Config, claim *Claim, awaited bool) (outcome Outcome, hopeless bool) {
	run := claim.Run
	switch {
	case run.Sync && !awaited && !run.hasDeliveries():
		return Outcome{Status: Failed, Failure: Interrupted, Message: "The service was restarted before the run ended."}, true
	case config.MaxAttempts > 0 && claim.Attempt > config.MaxAttempts:
		return Outcome{Status: Failed, Failure: Interrupted,
			Message: fmt.Sprintf("The run was started %d times, and the service went down each time.", config.MaxAttempts)}, true
	}
	return Outcome{}, false
}

// claimOf is the claim on a run that holds now.
func (e *Engine) claimOf(turn *runningTurn) *Claim {
	e.mu.Lock()
	defer e.mu.Unlock()
	return turn.claim
}

// finish stores the end of a run, and claims another one.
func (e *Engine) finish(config *Config, turn *runningTurn, end End) (next *Claim, err error) {
	runID := e.claimOf(turn).Run.ID
	err = e.insist(config, "storing the end of a run", runID, func() error {
		claims, err := e.store.Finish(context.Background(), e.claimOf(turn), end, e.another())
		if errors.Is(err, ErrClaimLost) {
			err = e.finishLost(turn, end)
		}
		if len(claims) > 0 {
			next = claims[0]
		}
		if err != nil && !errors.Is(err, ErrClaimLost) {
			e.tell(runID, end.Outcome) // a caller who waits need not wait for this
		}
		return err
	})
	return next, err
}

// finishLost stores the end of a run whose claim has run out, as long as nobody else has ended the run or is about to.
func (e *Engine) finishLost(turn *runningTurn, end End) error {
	claim := e.claimOf(turn)
	for range 100 {
		record, err := e.store.Get(context.Background(), claim.Run.ID)
		switch {
		case err != nil:
			return err
		case record.Status.Ended() && record.FinishedAt.Equal(end.At.Truncate(0)):
			return nil // it was stored after all when the store said that it had failed
		case record.Status.Ended():
			return ErrClaimLost
		case record.Status == Queued:
			err = e.store.Withdraw(context.Background(), claim.Run.ID, end)
			if !errors.Is(err, ErrNotFound) {
				return err
			}
		default: // it was claimed again: by this engine, which takes the claim over, or by another one
			newer := e.claimOf(turn)
			if newer != claim {
				_, err = e.store.Finish(context.Background(), newer, end, Want{})
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return ErrClaimLost
}

// insist does something again and again until the store, whose disk may be full, can do it, or the engine is stopped.
// What is not stored by then is done again after the next start.
func (e *Engine) insist(config *Config, what, runID string, do func() error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := do()
		if err == nil || errors.Is(err, ErrClaimLost) || errors.Is(err, ErrNotFound) || e.base.Err() != nil {
			return err
		}
		config.Log.Error("the store failed, trying again",
			zap.String("while", what), zap.String("run_id", runID), zap.Duration("pause", pause), zap.Error(err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-e.base.Done():
			timer.Stop()
		}
	}
}

func newEnd(run *Run, outcome Outcome) End {
	now := time.Now()
	return End{Outcome: outcome, Deliveries: deliveriesOf(run, outcome, now), At: now}
}

// conclude tells everybody how a run ended, after the store was told. cause is why it failed, if it did.
func (e *Engine) conclude(run *Run, end End, took time.Duration, cause error) {
	if len(end.Deliveries) > 0 {
		signal(e.deliveries)
	}
	e.tell(run.ID, end.Outcome)
	level := zap.InfoLevel
	if status := end.Outcome.Status; status != Completed && status != Cancelled {
		level = zap.WarnLevel
	}
	if c := e.log().Check(level, "run finished"); c != nil {
		c.Write(zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.String("name", run.Name),
			zap.String("status", string(end.Outcome.Status)), zap.Int("repairs", end.Outcome.Repairs), zap.Duration("took", took),
			zap.Error(cause))
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
	before := outcome
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
	outcome.Text, outcome.HasText, outcome.Repairs, outcome.Checked = before.Text, before.HasText, before.Repairs, before.Checked
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
