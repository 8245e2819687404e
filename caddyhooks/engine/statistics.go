package engine

import (
	"context"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/minutes"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
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
func newMinutes(n *node) *minutes.Keeper {
	return minutes.NewKeeper(minutes.Node{
		Store: n.store.Minutes(), IsShared: n.store.isRemote(), Context: n.store.context, Protect: n.protect, Stopping: n.stopping,
		Backlog: func(ctx context.Context) (int, time.Duration, error) {
			backlog, err := n.store.Runs().Backlog(ctx)
			return backlog.Queued, backlog.Oldest, err
		},
		Failed: func(message string, err error) {
			if message == "" {
				n.store.noteBroken(err)
			} else {
				n.store.failed(message, err)
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

// Costs returns what hooks have spent on all nodes: see usage.Costs.
func (e *Engine) Costs(ctx context.Context, within time.Duration) ([]usage.Cost, error) {
	return ask(ctx, e.store, func(ctx context.Context) ([]usage.Cost, error) { return usage.Costs(ctx, e.store.Ledger(), within) })
}

// MinutesSince returns what was counted on all nodes, minute by minute: see minutes.Keeper.
func (e *Engine) MinutesSince(ctx context.Context, since time.Time) ([]Minute, error) {
	return ask(ctx, e.store, func(ctx context.Context) ([]Minute, error) { return e.minutes.Since(ctx, since) })
}

// StoreSize is about how many bytes the store takes.
func (e *Engine) StoreSize(ctx context.Context) (bytes int64, err error) {
	return ask(ctx, e.store, e.store.Size)
}
