package engine

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/storage"
)

// chatOfTurn is what the turn of a run may know of its chat. Every call of the runner for the turn shares it.
type chatOfTurn struct {
	node   *node
	config *Config
	run    *Run
	runner string

	mu    sync.Mutex
	named string // the session that the runner named in this turn, which is not stored yet
}

// chatOf is nil for a run without memory, so that no runner can send a history or a session with it.
func (p *workerPool) chatOf(config *Config, run *Run) *chatOfTurn {
	if run.MemoryPreset == MemoryDisabled {
		return nil
	}
	return &chatOfTurn{node: p.node, config: config, run: run, runner: config.runnerOf(run)}
}

// forTurn is the chat as a runner gets it.
func (c *chatOfTurn) forTurn() Chat {
	if c == nil {
		return nil
	}
	return c
}

// Past goes back from the newest turn of the chat. The first one that does not fit ends it: what a runner is told has no gap for
// the sake of size.
func (c *chatOfTurn) Past(ctx context.Context, turns, bytes int) (past []PastTurn, err error) {
	limits := c.node.config().pruneLimits()
	if turns <= 0 || bytes <= 0 || limits.History < 0 {
		return nil, nil
	}
	store := c.node.store
	records, err := ask(ctx, store, func(ctx context.Context) ([]*Record, error) {
		return store.Runs().Past(ctx, c.run.ChatID, turns, bytes)
	})
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		turn := PastTurn{Message: record.foldedMessage(), Reply: record.Outcome.Text}
		if limits.HistoryOf(record.Run.History) <= 0 || turn.Message == "" {
			continue // it is there until it is pruned, or what the turn was told is not kept
		}
		if bytes -= len(turn.Message) + len(turn.Reply); bytes < 0 {
			break
		}
		past = append(past, turn)
	}
	slices.Reverse(past)
	return past, nil
}

// Session is the one that the runner named in this turn, if the turn is tried again, and otherwise the one that is stored.
func (c *chatOfTurn) Session(ctx context.Context) (string, error) {
	c.mu.Lock()
	named := c.named
	c.mu.Unlock()
	if named != "" {
		return named, nil
	}
	store := c.node.store
	return ask(ctx, store, func(ctx context.Context) (string, error) { return store.Sessions().Get(ctx, c.runner, c.run.ChatID) })
}

// name notes the session of a reply, if it names one. It is stored with the end of the run.
func (c *chatOfTurn) name(session string) {
	if c == nil || session == "" {
		return
	}
	if err := storage.CheckSession(session); err != nil {
		c.config.Log.Warn("runner's session not kept", zap.String("run_id", c.run.ID), zap.String("runner", c.runner), zap.Error(err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named = session
}

// session is the session to be stored with the end of the run.
func (c *chatOfTurn) session() Session {
	if c == nil {
		return Session{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named == "" {
		return Session{}
	}
	return Session{Runner: c.runner, ID: c.named}
}

// Interface guards
var _ Chat = (*chatOfTurn)(nil)
