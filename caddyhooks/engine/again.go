package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Again is how a run is started again.
type Again struct {
	Deliver bool   // send the answer to the callback and the channel of the first run
	ChatID  string // another chat than that of the first run, "" for the same
	Client  string // what starts it, in place of the address of a caller
}

// RunAgain starts a run again that has ended, however it did, and returns the new one, whose AgainOf names it. The new run
// is like the first one, but nobody waits for it. It may be asked for as often as one likes. A *NotAgainError says why a run
// cannot be run again, ErrNotFound that there is no such run; the others are those of Submit.
func (e *Engine) RunAgain(ctx context.Context, id string, how Again) (*Run, error) {
	record, err := e.records.get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := record.CheckAgain(); err != nil {
		return nil, err
	}
	return e.runAgain(ctx, record.Run, how, false)
}

// NotAgainError says why a run cannot be run again.
type NotAgainError struct {
	Status Status // of the run
	Kept   Kept   // of its input
}

func (e *NotAgainError) Error() string {
	switch {
	case !e.Status.Ended():
		return fmt.Sprintf("a run that is %s cannot be run again: only one that has ended can", e.Status)
	case e.Kept == KeptCut:
		return fmt.Sprintf("the run cannot be run again: only the first %d KB of its input are kept", MaxInput>>10)
	default:
		return "the run cannot be run again: its input is not kept any more"
	}
}

// CheckAgain returns a NotAgainError unless the run can be run again.
func (r *Record) CheckAgain() error {
	if !r.Status.Ended() || r.Kept != KeptWhole {
		return &NotAgainError{r.Status, r.Kept}
	}
	return nil
}

// again is a new run like this one, without what belongs to the request of the first one.
func (r *Run) again(how Again) *Run {
	run := *r
	run.ID, run.AgainOf = "", r.ID
	run.AcceptedAt, run.TraceParent, run.Client, run.Together = time.Time{}, "", how.Client, nil
	run.Sync, run.Owner, run.Fold, run.Gates, run.Replaces = false, "", Fold{}, nil, false
	run.Key, run.KeyHeader, run.Replay = nil, "", nil
	if how.ChatID != "" {
		run.ChatID, run.NewChat = how.ChatID, false
	}
	if !how.Deliver {
		run.CallbackURL, run.Channel, run.To = "", "", ""
	}
	return &run
}

// runAgain starts a run again.
func (e *Engine) runAgain(ctx context.Context, earlier *Run, how Again, once bool) (*Run, error) {
	run := earlier.again(how)
	ended := e.traceAgain(ctx, run, earlier)
	err := e.submitAgain(ctx, run, once)
	ended(err)
	return run, err
}

// submitAgain stores a run under whatever settings are in force: it was checked when it was first accepted.
func (e *Engine) submitAgain(ctx context.Context, run *Run, once bool) error {
	if config := e.config(); config.Runners[config.runnerOf(run)] == nil {
		run.Runner = config.DefaultRunner // whoever runs it again knows that its runner is gone
	}
	for tries := 1; ; tries++ {
		revision, err := e.store.Settings().Revision(ctx)
		if err == nil {
			err = e.submit(ctx, []*Run{run}, Terms{Settings: revision, Once: once})
		}
		if !errors.Is(err, ErrSettingsChanged) || tries == maxTries {
			return err
		}
	}
}

// maxTries bounds how often a run is submitted while the settings change again and again.
const maxTries = 100

// RunAgainOnce is RunAgain unless the run was run again before, which is ErrRunAgain: also by whoever does the same at the same time.
func (e *Engine) RunAgainOnce(ctx context.Context, record *Record, how Again) error {
	if record.AgainAs != "" {
		return ErrRunAgain
	}
	if err := record.CheckAgain(); err != nil {
		return err
	}
	_, err := e.runAgain(ctx, record.Run, how, true)
	return err
}

// QueueHasRoom reports whether the queue is at most half full when so many more runs are in it. Whoever starts many leaves the rest to
// others.
func (e *Engine) QueueHasRoom(ctx context.Context, more int) (bool, error) {
	limit := e.config().Limits.Queue
	if limit == 0 {
		return true, nil
	}
	queued, err := e.Queued(ctx)
	return queued == 0 || queued+more <= limit/2, err
}
