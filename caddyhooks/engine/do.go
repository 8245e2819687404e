package engine

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/absence"
)

// Do submits the run and waits for its end, on whatever node it is carried out. When ctx is done first, the run is cancelled unless it has
// deliveries, or is put aside: then it goes on, as it does when its time is over. An *RunnerUnreachableError says that the runner is
// unreachable, and that nothing was stored. For settings see Submit. The functions stored are called when the run is stored.
func (e *Engine) Do(ctx context.Context, run *Run, settings int64, stored ...func()) (Outcome, error) {
	if e.isStopping() {
		return Outcome{}, ErrStopping
	}
	run.Owner = e.store.Node()
	unreachable, rest, refused := e.runners.outages.Refuses(e.config().runnerOf(run))
	if refused {
		return Outcome{}, &RunnerUnreachableError{RetryAfter: rest}
	}
	timer := time.NewTimer(run.Timeout)
	defer timer.Stop()
	if err := e.Submit(ctx, run, settings); err != nil {
		return Outcome{}, err
	}
	for _, tell := range stored {
		tell()
	}
	ended, stop := e.store.Watch().Ended(run.ID)
	defer stop()
	answer, forget := e.turns.wait(run.ID)
	defer forget()
	// It may have ended before anybody could watch for it.
	if !e.records.unfinished(ctx, run.ID) {
		if record, err := e.records.get(ctx, run.ID); err == nil && record.Status.Ended() {
			return record.Outcome, nil
		}
	}

	grace := time.Second
	broken := e.store.broken
	away := absence.New(e.store.outage, e.lease)
	defer away.Stop()
	for waits := true; waits; {
		waits = false
		select {
		case <-ended:
			return e.outcomeOf(run, answer)
		case outcome := <-answer:
			return outcome, nil
		case <-unreachable:
			// The runner went away. If the run is with it just now, it will say so itself.
			if !e.records.isAside(run.ID) {
				_ = e.ends.withdraw(run, unavailableOutcome(0, Account{Reason: "the runner is unreachable: it did not take on the last turns"}))
			}
			unreachable, waits = nil, true
		case <-timer.C:
			if e.records.isAside(run.ID) {
				return putAsideOutcome(run), nil
			}
			// A run that is being carried out has a deadline of its own. A store that fails is in the log; the run's time is up
			// all the same.
			_ = e.ends.withdraw(run, waitedOut(run, e.pauses.Of(e.config().startOf(run))))
		case <-e.stopping:
			// A turn that is under way has the drain time to end in; a run with deliveries stays queued for the next start.
			if (run.hasDeliveries() || e.records.isAside(run.ID)) && !e.turns.isRunning(run.ID) {
				return stoppedOutcome(), nil
			}
			if !run.hasDeliveries() {
				_ = e.ends.withdraw(run, stoppedOutcome())
			}
			grace += e.drainTimeout()
		case <-broken:
			// A turn that is under way ends as it would, and its worker tells, before it is over. Another one does not begin.
			broken, waits = nil, true
			if !e.turns.isRunning(run.ID) {
				e.turns.tell(run.ID, brokenOutcome()) // unless it was told already
			}
		case <-away.Changed:
			away.Look()
			waits = true
		case <-away.TooLong:
			waits = true
			e.turns.tell(run.ID, unreachableOutcome()) // unless it was told already
		case <-ctx.Done():
			if run.hasDeliveries() || e.records.isAside(run.ID) {
				return Outcome{}, ctx.Err()
			}
			_ = e.ends.cancel(run, cancelledOutcome("The caller went away.", "the caller, who hung up"))
		}
	}
	// How the run ended is told by the worker that had it. A runner that does not return when it should must not hold the caller too.
	timer.Reset(grace)
	select {
	case <-ended:
		outcome, err := e.outcomeOf(run, answer)
		return outcome, errors.Join(ctx.Err(), err)
	case outcome := <-answer:
		return outcome, ctx.Err()
	case <-timer.C:
	}
	if ctx.Err() != nil {
		return Outcome{}, ctx.Err()
	}
	if e.isStopping() {
		return stoppedOutcome(), nil
	}
	if err := e.store.unreachableError(); err != nil {
		return Outcome{}, err
	}
	return timedOut(run), nil
}

// outcomeOf returns how a run has ended: as its worker tells it, if that is one of this engine, or as the store has it. A
// turn of this engine that was cancelled need not be the one that ended the run.
func (e *Engine) outcomeOf(run *Run, answer <-chan Outcome) (Outcome, error) {
	turn := e.turns.newest(run.ID)
	if turn != nil {
		select {
		case outcome := <-answer:
			return outcome, nil
		case <-turn.cancelled:
		case <-turn.over:
		}
	}
	select {
	case outcome := <-answer:
		return outcome, nil
	default:
	}
	ctx, cancel := e.store.context()
	defer cancel()
	record, err := e.records.get(ctx, run.ID)
	if err != nil {
		return Outcome{}, err
	}
	return record.Outcome, nil
}

// cancelPatience is how long Cancel waits for a runner to let go of a turn.
const cancelPatience = 5 * time.Second

// Cancel ends a run that has not ended yet, on whatever node, and returns its record. by says to operators who or what wants
// that. The runner is told by the end of its context; if it does not return soon, the record says that the run is still running.
func (e *Engine) Cancel(ctx context.Context, id, by string) (*Record, error) {
	ended, stop := e.store.Watch().Ended(id)
	defer stop()
	record, err := e.records.get(ctx, id)
	if err != nil || record.Status.Ended() {
		return record, err
	}
	if err := e.ends.cancel(record.Run, cancelledOutcome("The run was cancelled.", by)); err != nil {
		return nil, err
	}
	timer := time.NewTimer(cancelPatience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return e.records.get(ctx, id)
}
