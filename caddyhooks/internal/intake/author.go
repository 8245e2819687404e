package intake

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// unsurePause is when the sender of an event may try again whose author may be a channel.
const unsurePause = 5 * time.Second

// checkAuthor leaves out events that one of our channels caused: its answers would be answered. The event of a bot is refused for now
// while it is not known who our channels are.
func checkAuthor(active *settings.Active, h *settings.Hook, doc any) error {
	if active.Rules == nil || active.Rules.Owner == nil {
		return nil
	}
	author := h.Auth.AuthorOf(doc)
	if len(author.IDs) == 0 && !author.Bot {
		return nil
	}
	channel, unsure := active.Rules.Owner(author)
	switch {
	case channel != "":
		return &IgnoredError{"it is a message of channel " + channel}
	case unsure != "" && author.Bot:
		return api.Busy(unsurePause, "It cannot be told yet whether this is a message of our own; try again in a moment.",
			"it is not known yet whether the event is a message of channel "+unsure)
	}
	return nil
}
