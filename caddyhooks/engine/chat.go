package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
)

// chatOfTurn is what the turn of a run may know of its chat. Every call of the runner for the turn shares it.
type chatOfTurn struct {
	engine *Engine
	config *Config
	run    *Run
	runner string

	mu    sync.Mutex
	named string // the session that the runner named in this turn, which is not stored yet
}

// chatOf is nil for a run without memory, so that no runner can send a history or a session with it.
func (e *Engine) chatOf(config *Config, run *Run) *chatOfTurn {
	if run.MemoryPreset == MemoryDisabled {
		return nil
	}
	return &chatOfTurn{engine: e, config: config, run: run, runner: config.runnerOf(run)}
}

// forTurn is the chat as a runner gets it.
func (c *chatOfTurn) forTurn() Chat {
	if c == nil {
		return nil
	}
	return c
}

// The most that Past looks at, so that it costs no more in a long chat: this many pages, each of as many runs as were asked
// for. Runs that failed, had no memory or are not kept any more are looked at and left out.
const maxPastPages = 4

// endedStatuses are those of runs that have ended. A query for some of them only would pass over any number of others.
var endedStatuses = []Status{Completed, Failed, TimedOut, Cancelled, Expired}

// Past goes back from the newest run of the chat that has ended. The first turn that does not fit ends it: what a runner is
// told has no gap for the sake of size.
func (c *chatOfTurn) Past(ctx context.Context, turns, bytes int) (past []PastTurn, err error) {
	limits := c.engine.config.Load().pruneLimits()
	if turns <= 0 || bytes <= 0 || limits.History < 0 {
		return nil, nil
	}
	ctx, stop := c.engine.patience(ctx)
	defer stop()
	query := Query{ChatID: c.run.ChatID, Statuses: endedStatuses, Limit: turns, Told: true, Replies: true, Reads: pastReads(bytes)}
	for range maxPastPages {
		page, next, err := c.engine.store.Runs().List(ctx, query)
		if err != nil {
			c.engine.noteBroken(err)
			return nil, err
		}
		for _, record := range page {
			if !c.isPast(record, limits) {
				continue
			}
			turn := PastTurn{Message: record.Run.Message, Reply: record.Outcome.Text}
			if bytes -= len(turn.Message) + len(turn.Reply); bytes < 0 {
				slices.Reverse(past)
				return past, nil
			}
			past = append(past, turn)
			if len(past) == turns {
				next = ""
				break
			}
		}
		if next == "" {
			break
		}
		query.Cursor, query.Reads = next, pastReads(bytes)
	}
	slices.Reverse(past)
	return past, nil
}

// pastReads is how much a page reads at most to find so many bytes of text: there may be metadata and schemas with them.
func pastReads(bytes int) int { return min(bytes, 4<<20)*2 + 4*MaxTold }

// isPast reports whether later turns are told about a run that has ended. What is not to be kept any more may still be there
// until it is pruned.
func (c *chatOfTurn) isPast(record *Record, limits Limits) bool {
	return record.Status == Completed && record.Run.MemoryPreset != MemoryDisabled && record.Run.ChatID == c.run.ChatID &&
		record.Kept != KeptNothing && limits.HistoryOf(record.Run.History) > 0
}

// Session is the one that the runner named in this turn, if the turn is tried again, and otherwise the one that is stored.
func (c *chatOfTurn) Session(ctx context.Context) (string, error) {
	c.mu.Lock()
	named := c.named
	c.mu.Unlock()
	if named != "" {
		return named, nil
	}
	ctx, stop := c.engine.patience(ctx)
	defer stop()
	id, err := c.engine.store.Sessions().Get(ctx, c.runner, c.run.ChatID)
	c.engine.noteBroken(err)
	return id, err
}

// name notes the session of a reply, if it names one. It is stored with the end of the run.
func (c *chatOfTurn) name(session string) {
	if c == nil || session == "" {
		return
	}
	if err := checkSession(session); err != nil {
		c.config.Log.Warn("the session that a runner named is not kept", zap.String("run_id", c.run.ID), zap.String("runner", c.runner), zap.Error(err))
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

// MaxSession is how many bytes the name of a session has at most.
const MaxSession = 1 << 10

// checkSession says why a session cannot be kept. The name itself is nothing for a log.
func checkSession(session string) error {
	switch {
	case len(session) > MaxSession:
		return errors.New("its name is longer than 1 KiB")
	case !utf8.ValidString(session):
		return errors.New("its name is not UTF-8")
	case strings.ContainsFunc(session, unicode.IsControl):
		return errors.New("its name has control characters")
	}
	return nil
}

// Interface guards
var _ Chat = (*chatOfTurn)(nil)
