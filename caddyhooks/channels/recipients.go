package channels

import (
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// Recipients is the configuration of the chats that requests may name. All channels embed it.
type Recipients struct {
	// The chats that requests and live hooks may name, each written as there. Hooks of Caddy's configuration may name others.
	// Placeholders such as {env.X} are replaced. Default: any.
	AllowTo []string `json:"allow_to,omitempty"`

	allowed []string // the same, placeholders replaced
}

// AllowsTo reports whether requests may name a chat. Chats are compared as they are written: the id of one does not stand for
// its name.
func (r *Recipients) AllowsTo(to string) bool {
	return r.allowed == nil || slices.Contains(r.allowed, to)
}

// provisionRecipients replaces placeholders. name is that of the channel, and validTo is its ValidTo.
func (r *Recipients) provisionRecipients(name string, validTo func(to string) error) error {
	if r.AllowTo == nil {
		return nil
	}
	if len(r.AllowTo) == 0 {
		return fmt.Errorf("channel %s: allow_to must name a chat, or be left out", name)
	}
	r.allowed = make([]string, len(r.AllowTo))
	repl := caddy.NewReplacer()
	for i, to := range r.AllowTo {
		r.allowed[i] = repl.ReplaceKnown(to, "")
		if err := validTo(r.allowed[i]); err != nil {
			return fmt.Errorf("channel %s: allow_to '%s' is refused: %w", name, to, err)
		}
	}
	return nil
}

// allowDirective reads the chats that requests may name.
func (r *Recipients) allowDirective(validTo func(to string) error) caddyconf.Directive {
	return caddyconf.Directive{Word: "allow_to", Read: func(d *caddyfile.Dispenser) error {
		place := *d
		args := d.RemainingArgs()
		if len(args) == 0 || slices.Contains(args, "") {
			return place.Err(`allow_to takes one or more chats; a # begins a comment, so write "#general" in quotes` + caddyconf.Unset)
		}
		for i, to := range args {
			if slices.Contains(args[:i], to) {
				return place.Errf("allow_to has '%s' twice", to)
			}
			if err := validTo(to); err != nil && !caddyconf.HasPlaceholder(to) {
				return place.Errf("allow_to '%s' is refused: %v", to, err)
			}
		}
		r.AllowTo = args
		return nil
	}}
}
