package channels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Recipients is the configuration of the chats that requests may name. All channels embed it.
type Recipients struct {
	// The chats that requests and live hooks may name, each written as there. `*` stands for any characters, and alone for any
	// chat. A chat includes its threads. Hooks of Caddy's configuration may name others. Placeholders such as {env.X} are
	// replaced. Default: any.
	AllowTo []string `json:"allow_to,omitempty"`

	allowed []allowedChat

	// splitTo takes a chat apart into the chat itself and a thread in it, "" if there is none. A channel with threads sets it
	// before it is provisioned.
	splitTo func(to string) (chat, thread string)
}

// allowedChat is an entry of allow_to, placeholders replaced. An empty thread stands for the chat and all its threads.
type allowedChat struct{ chat, thread string }

// AllowsTo reports whether requests may name a chat. Chats are compared as they are written: the id of one does not stand for
// its name. What ValidTo refuses is no chat, whatever AllowsTo says.
func (r *Recipients) AllowsTo(to string) bool {
	if r.allowed == nil {
		return true
	}
	chat, thread := r.split(to)
	return slices.ContainsFunc(r.allowed, func(entry allowedChat) bool {
		return text.MatchesStars(entry.chat, chat) && (entry.thread == "" || text.MatchesStars(entry.thread, thread))
	})
}

// LimitsTo reports whether there is allow_to, so that requests may choose the chats of a hook.
func (r *Recipients) LimitsTo() bool { return r.allowed != nil }

func (r *Recipients) split(to string) (chat, thread string) {
	if r.splitTo == nil {
		return to, ""
	}
	return r.splitTo(to)
}

// splitAtSlash is the splitTo of channels whose threads follow after a slash.
func splitAtSlash(to string) (chat, thread string) {
	chat, thread, _ = strings.Cut(to, "/")
	return chat, thread
}

// checkAllowed checks the form of an entry of allow_to. valid judges one without *. One with * has to have a chat that it
// could stand for.
func checkAllowed(entry string, valid func(entry string) error) error {
	err := valid(entry)
	if err == nil || entry == "*" {
		return nil
	}
	for n := 1; n <= longestID && strings.Contains(entry, "*"); n++ {
		for _, sample := range []string{"1", "a", "A"} {
			if valid(strings.ReplaceAll(entry, "*", strings.Repeat(sample, n))) == nil {
				return nil
			}
		}
	}
	return err
}

// longestID is the length of the longest ids of chats that * can be a part of.
const longestID = 26

// provisionRecipients replaces placeholders. name is that of the channel. valid judges an entry of allow_to: it is the ValidTo
// of the channel, unless entries can name more than one chat.
func (r *Recipients) provisionRecipients(name string, valid func(entry string) error) error {
	if r.AllowTo == nil {
		return nil
	}
	if len(r.AllowTo) == 0 {
		return fmt.Errorf("channel %s: allow_to must name a chat, or be left out", name)
	}
	r.allowed = make([]allowedChat, len(r.AllowTo))
	repl := caddy.NewReplacer()
	for i, entry := range r.AllowTo {
		replaced := repl.ReplaceKnown(entry, "")
		if err := checkAllowed(replaced, valid); err != nil {
			return fmt.Errorf("channel %s: allow_to '%s' is refused: %w", name, entry, err)
		}
		r.allowed[i].chat, r.allowed[i].thread = r.split(replaced)
	}
	return nil
}

// allowDirective reads the chats that requests may name. valid is as for provisionRecipients.
func (r *Recipients) allowDirective(valid func(entry string) error) caddyconf.Directive {
	return caddyconf.Directive{Word: "allow_to", Read: func(d *caddyfile.Dispenser) error {
		place := *d
		args := d.RemainingArgs()
		if len(args) == 0 || slices.Contains(args, "") {
			return place.Err(`allow_to takes one or more chats; a # begins a comment, so write "#general" in quotes` + caddyconf.Unset)
		}
		for i, entry := range args {
			if slices.Contains(args[:i], entry) {
				return place.Errf("allow_to has '%s' twice", entry)
			}
			if err := checkAllowed(entry, valid); err != nil && !caddyconf.HasPlaceholder(entry) {
				return place.Errf("allow_to '%s' is refused: %v", entry, err)
			}
		}
		r.AllowTo = args
		return nil
	}}
}
