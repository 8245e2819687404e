package caddyhooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// chatLimiter is a channel whose configuration says which chats requests and live hooks may name (allow_to). Hooks of Caddy's
// configuration are the operator's own word, and may name any.
type chatLimiter interface {
	AllowsTo(to string) bool
}

// allowsTo reports whether requests may name a chat on a channel, which is nil if it is not loaded yet.
func allowsTo(channel engine.Channel, to string) bool {
	limiter, ok := channel.(chatLimiter)
	return !ok || limiter.AllowsTo(to)
}

// checkAllowed checks the chat that a request or a live hook names. The error tells nobody which chats there are.
func (f *AgentFields) checkAllowed(r *rules) error {
	if f.Deliver && !allowsTo(r.channels[f.Channel], f.To) {
		return fieldErrorf("to", "is refused: it is not among the chats that may be named on the channel %s", f.Channel)
	}
	return nil
}

// checkAllowed checks the chats of live hooks that are changed. Hooks that are saved already stay as they are, and have a warning:
// the chats that are allowed may have become fewer since.
func (c *compiler) checkAllowed(live *Settings, unchanged func(part) bool) error {
	for i := range live.Mappings {
		m := &live.Mappings[i]
		if err := m.checkAllowed(&c.rules); err != nil && !unchanged(part{mapping: m.Name}) {
			return fmt.Errorf("hook %q: %w", text.Abridge(m.Name), err)
		}
	}
	return nil
}

// warningsAboutChats looks for live hooks whose answers are not delivered.
func (c *compiler) warningsAboutChats(active *activeSettings) (found []warning) {
	for i := range active.settings.Mappings {
		m := &active.settings.Mappings[i]
		if active.hooks[m.Name].pinned || m.checkAllowed(&c.rules) == nil {
			continue
		}
		found = append(found, warning{part{mapping: m.Name}, fmt.Sprintf(
			"its answers are not delivered, because allow_to of channel %s does not have its chat: add the chat there, or write the hook into the Caddyfile", m.Channel)})
	}
	return found
}

// limitedChannel is a channel that sends nothing to a chat that is not allowed. When a request comes in its chat is checked, but
// the run may be one of before, or one that is run again, or that of a live hook that was saved earlier.
type limitedChannel struct {
	engine.Channel
	compiler *compiler
}

// limited returns the channel with its limit, if it has one.
func (in *instance) limited(channel engine.Channel) engine.Channel {
	if _, ok := channel.(chatLimiter); !ok {
		return channel
	}
	return limitedChannel{channel, &in.compiler}
}

var errChatNotAllowed = errors.New("the chat is not in allow_to of the channel, and the run is not of a hook in Caddy's configuration")

// Send sends the answer.
func (c limitedChannel) Send(ctx context.Context, d *engine.Delivery) error {
	if !allowsTo(c.Channel, d.To) && indexMapping(c.compiler.pinned.Mappings, d.Hook) < 0 {
		return &engine.FinalError{Err: errChatNotAllowed}
	}
	return c.Channel.Send(ctx, d)
}

// Interface guards
var _ engine.Channel = limitedChannel{}
