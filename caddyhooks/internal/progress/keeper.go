// Package progress says in chats that a run is being carried out: a message that the answer takes the place of. It is best effort. Nothing
// waits for it, and a run or its answer is never the worse for it. It imports engine.
package progress

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Chats tells what is said, and by which channels.
type Chats interface {
	// ProgressText is what is said about a run, "" for nothing.
	ProgressText(run *engine.Run) string
	// ProgressChannel finds a channel by its name, nil if there is none that can say it.
	ProgressChannel(name string) engine.ProgressChannel
}

// Keeper posts messages, and removes those that no answer has replaced. What it has posted is in the documents of the store until the run
// has ended, so that the next attempt of the run, possibly on another node, posts no second one.
type Keeper struct {
	documents engine.Documents
	runs      engine.Runs
	log       func() *zap.Logger
	ctx       context.Context
	cancel    context.CancelFunc
	calls     sync.WaitGroup

	mu       sync.Mutex
	isClosed bool
	lines    map[string]*line // by channel
}

// line has the calls of one channel.
type line struct {
	underWay int
	waiting  []func(ctx context.Context) // calls that must be made, but not at once
}

const (
	// maxCalls is how many calls of one channel are under way at once. While a service hangs, nothing more is posted.
	maxCalls = 16
	// maxWaiting is how many calls wait for that. What further ones were to remove stays until the next start.
	maxWaiting = 10_000
	// callTime is how long a call may take, and closeTime how long calls may go on when the keeper is closed.
	callTime  = 10 * time.Second
	closeTime = 2 * time.Second
	// sweepAge is how old a document must be before it is looked at whether its run has ended.
	sweepAge = time.Minute

	documentKind = "progress "
)

// New is a keeper that works until it is closed.
func New(store engine.Store, log func() *zap.Logger) *Keeper {
	k := &Keeper{documents: store.Documents(), runs: store.Runs(), log: log, lines: make(map[string]*line)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Close waits a moment for calls that are under way, and ends the rest.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.isClosed = true
	for _, l := range k.lines {
		l.waiting = nil
	}
	k.mu.Unlock()
	timer := time.AfterFunc(closeTime, k.cancel)
	k.calls.Wait()
	timer.Stop()
	k.cancel()
}

// start makes a call of a channel beside all else. If many are under way it is left out, or waits if it must be made.
func (k *Keeper) start(channel string, call func(ctx context.Context), must bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lines[channel]
	switch {
	case k.isClosed:
		return
	case l == nil:
		l = &line{}
		k.lines[channel] = l
	case l.underWay == maxCalls && must && len(l.waiting) < maxWaiting:
		l.waiting = append(l.waiting, call)
		return
	case l.underWay == maxCalls:
		return
	}
	l.underWay++
	k.calls.Go(func() {
		for call != nil {
			k.make(call)
			call = k.next(channel, l)
		}
	})
}

// make makes a call. A panic in a channel is the failure of this call alone.
func (k *Keeper) make(call func(ctx context.Context)) {
	ctx, stop := context.WithTimeout(k.ctx, callTime)
	defer stop()
	defer func() {
		if p := recover(); p != nil {
			k.log().Error("a channel panicked", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	call(ctx)
}

// next is a call that waits, nil if there is none.
func (k *Keeper) next(channel string, l *line) (call func(ctx context.Context)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(l.waiting) > 0 {
		call, l.waiting = l.waiting[0], l.waiting[1:]
		return call
	}
	if l.underWay--; l.underWay == 0 {
		delete(k.lines, channel)
	}
	return nil
}

// posted is what a document has: a message about a run.
type posted struct {
	Channel  string    `json:"channel"`
	To       string    `json:"to"`
	Progress string    `json:"progress"` // as Begin returned it
	At       time.Time `json:"at"`
}

// documentOf is the document of a run. Each has a kind of its own, since documents are found by their kind.
func documentOf(run string, value []byte, revision int64) engine.Document {
	return engine.Document{Kind: documentKind + run, Name: "posted", Value: value, Revision: revision}
}

// find returns what was posted about a run. revision is 0 if nothing was.
func (k *Keeper) find(ctx context.Context, run string) (message posted, revision int64, err error) {
	documents, err := k.documents.Load(ctx, documentKind+run)
	if err != nil || len(documents) == 0 {
		return posted{}, 0, err
	}
	err = json.Unmarshal(documents[0].Value, &message)
	return message, documents[0].Revision, err
}

// remember stores what was posted about a run.
func (k *Keeper) remember(ctx context.Context, run string, message posted) error {
	value, _ := json.Marshal(message) // which always encodes
	return k.documents.Save(ctx, documentOf(run, value, 0))
}

// forget removes the document of a run. It was stored once, so that its revision is known.
func (k *Keeper) forget(ctx context.Context, run string) {
	k.note("forgetting", run, "", k.documents.Save(ctx, documentOf(run, nil, 1)))
}

// withdraw removes a message from its chat.
func (k *Keeper) withdraw(ctx context.Context, channel engine.ProgressChannel, run string, message posted) {
	if channel != nil {
		k.note("removing", run, message.Channel, channel.Withdraw(ctx, message.To, message.Progress))
	}
}

// note logs what went wrong. Nobody has to do anything about it.
func (k *Keeper) note(doing, run, channel string, err error) {
	if err != nil && !errors.Is(err, engine.ErrUnreachable) && !errors.Is(err, engine.ErrDocumentChanged) {
		k.log().Info("progress not shown or not removed", zap.String("doing", doing), zap.String("run_id", run),
			zap.String("channel", channel), zap.Error(err))
	}
}

// Ended removes what was posted about a run that has ended without a turn.
func (k *Keeper) Ended(run *engine.Run, chats Chats) {
	channel := chats.ProgressChannel(run.Channel)
	if channel == nil || chats.ProgressText(run) == "" {
		return
	}
	k.start(run.Channel, func(ctx context.Context) {
		message, revision, err := k.find(ctx, run.ID)
		k.note("reading", run.ID, run.Channel, err)
		if revision > 0 && err == nil {
			k.withdraw(ctx, channel, run.ID, message)
			k.forget(ctx, run.ID)
		}
	}, true)
}

// Sweep removes what a process that was stopped or killed has left: messages, and documents, of runs that have ended. What is too young is
// looked at once more.
func (k *Keeper) Sweep(chats Chats) {
	k.sweep(chats)
	time.AfterFunc(2*sweepAge, func() { k.sweep(chats) })
}

func (k *Keeper) sweep(chats Chats) {
	k.start("", func(ctx context.Context) {
		documents, err := k.documents.Load(ctx, "")
		k.note("reading", "", "", err)
		for _, document := range documents {
			run, ok := strings.CutPrefix(document.Kind, documentKind)
			var message posted
			if !ok || json.Unmarshal(document.Value, &message) != nil || time.Since(message.At) < sweepAge {
				continue
			}
			record, err := k.runs.Get(ctx, run)
			isGone := errors.Is(err, engine.ErrNotFound)
			if !isGone && (err != nil || record.FinishedAt.IsZero()) {
				continue
			}
			if isGone || !isReplaced(record.Deliveries, message) {
				k.withdraw(ctx, chats.ProgressChannel(message.Channel), run, message)
			}
			k.forget(ctx, run)
		}
	}, true)
}

// isReplaced reports whether a delivery takes the place of a message.
func isReplaced(deliveries []*engine.Delivery, message posted) bool {
	for _, d := range deliveries {
		if d.Channel == message.Channel && d.To == message.To && d.Progress == message.Progress {
			return true
		}
	}
	return false
}
