package bulk

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// do acts on an item. skip says why nothing was done; an error is one of all items.
func (w *work) do(ctx context.Context, i *item) (skip Skip, err error) {
	if errors.Is(i.err, engine.ErrNotFound) {
		return SkipForgotten, nil
	}
	if i.err != nil {
		return notSkipped, i.err
	}
	switch w.action.Do {
	case Again:
		return w.again(ctx, i.record)
	case Cancel:
		return w.cancel(ctx, i.record)
	case Retry:
		return w.retry(ctx, i.id)
	default:
		return w.drop(ctx, i.id)
	}
}

func (w *work) again(ctx context.Context, record *engine.Record) (Skip, error) {
	how := w.action.How
	how.Client = w.action.client()
	for {
		err := w.engine.RunAgainOnce(ctx, record, how)
		if w.tried && errors.Is(err, engine.ErrRunAgain) { // it was not when the page was listed
			return w.whoseAgain(ctx, record.Run.ID)
		}
		if !errors.Is(err, engine.ErrQueueFull) && !errors.Is(err, engine.ErrChatFull) {
			return whyNotAgain(err)
		}
		w.waits(err.Error())
		if !w.sleep(ctx, time.Second) {
			return notSkipped, context.Cause(ctx)
		}
	}
}

// whoseAgain tells whether this action or somebody else has run a run again.
func (w *work) whoseAgain(ctx context.Context, id string) (Skip, error) {
	first, err := w.engine.Find(ctx, id, 0)
	if err != nil {
		return whyNotAgain(err)
	}
	switch again, err := w.engine.Find(ctx, first.AgainAs, 0); {
	case errors.Is(err, engine.ErrNotFound): // it has ended, and is not kept
		return notSkipped, nil
	case err != nil:
		return notSkipped, err
	case again.Run.Client != w.action.client():
		return SkipRepeated, nil
	default:
		return notSkipped, nil
	}
}

// whyNotAgain tells errors of a run from those of all runs.
func whyNotAgain(err error) (Skip, error) {
	var not *engine.NotAgainError
	switch {
	case errors.Is(err, engine.ErrRunAgain):
		return SkipRepeated, nil
	case errors.Is(err, engine.ErrNotFound):
		return SkipForgotten, nil
	case errors.As(err, &not) && !not.Status.Ended():
		return SkipOpen, nil
	case errors.As(err, &not) && not.Kept == engine.KeptCut:
		return SkipCut, nil
	case errors.As(err, &not):
		return SkipGone, nil
	default:
		return notSkipped, err
	}
}

// awaitQueue waits until the queue is at most half full, so that senders get in while many runs are started again.
func (w *work) awaitQueue(ctx context.Context) error {
	for {
		fits, err := w.engine.QueueHasRoom(ctx, pageSize)
		if fits && err == nil {
			return nil
		}
		if err == nil {
			w.waits("the queue is half full")
		}
		const pause = 200 * time.Millisecond
		if !w.sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// waits says what the action waits for. The next sign of life stores it.
func (w *work) waits(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.action.Waiting = why
}

func (w *work) cancel(ctx context.Context, record *engine.Record) (Skip, error) {
	by := w.action.cancelledBy()
	if !record.Status.Ended() {
		var err error
		record, err = w.engine.Cancel(ctx, record.Run.ID, by)
		if errors.Is(err, engine.ErrNotFound) {
			return SkipForgotten, nil
		}
		if err != nil {
			return notSkipped, err
		}
	} else if !w.tried {
		return SkipEnded, nil
	}
	if record.Status.Ended() && (record.Status != engine.Cancelled || record.Outcome.Account.CancelledBy != by) {
		return SkipEnded, nil
	}
	return notSkipped, nil
}

func (w *work) retry(ctx context.Context, id string) (Skip, error) {
	if w.tried {
		d, err := w.engine.Delivery(ctx, id)
		repeated := err == nil && d.Repeats > 0 && !d.TriedAt.Before(w.action.StartedAt) // and it is one of those that have arrived again
		if err == nil && (repeated || !w.action.Deliveries.Selects(d)) {
			return notSkipped, nil // it was one of those before
		}
	}
	_, err := w.engine.RetryDelivery(ctx, id, slices.Contains(w.action.Deliveries.Statuses, engine.Delivered))
	return whyNotSent(err)
}

func (w *work) drop(ctx context.Context, id string) (Skip, error) {
	err := w.engine.DropDelivery(ctx, id)
	if w.tried && errors.Is(err, engine.ErrNotFound) {
		return notSkipped, nil
	}
	return whyNotSent(err)
}

// whyNotSent tells errors of a delivery from those of all deliveries.
func whyNotSent(err error) (Skip, error) {
	switch {
	case errors.Is(err, engine.ErrUnderWay):
		return SkipUnderWay, nil
	case errors.Is(err, engine.ErrDelivered):
		return SkipDelivered, nil
	case errors.Is(err, engine.ErrNotFound):
		return SkipForgotten, nil
	default:
		return notSkipped, err
	}
}
