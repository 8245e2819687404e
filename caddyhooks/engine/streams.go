package engine

import (
	"context"
	"errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
)

// What callers and stores use of package stream.
type (
	Event     = stream.Event
	EventKind = stream.Kind
	Follower  = stream.Follower
	Streams   = stream.Network
	Feed      = stream.Feed
	Frame     = stream.Frame
)

// Those of its constants.
const (
	EventStatus  = stream.KindStatus
	EventDelta   = stream.KindDelta
	EventReset   = stream.KindReset
	MaxFrameText = stream.MaxFrameText
)

// newStreams makes the hub of what is said in the turns of this engine.
func newStreams(f *records) *stream.Hub {
	return stream.NewHub(stream.Node{
		Network: f.store.Streams(),
		Ended:   func(id string) (<-chan struct{}, func()) { return f.store.Watch().Ended(id) },
		Status: func(ctx context.Context, id string) (string, error) {
			record, err := f.get(ctx, id)
			if err != nil {
				return "", err
			}
			if record.Status == Waiting && record.asksInTurn() {
				return stream.Running, nil
			}
			return string(record.Status), nil
		},
		Lasts:       func(err error) bool { return errors.Is(err, ErrNotFound) || f.store.noteBroken(err) },
		Protect:     f.protect,
		Stopping:    f.stopping,
		ErrStopping: ErrStopping,
	})
}

// Follow tells news of a run until it has ended. after is the ID of the last event that is known, 0 to begin with. A follower
// that comes back a moment after the end gets what it missed, if that is still known. It has to be closed. Its errors are
// ErrNotFound, ErrStopping and those of the store.
func (e *Engine) Follow(id string, after int64) *Follower { return e.streams.Follow(id, after) }

// streamed are the runs of a claim as a stream knows them.
func (c *Claim) streamed() []stream.Run {
	runs := make([]stream.Run, 0, 1+len(c.Folded))
	for run := range c.eachRun {
		runs = append(runs, stream.Run{ID: run.ID, Waited: c.waitedOf(run)})
	}
	return runs
}

// ProgressTeller says in chats that runs are being carried out. Its methods do not block: nothing waits for a chat.
type ProgressTeller interface {
	// Begin is called when runs are started in one turn. The result is nil if nobody is to know.
	Begin(runs []*Run) TurnProgress
	// Ended is called after a run has ended without a turn: what was posted in an earlier one is removed.
	Ended(run *Run)
}

// TurnProgress is what was posted about one turn. If the turn ends otherwise than with Done, it stays for the next one of its runs.
type TurnProgress interface {
	// Fill notes in deliveries what they are to replace.
	Fill(deliveries []*Delivery)
	// Done is called when the runs have ended, and these deliveries are stored. What none of them replaces is removed.
	Done()
}

// beginProgress is nil if nobody is to know of the turn.
func (c *Config) beginProgress(claim *Claim) TurnProgress {
	if c.Progress == nil {
		return nil
	}
	return c.Progress.Begin(claim.runs())
}

// endProgress says that a run has ended without a turn.
func (c *configs) endProgress(run *Run) {
	if config := c.config(); config != nil && config.Progress != nil && run.Channel != "" {
		config.Progress.Ended(run)
	}
}
