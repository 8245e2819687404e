package engine

import (
	"context"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/minutes"
)

// What callers and stores use of package minutes.
type (
	Minutes       = minutes.Store
	Minute        = minutes.Minute
	HookMinute    = minutes.HookMinute
	Durations     = minutes.Durations
	HookDurations = minutes.HookDurations
)

// KeptMinutes is how long minutes are kept.
const KeptMinutes = minutes.Kept

// newMinutes makes the keeper of what this engine counts.
func (e *Engine) newMinutes() *minutes.Keeper {
	return minutes.NewKeeper(minutes.Node{
		Store: e.store.Minutes(), IsShared: e.isRemote(), Context: e.storeContext, Protect: e.protect, Stopping: e.stopping,
		Backlog: func(ctx context.Context) (int, time.Duration, error) {
			backlog, err := e.store.Runs().Backlog(ctx)
			return backlog.Queued, backlog.Oldest, err
		},
		Failed: func(message string, err error) {
			if message == "" {
				e.noteBroken(err)
			} else {
				e.storeFailed(message, err)
			}
		},
	})
}

// NoteAnswer counts a request that was answered with an HTTP status. It takes no lock.
func (e *Engine) NoteAnswer(status int) { e.minutes.Answered(status) }

// NoteIgnored counts a request that a hook leaves out. NoteAnswer counts it too.
func (e *Engine) NoteIgnored(hook string) {
	e.minutes.Ignored()
	e.metrics().RequestIgnored(hook)
}

// NoteChallenge counts a request with which a sender tried out whether a hook is there. NoteAnswer counts it too.
func (e *Engine) NoteChallenge(hook string) {
	e.minutes.Challenge()
	e.metrics().ChallengeAnswered(hook)
}

// Accepted is how many runs this engine has accepted since it was made.
func (e *Engine) Accepted() int64 { return e.minutes.Accepted() }

// MinutesSince returns what was counted on all nodes, minute by minute: see minutes.Keeper.
func (e *Engine) MinutesSince(ctx context.Context, since time.Time) ([]Minute, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	return e.minutes.Since(ctx, since)
}

// Backlog is how much there is to do, on whatever node.
func (e *Engine) Backlog(ctx context.Context) (Backlog, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	backlog, err := e.store.Runs().Backlog(ctx)
	e.noteBroken(err)
	return backlog, err
}

// CountUndelivered is how many deliveries are pending, and how many were given up.
func (e *Engine) CountUndelivered(ctx context.Context) (pending, dead int, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	pending, dead, err = e.store.Deliveries().Count(ctx)
	e.noteBroken(err)
	return pending, dead, err
}

// CountUndeliveredBy is CountUndelivered by channel. Those of "" are callbacks.
func (e *Engine) CountUndeliveredBy(ctx context.Context) (map[string]Undelivered, error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	counts, err := e.store.Deliveries().CountByChannel(ctx)
	e.noteBroken(err)
	return counts, err
}

// StoreSize is about how many bytes the store takes.
func (e *Engine) StoreSize(ctx context.Context) (bytes int64, err error) {
	ctx, stop := e.patience(ctx)
	defer stop()
	bytes, err = e.store.Size(ctx)
	e.noteBroken(err)
	return bytes, err
}
