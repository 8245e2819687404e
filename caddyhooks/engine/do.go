package engine

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// Do submits the run and waits for its end, on whatever node it is carried out. When ctx is done first, the run is
// cancelled unless it has deliveries. An *AwayError says that the runner is away, and that nothing was stored. For settings
// see Submit. The functions stored are called when the run is stored.
func (e *Engine) Do(ctx context.Context, run *Run, settings int64, stored ...func()) (Outcome, error) {
	if e.isStopping() {
		return Outcome{}, ErrStopping
	}
	run.Owner = e.store.Node()
	away, rest, refused := e.away.refuses(e.config.Load().runnerOf(run))
	if refused {
		return Outcome{}, &AwayError{RetryAfter: rest}
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
	told := make(chan Outcome, 1)
	e.mu.Lock()
	e.callers[run.ID] = told
	if turn := e.turnOf(run.ID); turn != nil && turn.answer != nil {
		told <- *turn.answer
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.callers, run.ID)
		e.mu.Unlock()
	}()
	// It may have ended before anybody could watch for it.
	if !e.unfinished(ctx, run.ID) {
		if record, err := e.get(ctx, run.ID); err == nil && record.Status.Ended() {
			return record.Outcome, nil
		}
	}

	grace := time.Second
	broken := e.broken
	absence := e.watchAbsence()
	defer absence.stop()
	for waits := true; waits; {
		waits = false
		select {
		case <-ended:
			return e.outcomeOf(run, told)
		case outcome := <-told:
			return outcome, nil
		case <-away:
			// The runner went away. If the run is with it just now, it will say so itself.
			_ = e.withdraw(run, unavailableOutcome(0, Account{Reason: "the runner is away: it did not take on the last turns"}))
			away, waits = nil, true
		case <-timer.C:
			// A run that is being carried out has a deadline of its own. A store that fails is in the log; the run's time is up
			// all the same.
			_ = e.withdraw(run, waitedOut(run))
		case <-e.stopping:
			// A turn that is under way has the drain time to end in; a run with deliveries stays queued for the next start.
			if run.hasDeliveries() && !e.isRunning(run.ID) {
				return stoppedOutcome(), nil
			}
			if !run.hasDeliveries() {
				_ = e.withdraw(run, stoppedOutcome())
			}
			grace += e.drainTimeout()
		case <-broken:
			// A turn that is under way ends as it would, and its worker tells, before it is over. Another one does not begin.
			broken, waits = nil, true
			if !e.isRunning(run.ID) {
				e.tell(run.ID, brokenOutcome()) // unless it was told already
			}
		case <-absence.changed:
			absence.look()
			waits = true
		case <-absence.tooLong:
			waits = true
			e.tell(run.ID, awayOutcome()) // unless it was told already
		case <-ctx.Done():
			if run.hasDeliveries() {
				return Outcome{}, ctx.Err()
			}
			_ = e.cancel(run, cancelledOutcome("The caller went away.", "the caller, who hung up"))
		}
	}
	// How the run ended is told by the worker that had it. A runner that does not return when it should must not hold the
	// caller too.
	timer.Reset(grace)
	select {
	case <-ended:
		outcome, err := e.outcomeOf(run, told)
		return outcome, errors.Join(ctx.Err(), err)
	case outcome := <-told:
		return outcome, ctx.Err()
	case <-timer.C:
	}
	if ctx.Err() != nil {
		return Outcome{}, ctx.Err()
	}
	if e.isStopping() {
		return stoppedOutcome(), nil
	}
	if err := e.awayError(); err != nil {
		return Outcome{}, err
	}
	return timedOut(run), nil
}

// outcomeOf returns how a run has ended: as its worker tells it, if that is one of this engine, or as the store has it. A
// turn of this engine that was cancelled need not be the one that ended the run.
func (e *Engine) outcomeOf(run *Run, told <-chan Outcome) (Outcome, error) {
	e.mu.Lock()
	turn := e.turnOf(run.ID)
	e.mu.Unlock()
	if turn != nil {
		select {
		case outcome := <-told:
			return outcome, nil
		case <-turn.cancelled:
		case <-turn.over:
		}
	}
	select {
	case outcome := <-told:
		return outcome, nil
	default:
	}
	ctx, cancel := e.storeContext()
	defer cancel()
	record, err := e.get(ctx, run.ID)
	if err != nil {
		return Outcome{}, err
	}
	return record.Outcome, nil
}

// tell gives the caller who waits for a run in this engine its outcome, stored or not.
func (e *Engine) tell(id string, outcome Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if told := e.callers[id]; told != nil {
		select {
		case told <- outcome:
		default:
		}
	} else if turn := e.turnOf(id); turn != nil {
		turn.answer = &outcome
	}
}

// cancel ends a run with outcome if it still waits, and otherwise has its turn cancelled, on whatever node, by whom the outcome
// says. All runs of that turn end with it.
func (e *Engine) cancel(run *Run, outcome Outcome) error {
	by := outcome.Account.CancelledBy
	for range 3 {
		err := e.withdraw(run, outcome)
		if !errors.Is(err, ErrClaimLost) {
			return err
		}
		e.mu.Lock()
		for _, turn := range e.running[run.ID] {
			turn.cancel(&cancelledError{by})
		}
		e.mu.Unlock()
		ctx, stop := e.storeContext()
		err = e.store.Runs().Cancel(ctx, run.ID, by)
		stop()
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		// It has ended, or was put back to the queue.
	}
	return nil
}

// withdraw ends a run that is queued. ErrClaimLost says that it is not.
func (e *Engine) withdraw(run *Run, outcome Outcome) error {
	end := e.newEnd([]*Run{run}, outcome)
	ctx, stop := e.storeContext()
	defer stop()
	_, err := e.store.Runs().End(ctx, &Claim{Run: run}, end, Batch{})
	e.writes.note(writeEnd, err)
	if err == nil {
		e.conclude(run, end, ending{attempts: e.attemptsOf(run)})
	} else if !errors.Is(err, ErrClaimLost) {
		e.storeFailed("storing the end of a run failed", err, zap.String("run_id", run.ID))
	}
	return err
}

func (e *Engine) isRunning(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, running := e.running[id]
	return running
}
