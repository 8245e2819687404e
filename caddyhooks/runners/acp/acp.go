// Package acp has the runner that speaks the Agent Client Protocol with an agent on this machine: its pool of processes, their
// sessions, and presets for known agents. It imports engine, acpclient, supervise and the packages below runners/internal. Of the
// other runners it imports command, which carries out turns without memory for agents that cannot do so themselves.
package acp

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/command"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
)

func init() {
	caddy.RegisterModule(ACP{})
}

// ACP is a runner that gives turns to an agent on this machine by the Agent Client Protocol: Claude Code, Codex, Gemini CLI,
// opencode, Qwen Code, Copilot CLI and others. One process of the agent serves many chats, each in a session of its own, which
// goes on over restarts. It is started with the first turn.
type ACP struct {
	programs.Program
	models.ByTier

	// What is usual for an agent: claude, codex, gemini, opencode, qwen or copilot. Default: none.
	Preset string `json:"preset,omitempty"`

	// The program and its arguments. No shell sees them. With a preset the program may be left out. Default: those of the preset.
	Args []string `json:"args,omitempty"`

	// The most processes at the same time. Another one is started when all are busy. Default: 1.
	Processes int `json:"processes,omitempty"`

	// How long a process without a turn is kept. Default: 10m.
	Idle caddy.Duration `json:"idle,omitempty"`

	// The most sessions that one process keeps open. The one that was not used for longest is closed, and opened again when it is
	// needed. Default: 200.
	Sessions int `json:"sessions,omitempty"`

	// The kinds of tools that the agent may use: read, edit, delete, move, search, execute, think, fetch, switch_mode, other.
	// Requests for others are rejected. Default: none.
	Permit []string `json:"permit,omitempty"`

	// The kinds of tools that people are asked about each time, and where. Default: none.
	Ask []Asks `json:"ask,omitempty"`

	preset      agentPreset
	command     []string
	once        *command.Command // for turns without memory, nil if the agent carries them out itself
	key         string           // of the pool
	pool        *agentPool
	maxBytes    int           // of all that an agent says in a turn
	replayQuiet time.Duration // without an update, after which a loaded conversation counts as repeated
	log         *zap.Logger
}

const (
	defaultProcesses = 1
	defaultIdle      = 10 * time.Minute
	defaultSessions  = 200
)

// toolKinds are the kinds of tools in the protocol.
var toolKinds = []string{"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", otherTool}

const otherTool = "other"

// CaddyModule returns the Caddy module information.
func (ACP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.acp",
		New: func() caddy.Module { return new(ACP) },
	}
}

// Usage describes the runner in a list of choices.
func (ACP) Usage() (arguments, agent string) {
	return "<preset or program>", "an agent on this machine; presets: " + strings.Join(presetNames(), ", ")
}

// Uses says that tiers choose models, and that a chat goes on or not.
func (a *ACP) Uses() (tiers, memoryPresets []string) {
	return slices.Collect(maps.Keys(a.Tiers)), []string{engine.MemoryPlain}
}

// Provision sets up the runner. What is wrong on this machine only is logged, since a configuration may be checked on another one.
func (a *ACP) Provision(ctx caddy.Context) error {
	a.log = ctx.Logger()
	if err := a.provision(); err != nil {
		return fmt.Errorf("runner acp: %w", err)
	}
	return nil
}

func (a *ACP) provision() (err error) {
	if err := a.check(); err != nil {
		return err
	}
	a.preset, a.maxBytes, a.replayQuiet = agentPresets[a.Preset], maxTurnBytes, replayQuiet
	if err := a.Program.Resolve(); err != nil {
		return err
	}
	a.ByTier.Resolve()
	a.command = a.ResolveArgs(a.Args)
	if a.Preset != "" && (len(a.command) == 0 || strings.HasPrefix(a.command[0], "-")) { // arguments for the program of the preset
		a.command = slices.Concat(a.preset.command, a.command)
	}
	if a.command[0], err = programs.WholeName(a.command[0]); err != nil {
		return err
	}
	if a.preset.oneShot {
		if a.once, err = command.NewOneShot(a.Preset, a.Program, a.ByTier, nil, a.log); err != nil {
			return err
		}
	}
	return nil
}

// check finds mistakes that do not depend on the machine.
func (a *ACP) check() error {
	if _, ok := agentPresets[a.Preset]; !ok && a.Preset != "" {
		return fmt.Errorf("there is no preset '%s'; there are %s", a.Preset, strings.Join(presetNames(), ", "))
	}
	if err := a.Program.Check(); err != nil {
		return err
	}
	switch {
	case len(a.Args) == 0 && a.Preset == "":
		return errNoProgram
	case len(a.Args) > 0 && a.Args[0] == "":
		return errNoProgram
	case a.Preset == "" && strings.HasPrefix(a.Args[0], "-"):
		return errNoProgram
	case a.Processes < 0:
		return errors.New("processes must not be negative")
	case a.Idle < 0:
		return errors.New("idle must not be negative")
	case a.Sessions < 0:
		return errors.New("sessions must not be negative")
	}
	for _, kind := range a.Permit {
		if err := checkToolKind(kind); err != nil {
			return err
		}
	}
	if err := a.checkAsks(); err != nil {
		return err
	}
	return models.CheckTiers(a.Tiers)
}

var errNoProgram = fmt.Errorf("a program is missing, as in: runner acp /usr/local/bin/my-agent --acp; or a preset: %s",
	strings.Join(presetNames(), ", "))

func checkToolKind(kind string) error {
	if !slices.Contains(toolKinds, kind) {
		return fmt.Errorf("'%s' is not a kind of tool; there are %s", kind, strings.Join(toolKinds, ", "))
	}
	return nil
}

// UnmarshalCaddyfile parses:
//
//	runner acp [<preset>] [<program> <args>...] {
//		env       <NAME> <value>
//		pass_env  <NAME>...
//		dir       <path>
//		user      <name>
//		home      <path>
//		model     <model>
//		tier      <tier> <model>
//		processes <n>
//		idle      <duration>
//		sessions  <n>
//		permit    <kind>...
//		ask       <kind>... in <channel> <to> [<duration>] [by <id>...] [else allow|reject]
//	}
//
// The program may be left out with a preset, also before arguments that begin with a dash. A program that has the name of a preset is
// written with its path.
func (a *ACP) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	place := *d
	a.Args = d.RemainingArgs()
	if len(a.Args) > 0 {
		if _, ok := agentPresets[a.Args[0]]; ok {
			a.Preset, a.Args = a.Args[0], a.Args[1:]
		}
	}
	if len(a.Args) == 0 {
		a.Args = nil
		if a.Preset == "" {
			return place.WrapErr(errNoProgram)
		}
	}
	lines := append(a.Program.Directives(), a.ByTier.Directives()...)
	lines = append(lines,
		caddyconf.Set("processes", &a.Processes, caddyconf.Number(1)),
		caddyconf.Set("idle", &a.Idle, caddyconf.Duration(time.Second)),
		caddyconf.Set("sessions", &a.Sessions, caddyconf.Number(1)),
		caddyconf.Set("permit", &a.Permit, caddyconf.Checked(caddyconf.List, func(kinds []string) error {
			for _, kind := range kinds {
				if err := checkToolKind(kind); err != nil {
					return err
				}
			}
			return nil
		})),
		caddyconf.Directive{Word: "ask", Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
			asks, err := readAsks(d)
			a.Ask = append(a.Ask, asks)
			return err
		}},
	)
	return caddyconf.ReadBlock(d, "runner acp", lines...)
}

// agentPools are the processes of the runners of all configurations. A runner that is the same after a reload keeps its own.
var agentPools = caddy.NewUsagePool()

// Place tells the runner of a folder that it may use.
func (a *ACP) Place(dir string) {
	a.Program.Place(dir)
	a.LogWarnings(a.log, a.command[0], presetNames())
	if a.once != nil {
		a.once.Program.Place(dir)
		if err := a.CheckProgram(a.once.Address()); err != nil {
			a.log.Warn("runner program for turns without memory cannot start",
				zap.String("runner", filepath.Base(dir)), zap.String("problem", err.Error()))
		}
	}
	settings, err := json.Marshal([]any{a, a.Variables(), a.command, dir}) // with what placeholders stand for
	if err != nil {
		a.log.Error("identifying a runner's settings failed", zap.Error(err))
		return
	}
	sum := sha256.Sum256(settings) // they hold secrets
	key := string(sum[:])
	pool, _, err := agentPools.LoadOrNew(key, func() (caddy.Destructor, error) { return newAgentPool(a), nil })
	if err != nil {
		a.log.Error("creating a runner's process pool failed", zap.Error(err))
		return
	}
	a.key, a.pool = key, pool.(*agentPool)
}

// Cleanup ends the processes, unless the runner goes on in another configuration. A process that has a turn ends after it.
func (a *ACP) Cleanup() error {
	if a.key == "" {
		return nil
	}
	key := a.key
	a.key = ""
	_, err := agentPools.Delete(key)
	return err
}

// Run carries out the turn.
func (a *ACP) Run(ctx context.Context, turn engine.Turn) (reply engine.Reply, err error) {
	if a.pool == nil {
		return reply, errors.New("the runner has no folder")
	}
	switch {
	case turn.Memory() || a.preset.forgets:
		reply, err = a.runInSession(ctx, &turn)
	case a.once != nil:
		return a.once.Run(ctx, turn)
	default:
		reply, err = a.runApart(ctx, &turn)
	}
	return reply, a.Clean(err)
}

// PresetName is the preset, "" if there is none.
func (a *ACP) PresetName() string { return a.Preset }

// Interface guards
var (
	_ engine.Runner         = (*ACP)(nil)
	_ engine.Redactor       = (*ACP)(nil)
	_ engine.Asker          = (*ACP)(nil)
	_ caddy.Provisioner     = (*ACP)(nil)
	_ caddy.CleanerUpper    = (*ACP)(nil)
	_ caddyfile.Unmarshaler = (*ACP)(nil)
)
