// Package command has the runner that starts a program for each turn, with presets for Claude Code, Codex and Gemini CLI. It imports
// engine, supervise and the packages below runners/internal, and no other runner.
package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
)

func init() {
	caddy.RegisterModule(Command{})
}

// Command is a runner that starts a program for each turn. The program gets the message on its standard input, and what it writes
// to its standard output is the answer. There is no shell. All processes that it starts end with the turn.
//
// The environment tells it more: HOOKS_RUN_ID, HOOKS_CHAT_ID, HOOKS_HOOK, HOOKS_ACTION, HOOKS_TIER, HOOKS_MEMORY_PRESET,
// HOOKS_PHASE (turn or repair), HOOKS_DEADLINE, and, if there are any, HOOKS_SYSTEM_FILE and HOOKS_SCHEMA_FILE: files with
// instructions and with the JSON Schema of the answer.
type Command struct {
	// A program that is known here: claude (Claude Code), codex or gemini (Gemini CLI). Its arguments, its answers and its
	// sessions are taken care of.
	Preset string `json:"preset,omitempty"`

	// The program, which is looked up in PATH, and its arguments. With a preset the program may be left out, and the arguments of
	// the preset follow. Placeholders such as {env.X} are replaced; others can read the arguments of a process, so that secrets
	// belong into env.
	Args []string `json:"args,omitempty"`

	// What the program reads: message, or json for the request that the http runner sends. Default: message, after the
	// instructions and a blank line if there are instructions.
	Stdin string `json:"stdin,omitempty"`

	// Where the answer is in the output. Default: it is all of it.
	Reply ReplyFormat `json:"reply,omitzero"`

	// Exit codes that mean failure. Default: all but 0.
	FailOn []int `json:"fail_on,omitempty"`

	// Exit codes that mean that the program did nothing and the turn can be tried again later.
	BusyOn []int `json:"busy_on,omitempty"`

	// The most that the program may write. Default: 8MB; with a preset 64MB, of which 8MB may be on one line.
	MaxOutput caddyconf.Size `json:"max_output,omitempty"`

	models.ByTier
	programs.Program

	args   []string
	preset *programPreset
	reply  replyReader
	log    *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Command) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.command",
		New: func() caddy.Module { return new(Command) },
	}
}

// Usage describes the runner in a list of choices.
func (Command) Usage() (arguments, agent string) {
	return "<preset or program>", "a program for each turn; presets: " + strings.Join(presetNames(), ", ")
}

// Uses says that a program of the operator is told everything. With a preset, tiers choose models, and a chat goes on or not.
func (c *Command) Uses() (tiers, memoryPresets []string) {
	if c.Preset == "" {
		return engine.Tiers, engine.MemoryPresets
	}
	return slices.Collect(maps.Keys(c.Tiers)), []string{engine.MemoryPlain}
}

// Provision sets up the runner. What is wrong on this machine only is logged, since a configuration may be checked on another one.
func (c *Command) Provision(ctx caddy.Context) error {
	if err := c.provision(ctx.Logger()); err != nil {
		return fmt.Errorf("runner command: %w", err)
	}
	return nil
}

// Place tells the runner of a folder that it may use, which has its name.
func (c *Command) Place(dir string) {
	c.Program.Place(dir)
	c.LogWarnings(c.log, c.args[0], presetNames())
}

func (c *Command) provision(log *zap.Logger) (err error) {
	c.log = log
	if err := c.check(); err != nil {
		return err
	}
	if err := c.Program.Resolve(); err != nil {
		return err
	}
	c.ByTier.Resolve()
	c.args = c.ResolveArgs(c.Args)
	if c.preset = programPresets[c.Preset]; c.preset != nil && !c.namesProgram() {
		c.args = slices.Insert(c.args, 0, c.preset.program)
	}
	if strings.ContainsRune(strings.Join(c.args, ""), 0) {
		return errors.New("an argument has a NUL character")
	}
	if c.args[0], err = programs.WholeName(c.args[0]); err != nil {
		return err
	}
	c.reply, err = c.Reply.compile()
	return err
}

// namesProgram reports whether the first argument is a program, and not an option for the one of the preset.
func (c *Command) namesProgram() bool {
	return len(c.Args) > 0 && !strings.HasPrefix(c.Args[0], "-")
}

const (
	stdinMessage = "message"
	stdinJSON    = "json"
)

// check finds mistakes that do not depend on the machine.
func (c *Command) check() error {
	if c.Preset != "" && programPresets[c.Preset] == nil {
		return fmt.Errorf("there is no preset '%s'; there are %s", c.Preset, strings.Join(presetNames(), ", "))
	}
	switch {
	case c.Preset == "" && !c.namesProgram():
		return errors.New("a program is missing, as in: runner command /usr/local/bin/answer --brief")
	case c.Preset != "" && c.Stdin != "":
		return fmt.Errorf("stdin goes without the preset %s, which knows what the program reads", c.Preset)
	case c.Preset != "" && c.Reply != ReplyFormat{}:
		return fmt.Errorf("reply goes without the preset %s, which knows where the answer is", c.Preset)
	case c.Preset != "" && len(c.FailOn) > 0:
		return fmt.Errorf("fail_on goes without the preset %s, which knows what failure is", c.Preset)
	case c.Preset == "" && (c.Model != "" || len(c.Tiers) > 0):
		return errors.New("model and tier need a preset; other programs get the tier as HOOKS_TIER")
	case c.MaxOutput < 0:
		return errors.New("max_output must not be negative")
	}
	if err := checkStdin(c.Stdin); c.Stdin != "" && err != nil {
		return err
	}
	for _, code := range slices.Concat(c.FailOn, c.BusyOn) {
		if err := checkExitCode(code); err != nil {
			return err
		}
	}
	for _, code := range c.BusyOn {
		if slices.Contains(c.FailOn, code) {
			return fmt.Errorf("exit code %d is in both fail_on and busy_on", code)
		}
	}
	if _, err := c.Reply.compile(); err != nil {
		return err
	}
	return errors.Join(models.CheckTiers(c.Tiers), c.Program.Check())
}

func checkStdin(form string) error {
	if form != stdinMessage && form != stdinJSON {
		return errors.New("stdin must be message or json")
	}
	return nil
}

func checkExitCode(code int) error {
	const most = 255
	if code < 1 || code > most {
		return fmt.Errorf("an exit code of failure is a number from 1 to %d", most)
	}
	return nil
}

// Address is the program, for logs.
func (c *Command) Address() string { return c.args[0] }

// Run starts the program and reads its answer.
func (c *Command) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	reply, err := c.carryOut(ctx, &turn)
	return reply, c.Clean(err)
}

// PresetName is the preset, "" if there is none.
func (c *Command) PresetName() string { return c.Preset }

// Interface guards
var (
	_ engine.Runner         = (*Command)(nil)
	_ engine.Redactor       = (*Command)(nil)
	_ caddy.Provisioner     = (*Command)(nil)
	_ caddyfile.Unmarshaler = (*Command)(nil)
)
