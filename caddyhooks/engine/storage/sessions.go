package storage

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

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

// MaxSession is how many bytes the name of a session has at most.
const MaxSession = 1 << 10

// CheckSession says why a session cannot be kept. The name itself is nothing for a log.
func CheckSession(session string) error {
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
