package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
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

// limitsTo reports whether the configuration of a channel names the chats that may be named.
func limitsTo(channel engine.Channel) bool {
	limiter, ok := channel.(interface{ LimitsTo() bool })
	return ok && limiter.LimitsTo()
}

// ToTemplate is the chat of a mapping if requests choose it: if it has placeholders. Otherwise it is nil.
func (m *Mapping) ToTemplate() (*template.Template, error) {
	if !m.Deliver {
		return nil, nil
	}
	parsed, err := template.Parse(m.To)
	switch {
	case err != nil:
		return nil, FieldErrorf("to", "is refused: %v", err)
	case parsed.FirstPlaceholder() == "":
		return nil, nil
	case slices.Contains(parsed.Sources(), template.Source{Kind: "run"}):
		return nil, FieldErrorf("to", "must not have {@run}: the id of a run is not known yet when the chat is chosen")
	}
	return parsed, nil
}

// likeEnvironment matches how Caddy writes an environment variable elsewhere.
var likeEnvironment = regexp.MustCompile(`\{env\.([A-Za-z_][A-Za-z0-9_]*)\}`)

// checkChosenTo checks a chat that requests choose. Which one that is, is not known yet.
func (m *Mapping) checkChosenTo(r *Rules) error {
	if found := likeEnvironment.FindStringSubmatch(m.To); found != nil {
		return FieldErrorf("to", "has %s, which would be read from the body of a request: in a Caddyfile, write {$%s} for an environment "+
			"variable", found[0], found[1])
	}
	if channel := r.Channels[m.Channel]; channel != nil && !limitsTo(channel) {
		return FieldErrorf("to", "has placeholders, so that requests choose the chat: allow_to of the channel %s must then name the chats that "+
			"are allowed, or * for any", m.Channel)
	}
	return nil
}

// checkAllowed checks the chat of a live hook. One that requests choose is checked then.
func (m *Mapping) checkAllowed(r *Rules) error {
	if err := m.checkAskAllowed(r); err != nil {
		return err
	}
	if chosen, err := m.ToTemplate(); chosen != nil || err != nil {
		return err
	}
	return m.AgentFields.checkAllowed(r)
}

// NamesChat reports whether a hook of Caddy's configuration has a chat that is the same for all requests. It is the operator's own word.
func (c *Compiler) NamesChat(hook string) bool {
	m := FindMapping(c.Pinned.Mappings, hook)
	if m == nil {
		return false
	}
	chosen, err := m.ToTemplate()
	return chosen == nil && err == nil
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

// ServiceOf is the name of a channel's module, which is that of the scheme of the same service; "" if it is no module.
func ServiceOf(channel engine.Channel) string {
	module, ok := channel.(caddy.Module)
	if !ok {
		return ""
	}
	return module.CaddyModule().ID.Name()
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
