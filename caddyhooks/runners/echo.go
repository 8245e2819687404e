// Package runners holds the ways in which a turn can be handed to an agent loop.
package runners

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/example"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

func init() {
	caddy.RegisterModule(Echo{})
}

// Echo is a runner that needs nothing: it answers with the message, or with the smallest JSON that satisfies the schema
// of the run. It can be told to be slow, to fail or to answer wrongly first, to try out how callers cope with that.
type Echo struct {
	// How long a turn takes. Default: no time.
	Delay caddy.Duration `json:"delay,omitempty"`

	// What to answer instead of the message.
	Reply string `json:"reply,omitempty"`

	// How many calls of a run with a schema, its turn first and then its repairs, are answered with something that
	// does not match. Default: 0.
	InvalidFirst int `json:"invalid_first,omitempty"`

	// Fail every call as an HTTP runner would that answered with this status code.
	Fail int `json:"fail,omitempty"`

	examples *example.Cache
}

// CaddyModule returns the Caddy module information.
func (Echo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.echo",
		New: func() caddy.Module { return new(Echo) },
	}
}

// Provision sets up the runner.
func (e *Echo) Provision(caddy.Context) error {
	e.examples = new(example.Cache)
	return nil
}

// Validate checks the configuration.
func (e *Echo) Validate() error {
	if e.Delay < 0 {
		return errors.New("delay must not be negative")
	}
	if e.InvalidFirst < 0 {
		return errors.New("invalid_first must not be negative")
	}
	if e.Fail != 0 && (e.Fail < 400 || e.Fail > 599) {
		return errors.New("fail must be a status code from 400 to 599")
	}
	return nil
}

// UnmarshalCaddyfile parses:
//
//	runner echo {
//		delay         <duration>
//		reply         <text>
//		invalid_first <n>
//		fail          <status>
//	}
func (e *Echo) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		switch word {
		case "delay", "reply", "invalid_first", "fail":
		default:
			return d.Errf("unrecognized subdirective '%s'; runner echo takes delay, reply, invalid_first and fail", word)
		}
		if seen[word] {
			return d.Errf("%s is set already", word)
		}
		seen[word] = true
		var value string
		if !d.AllArgs(&value) {
			return d.ArgErr()
		}
		var err error
		switch word {
		case "delay":
			var delay time.Duration
			delay, err = caddy.ParseDuration(value)
			e.Delay = caddy.Duration(delay)
		case "reply":
			e.Reply = shorthand.Undo(value)
		case "invalid_first":
			e.InvalidFirst, err = strconv.Atoi(value)
		case "fail":
			e.Fail, err = strconv.Atoi(value)
		}
		if err != nil {
			return d.Errf("bad %s '%s': %v", word, value, err)
		}
		if err := e.Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// Run answers the turn.
func (e *Echo) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if e.Delay > 0 {
		timer := time.NewTimer(time.Duration(e.Delay))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return engine.Reply{}, ctx.Err()
		}
	}
	if e.Fail != 0 {
		return engine.Reply{}, statusError(e.Fail, 0)
	}
	if turn.ResponseSchema != nil && turn.Repair < e.InvalidFirst {
		return engine.Reply{Text: fmt.Sprintf("answer %d of %d that matches no schema", turn.Repair+1, e.InvalidFirst)}, nil
	}
	if e.Reply != "" {
		return engine.Reply{Text: e.Reply}, nil
	}
	if turn.ResponseSchema == nil {
		return engine.Reply{Text: turn.Message}, nil
	}
	answer, err := e.examples.Make(turn.ResponseSchema)
	if err != nil {
		return engine.Reply{}, fmt.Errorf("compiling the schema: %w", err)
	}
	if answer == nil {
		return engine.Reply{Text: "echo found no value that satisfies the schema"}, nil
	}
	return engine.Reply{Text: string(answer)}, nil
}

// Interface guards
var (
	_ engine.Runner         = (*Echo)(nil)
	_ caddy.Provisioner     = (*Echo)(nil)
	_ caddy.Validator       = (*Echo)(nil)
	_ caddyfile.Unmarshaler = (*Echo)(nil)
)
