package cli

import (
	"strings"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// runTook is how long a run took, or has taken so far. It is "" for a run that was not started.
func runTook(c terminal.Clock, r *api.Run) string {
	switch {
	case r.StartedAt == nil:
		return ""
	case r.FinishedAt == nil:
		return terminal.Roughly(c.Now.Sub(*r.StartedAt))
	default:
		return terminal.Briefly(r.FinishedAt.Sub(*r.StartedAt))
	}
}

// runSeconds is runTook in seconds, -1 for a run that was not started.
func runSeconds(c terminal.Clock, r *api.Run) float64 {
	switch {
	case r.StartedAt == nil:
		return -1
	case r.FinishedAt == nil:
		return c.Now.Sub(*r.StartedAt).Seconds()
	default:
		return r.FinishedAt.Sub(*r.StartedAt).Seconds()
	}
}

// Texts in a row of a table are cut to so many characters. The details of what the row is about have them whole.
const (
	maxChatCell   = 32
	maxChatOfList = 64 // where chats are what is listed; --json has all of it
	maxReasonCell = 200
)

// shortChat is a chat id in a table. That of a chat that was made for one run says little.
func shortChat(chat string) string {
	const fresh = "hook:"
	if id, ok := strings.CutPrefix(chat, fresh); ok && uuid.Validate(id) == nil {
		return fresh + id[:8] + "…"
	}
	return terminal.ShortText(chat, maxChatCell)
}

// statusWord is a status as people say it.
func statusWord[Status ~string](status Status) string {
	return strings.ReplaceAll(string(status), "_", " ")
}

// statusCell is the status of a run or a delivery.
func statusCell[Status ~string](status Status) terminal.Text {
	word := statusWord(status)
	switch string(status) {
	case string(engine.Completed), string(engine.Delivered):
		return terminal.Good(word)
	case string(engine.Failed), string(engine.TimedOut), string(engine.Expired), string(engine.Dead):
		return terminal.Bad(word)
	case string(engine.Cancelled), string(engine.Pending), string(engine.Waiting):
		return terminal.Warn(word)
	default:
		return terminal.Plain(word)
	}
}
