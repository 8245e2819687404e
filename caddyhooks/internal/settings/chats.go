package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// ChatLimiter is a channel whose configuration says which chats requests and live hooks may name (allow_to). Hooks of Caddy's
// configuration are the operator's own word, and may name any.
type ChatLimiter interface {
	AllowsTo(to string) bool
}

// AllowsTo reports whether requests may name a chat on a channel, which is nil if it is not loaded yet.
func AllowsTo(channel engine.Channel, to string) bool {
	limiter, ok := channel.(ChatLimiter)
	return !ok || limiter.AllowsTo(to)
}

// CheckAllowed checks the chats of live hooks that are changed. Hooks that are saved already stay as they are, and have a warning:
// the chats that are allowed may have become fewer since.
func (c *Compiler) CheckAllowed(live *Settings, unchanged func(Part) bool) error {
	for i := range live.Mappings {
		m := &live.Mappings[i]
		if err := m.checkAllowed(&c.Rules); err != nil && !unchanged(Part{Mapping: m.Name}) {
			return fmt.Errorf("hook %q: %w", text.Abridge(m.Name), err)
		}
	}
	return nil
}

// maxProgress bounds what is posted when a run starts. It is one short line.
const maxProgress = 200

func (m *Mapping) checkProgress() error {
	switch {
	case m.Progress == "":
	case strings.TrimSpace(m.Progress) == "":
		return FieldErrorf("progress", "must not be blank; leave it out for none")
	case len(m.Progress) > maxProgress:
		return FieldErrorf("progress", "must not be longer than %d bytes", maxProgress)
	case strings.ContainsFunc(m.Progress, text.IsControl):
		return FieldErrorf("progress", "must be one line without control characters")
	}
	return nil
}

// warningsAboutProgress looks for hooks that say nothing, though they are to say something when a run starts.
func (c *Compiler) warningsAboutProgress(active *Active) (found []Warning) {
	for name, hook := range active.Hooks {
		channel := c.Rules.Channels[hook.Channel]
		if _, ok := channel.(engine.ProgressChannel); hook.Progress == "" || !hook.Deliver || ok || channel == nil {
			continue
		}
		found = append(found, Warning{Part{Mapping: name}, fmt.Sprintf(
			"progress has no effect: channel %s cannot replace a message by another one", hook.Channel)})
	}
	slices.SortFunc(found, func(a, b Warning) int { return strings.Compare(a.Part.Mapping, b.Part.Mapping) })
	return found
}

// warningsAboutChats looks for live hooks whose answers are not delivered.
func (c *Compiler) warningsAboutChats(active *Active) (found []Warning) {
	for i := range active.Settings.Mappings {
		m := &active.Settings.Mappings[i]
		if active.Hooks[m.Name].Pinned || m.checkAllowed(&c.Rules) == nil {
			continue
		}
		found = append(found, Warning{Part{Mapping: m.Name}, fmt.Sprintf(
			"its answers are not delivered, because allow_to of channel %s does not have its chat: add the chat there, or write the hook into "+
				"the Caddyfile", m.Channel)})
	}
	return found
}
