package storage

import "context"

// Sessions keeps which session each runner goes on with in each chat. Runs.End stores them: the last one that a runner has named
// for a chat is in force. Nothing but a runner reads them, so a store that finds one damaged has none.
type Sessions interface {
	// Get returns the session of a runner in a chat, "" if there is none.
	Get(ctx context.Context, runner, chat string) (id string, err error)
}

// Session is the conversation on the side of an agent that a turn was part of.
type Session struct {
	Runner string // the name of the runner, also if the run does not name one
	ID     string // as the agent calls it, at most MaxSession bytes; "" is none
}
