package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// records tells what is known about runs: by the store, and by this node.
type records struct {
	*node
	turns   *turns
	runners *runners
}

// Find returns what is known about a run, with all of its steps until now if it is carried out by this engine. If it has not ended yet Find
// waits for that, as long as patience lasts.
func (f *records) Find(ctx context.Context, id string, patience time.Duration) (*Record, error) {
	if patience <= 0 {
		return f.get(ctx, id)
	}
	ended, stop := f.store.Watch().Ended(id)
	defer stop()
	record, err := f.get(ctx, id)
	if err != nil || record.Status.Ended() {
		return record, err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waits := true; waits; {
		_, changed, cause := f.store.outage()
		if cause != nil {
			break
		}
		select {
		case <-changed:
			continue
		case <-ended:
		case <-timer.C:
		case <-f.stopping:
		case <-ctx.Done():
		}
		waits = false
	}
	return f.get(ctx, id)
}

// get asks the store, which may be closed if the engine is stopping.
func (f *records) get(ctx context.Context, id string) (*Record, error) {
	record, err := ask(ctx, f.store, func(ctx context.Context) (*Record, error) { return f.store.Runs().Get(ctx, id) })
	if err != nil && !errors.Is(err, ErrNotFound) && f.isStopping() {
		return nil, ErrStopping
	}
	if err == nil {
		f.explainWait(record)
		f.completeSteps(record)
		record.noteAskedInTurn()
	}
	return record, err
}

// unfinished reports whether a run is known not to have ended.
func (f *records) unfinished(ctx context.Context, id string) bool {
	unfinished, err := ask(ctx, f.store, func(ctx context.Context) (bool, error) { return f.store.Runs().Unfinished(ctx, id) })
	return err == nil && unfinished
}

// noteAskedInTurn says of a run that is carried out that it waits for a person, if its agent does.
func (r *Record) noteAskedInTurn() {
	if r.Status == Running && r.asksInTurn() {
		r.Status, r.WaitingFor = Waiting, waitingForAnswer(r.Questions[len(r.Questions)-1])
	}
}

// asksInTurn reports whether the last question of a run is one that its agent asks in the middle of a turn, and is open.
func (r *Record) asksInTurn() bool {
	n := len(r.Questions)
	return n > 0 && r.Questions[n-1].Answer == nil && r.Questions[n-1].Kind == AskPermission
}

// isAside reports whether a run is put aside, or was and has not ended: it goes on without its caller.
func (f *records) isAside(id string) bool {
	ctx, stop := f.store.context()
	defer stop()
	record, err := f.store.Runs().Get(ctx, id)
	return err == nil && !record.Status.Ended() && len(record.Questions) > 0
}

// explainWait tells of a queued run that it is paused, that its runner is unreachable, whether the run was tried or not, or that it waits
// for others.
func (f *records) explainWait(record *Record) {
	if record.Status != Queued {
		return
	}
	run := record.Run
	if record.Paused = f.pauses.Of(f.config().startOf(run)); record.Paused != "" {
		record.WaitingFor = "An operator has paused runs, or lets them start slowly."
	}
	if record.WaitingFor != "" {
		return
	}
	record.WaitingFor = f.runners.outages.Reason(f.config().runnerOf(run))
	if record.WaitingFor == "" && record.Attempts == 0 && run.Fold.IsSet() && time.Since(run.AcceptedAt) < run.Fold.Window {
		record.WaitingFor = fmt.Sprintf("more runs of its hook and chat, for up to %s (fold)", run.Fold.Window)
	}
}

// Queued is how many runs wait to be carried out, on whatever node.
func (f *records) Queued(ctx context.Context) (int, error) {
	return ask(ctx, f.store, f.store.Runs().Queued)
}

// List returns runs, the newest first. Runners are called by their names: runs that name none are of the default one.
func (f *records) List(ctx context.Context, query Query) (page []*Record, next string, err error) {
	query.Runners = f.config().namesOf(query.Runners...)
	ctx, stop := f.store.patience(ctx)
	defer stop()
	page, next, err = f.store.Runs().List(ctx, query)
	f.store.noteBroken(err)
	for _, record := range page {
		f.explainWait(record)
	}
	return page, next, err
}

// Chats returns chats that somebody named, the one with the newest run first.
func (f *records) Chats(ctx context.Context, query ChatQuery) (page []*ChatSummary, next string, err error) {
	ctx, stop := f.store.patience(ctx)
	defer stop()
	page, next, err = f.store.Runs().Chats(ctx, query)
	f.store.noteBroken(err)
	for _, chat := range page {
		f.explainWait(chat.Last)
	}
	return page, next, err
}

// ChatSummary is a chat that somebody named, as the list of chats shows it.
type ChatSummary struct {
	ChatID string
	Runs   int     // how many it has that are kept, whether they have ended or not
	Last   *Record // of its runs the one accepted last, as a list shows it
}

// ChatQuery selects chats, the one with the newest run first.
type ChatQuery struct {
	Text   string    // that is part of the id of the chat, whatever its case; "" is all
	Since  time.Time // its newest run was accepted then or later
	Limit  int
	Cursor string

	Input bool // the newest run has its input, as far as that is kept
}

// Selects reports whether the query is about a chat, by its newest run.
func (q *ChatQuery) Selects(last *Record) bool {
	return q.SelectsID(last.Run.ChatID) && !last.Run.AcceptedAt.Before(q.Since)
}

// SelectsID reports whether the query is about a chat, as far as its id tells.
func (q *ChatQuery) SelectsID(chat string) bool {
	return q.Text == "" || strings.Contains(strings.ToLower(chat), strings.ToLower(q.Text))
}

// Listed is the newest run of a chat as a list shows it that this query asks for.
func (q *ChatQuery) Listed(last *Record) *Record { return (&Query{Input: q.Input}).Listed(last) }

// Backlog is how much there is to do, on whatever node.
func (f *records) Backlog(ctx context.Context) (Backlog, error) {
	return ask(ctx, f.store, f.store.Runs().Backlog)
}
