package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Find returns what is known about a run, with all of its steps until now if it is carried out by this engine. If it has not ended yet Find waits for that, as long as patience lasts.
func (e *Engine) Find(ctx context.Context, id string, patience time.Duration) (*Record, error) {
	if patience <= 0 {
		return e.get(ctx, id)
	}
	ended, stop := e.store.Watch().Ended(id)
	defer stop()
	record, err := e.get(ctx, id)
	if err != nil || record.Status.Ended() {
		return record, err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waits := true; waits; {
		_, changed, away := e.StoreAway()
		if away != nil {
			break
		}
		select {
		case <-changed:
			continue
		case <-ended:
		case <-timer.C:
		case <-e.stopping:
		case <-ctx.Done():
		}
		waits = false
	}
	return e.get(ctx, id)
}

// get asks the store, which may be closed if the engine is stopping.
func (e *Engine) get(ctx context.Context, id string) (*Record, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	record, err := e.store.Runs().Get(ctx, id)
	e.noteBroken(err)
	if err != nil && !errors.Is(err, ErrNotFound) && e.isStopping() {
		return nil, ErrStopping
	}
	if err == nil {
		e.explainWait(record)
		e.completeSteps(record)
	}
	return record, err
}

// unfinished reports whether a run is known not to have ended.
func (e *Engine) unfinished(ctx context.Context, id string) bool {
	ctx, stop := e.patience(ctx)
	defer stop()
	unfinished, err := e.store.Runs().Unfinished(ctx, id)
	e.noteBroken(err)
	return err == nil && unfinished
}

// explainWait tells of a queued run that its runner is away, whether the run was tried or not, or that it waits for others.
func (e *Engine) explainWait(record *Record) {
	if record.Status != Queued || record.WaitingFor != "" {
		return
	}
	run := record.Run
	record.WaitingFor = e.away.reasonFor(e.config.Load().runnerOf(run))
	if record.WaitingFor == "" && record.Attempts == 0 && run.Fold.IsSet() && time.Since(run.AcceptedAt) < run.Fold.Window {
		record.WaitingFor = fmt.Sprintf("more runs of its hook and chat, for up to %s (fold)", run.Fold.Window)
	}
}

// cancelPatience is how long Cancel waits for a runner to let go of a turn.
const cancelPatience = 5 * time.Second

// Cancel ends a run that has not ended yet, on whatever node, and returns its record. by says to operators who or what wants
// that. The runner is told by the end of its context; if it does not return soon, the record says that the run is still running.
func (e *Engine) Cancel(ctx context.Context, id, by string) (*Record, error) {
	ended, stop := e.store.Watch().Ended(id)
	defer stop()
	record, err := e.get(ctx, id)
	if err != nil || record.Status.Ended() {
		return record, err
	}
	if err := e.cancel(record.Run, cancelledOutcome("The run was cancelled.", by)); err != nil {
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
	return e.get(ctx, id)
}

// Queued is how many runs wait to be carried out, on whatever node.
func (e *Engine) Queued(ctx context.Context) (int, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	n, err := e.store.Runs().Queued(ctx)
	e.noteBroken(err)
	return n, err
}

// List returns runs, the newest first.
func (e *Engine) List(ctx context.Context, query Query) (page []*Record, next string, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	page, next, err = e.store.Runs().List(ctx, query)
	e.noteBroken(err)
	for _, record := range page {
		e.explainWait(record)
	}
	return page, next, err
}

// Chats returns chats that somebody named, the one with the newest run first.
func (e *Engine) Chats(ctx context.Context, query ChatQuery) (page []*ChatSummary, next string, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	page, next, err = e.store.Runs().Chats(ctx, query)
	e.noteBroken(err)
	for _, chat := range page {
		e.explainWait(chat.Last)
	}
	return page, next, err
}
