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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

func init() {
	caddy.RegisterModule(Echo{})
}

// Echo is a runner for trying things out. It answers with the message or, if the run has a schema, with an example that the schema has
// or a value of its type. It can be slow, fail, or answer wrongly first, to show how callers cope with that.
type Echo struct {
	// How long a turn takes. Default: no time.
	Delay caddy.Duration `json:"delay,omitempty"`

	// The answer to every turn. Default: the message of the turn.
	Reply string `json:"reply,omitempty"`

	// The number of calls of a run with a schema, its turn first and then its repairs, that get an answer which does not
	// match. Default: 0.
	InvalidFirst int `json:"invalid_first,omitempty"`

	// Fail every call as an HTTP runner would that answered with this status code.
	Fail int `json:"fail,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Echo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.echo",
		New: func() caddy.Module { return new(Echo) },
	}
}

// Usage describes the runner in a list of choices.
func (Echo) Usage() (arguments, agent string) {
	return "", "a pretend agent, which answers with the message"
}

// Uses says that all turns are alike.
func (Echo) Uses() (tiers, memoryPresets []string) { return nil, nil }

// Validate checks the configuration.
func (e *Echo) Validate() error {
	if e.Delay < 0 {
		return errors.New("delay must not be negative")
	}
	if e.InvalidFirst < 0 {
		return errors.New("invalid_first must not be negative")
	}
	return checkFail(e.Fail)
}

var errFail = errors.New("fail must be a status code from 400 to 599")

func checkFail(status int) error {
	if status != 0 && (status < 400 || status > 599) {
		return errFail
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
	return caddyconf.ReadBlock(d, "runner echo",
		caddyconf.Set("delay", &e.Delay, caddyconf.Duration(0)),
		caddyconf.Set("reply", &e.Reply, caddyconf.Prose(caddyconf.TextOrEmpty)),
		caddyconf.Set("invalid_first", &e.InvalidFirst, caddyconf.Number(0)),
		caddyconf.Set("fail", &e.Fail, readFail),
	)
}

func readFail(d *caddyfile.Dispenser) (int, error) {
	text, err := caddyconf.Text(d)
	if err != nil {
		return 0, err
	}
	status, err := strconv.Atoi(text)
	if err != nil || checkFail(status) != nil {
		return 0, d.WrapErr(errFail)
	}
	return status, nil
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
		return engine.Reply{}, answers.AgentRefusal(e.Fail, 0, &answers.Error{Problem: fmt.Sprintf("the runner answered %d", e.Fail)})
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
	answer, err := schemaInstance(turn.ResponseSchema)
	if err != nil {
		return engine.Reply{}, fmt.Errorf("reading the schema: %w", err)
	}
	return engine.Reply{Text: answer}, nil
}

// Interface guards
var (
	_ engine.Runner         = (*Echo)(nil)
	_ caddy.Validator       = (*Echo)(nil)
	_ caddyfile.Unmarshaler = (*Echo)(nil)
)
