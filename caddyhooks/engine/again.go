package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Again is how a run is started again.
type Again struct {
	Deliver bool   // send the answer to the callback and the channel of the first run
	ChatID  string // another chat than that of the first run, "" for the same
}

// RunAgain starts a run again that has ended, however it did, and returns the new one, whose AgainOf names it. The new run
// is like the first one, but nobody waits for it. It may be asked for as often as one likes. A *NotAgainError says why a run
// cannot be run again, ErrNotFound that there is no such run; the others are those of Submit.
func (e *Engine) RunAgain(ctx context.Context, id string, how Again) (*Run, error) {
	record, err := e.records.get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := record.checkAgain(); err != nil {
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

// checkAgain returns a NotAgainError unless the run can be run again.
func (r *Record) checkAgain() error {
	if !r.Status.Ended() || r.Kept != KeptWhole {
		return &NotAgainError{r.Status, r.Kept}
	}
	return nil
}

// again is a new run like this one, without what belongs to the request of the first one.
func (r *Run) again(how Again) *Run {
	run := *r
	run.ID, run.AgainOf = "", r.ID
	run.AcceptedAt, run.TraceParent, run.Client, run.Together = time.Time{}, "", "", nil
	run.Sync, run.Owner, run.Fold = false, "", Fold{}
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

// AgainCount is how many runs were started again.
type AgainCount struct {
	Started int // or would be
	Gone    int // their input is not kept any more
	Cut     int // only a part of it is kept
}

// RunAllAgain starts all runs again that a query selects by hook and status, the oldest of a chat first, and that were not run
// again before. Whoever else does the same at the same time, each is started once. With dry set it counts them, and starts
// none. If it fails, the count says how many were started until then.
func (e *Engine) RunAllAgain(ctx context.Context, query Query, how Again, dry bool) (count AgainCount, err error) {
	query.Cursor, query.Limit, query.OldestFirst = "", againPage, true
	if query.UpTo, err = e.newest(ctx); err != nil || query.UpTo == "" {
		return count, err
	}
	for {
		page, next, err := e.store.Runs().List(ctx, query)
		if err != nil {
			return count, err
		}
		if err := e.runPageAgain(ctx, page, how, dry, &count); err != nil {
			return count, err
		}
		if next == "" || ctx.Err() != nil {
			return count, ctx.Err()
		}
		query.Cursor = next
	}
}

// againPage is how many runs are started again at once. They share what it costs to write to the disk.
const againPage = 128

// newest is the id of the newest run, "" if there is none. Runs that are started again can fail at once, and must not be taken
// for those that were there before.
func (e *Engine) newest(ctx context.Context) (id string, err error) {
	query := Query{Limit: 1}
	for {
		page, next, err := e.store.Runs().List(ctx, query)
		if err != nil {
			return "", err
		}
		if len(page) > 0 {
			return page[0].Run.ID, nil
		}
		if next == "" {
			return "", nil
		}
		query.Cursor = next
	}
}

// runPageAgain starts runs again, those of a chat one after the other. The first error ends it.
func (e *Engine) runPageAgain(ctx context.Context, page []*Record, how Again, dry bool, count *AgainCount) error {
	chats := make(map[string][]string)
	for _, record := range page {
		chats[record.Run.ChatID] = append(chats[record.Run.ChatID], record.Run.ID)
	}
	var failed atomic.Bool
	var mu sync.Mutex
	var errs error
	var all sync.WaitGroup
	for _, ids := range chats {
		all.Go(func() {
			for _, id := range ids {
				if failed.Load() || ctx.Err() != nil {
					return
				}
				err := e.runOneAgain(ctx, id, how, dry)
				mu.Lock()
				err = count.add(err)
				if err != nil && errs == nil {
					errs = err
				}
				mu.Unlock()
				if err != nil {
					failed.Store(true)
					return
				}
			}
		})
	}
	all.Wait()
	return errs
}

// runOneAgain starts a run again unless that was done before.
func (e *Engine) runOneAgain(ctx context.Context, id string, how Again, dry bool) error {
	record, err := e.records.get(ctx, id)
	if err != nil {
		return err
	}
	if record.AgainAs != "" {
		return ErrRunAgain
	}
	if err := record.checkAgain(); err != nil || dry {
		return err
	}
	_, err = e.runAgain(ctx, record.Run, how, true)
	return err
}

// add counts a run, and returns an error if it is not one of this run alone.
func (c *AgainCount) add(err error) error {
	var not *NotAgainError
	switch {
	case err == nil:
		c.Started++
	case errors.As(err, &not):
		switch {
		case !not.Status.Ended():
		case not.Kept == KeptCut:
			c.Cut++
		default:
			c.Gone++
		}
	case errors.Is(err, ErrRunAgain), errors.Is(err, ErrNotFound):
	default:
		return err
	}
	return nil
}
