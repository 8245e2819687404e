package caddyhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// runnerChoice says which runner carries out a run that no mapping sends to one.
type runnerChoice struct {
	names    []string // of all runners, sorted
	byTier   map[string]string
	fallback string
}

// of returns the name of the runner for a tier.
func (c *runnerChoice) of(tier string) string {
	if name, ok := c.byTier[tier]; ok {
		return name
	}
	return c.fallback
}

// unnamedRunner is the name of a runner that was given none.
const unnamedRunner = "default"

// runnerChoice checks the names of the runners.
func (h *Handler) runnerChoice() (runnerChoice, error) {
	choice := runnerChoice{names: slices.Sorted(maps.Keys(h.RunnersRaw)), byTier: h.RunnerFor, fallback: h.DefaultRunner}
	for _, name := range choice.names {
		if err := checkRunnerName(name); err != nil {
			return choice, err
		}
	}
	if choice.fallback == "" {
		choice.fallback = unnamedRunner
		if len(choice.names) == 1 {
			choice.fallback = choice.names[0]
		}
	}
	if !slices.Contains(choice.names, choice.fallback) && (len(choice.names) > 0 || h.DefaultRunner != "") {
		if h.DefaultRunner == "" {
			return choice, errors.New("with several runners, one must be called default, or default_runner must name one")
		}
		return choice, fmt.Errorf("default_runner names no runner that is configured here; there %s", areListed(choice.names))
	}
	for _, tier := range slices.Sorted(maps.Keys(h.RunnerFor)) {
		if !slices.Contains(tiers, tier) {
			return choice, fmt.Errorf("runner_for names an unknown tier; the tiers are %s", text.List(tiers))
		}
		if !slices.Contains(choice.names, h.RunnerFor[tier]) {
			return choice, fmt.Errorf("runner_for %s names no runner that is configured here; there %s", tier, areListed(choice.names))
		}
	}
	return choice, nil
}

// areListed ends an error about a name that is none of those.
func areListed(names []string) string {
	switch len(names) {
	case 0:
		return "are none"
	case 1:
		return "is " + names[0]
	default:
		return "are " + text.List(names)
	}
}

func checkRunnerName(name string) error {
	switch {
	case !hookName.MatchString(name):
		return errors.New("the name of a runner must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
	case slices.Contains(runnerModules(), name):
		return fmt.Errorf("a runner must not be called %s, which is a kind of runner", name)
	}
	return nil
}

// checkRunner refuses to start a run where nobody would carry it out.
func (in *instance) checkRunner(what string) error {
	if err := in.rules.runners.check(); err != nil {
		return conflictf("%s %v", what, err)
	}
	return nil
}

func runnerModules() []string { return caddyconf.ModuleNames("hooks.runners") }

// check refuses to enable webhooks without a runner: nobody would carry out the runs.
func (c *runnerChoice) check() error {
	if len(c.names) > 0 {
		return nil
	}
	var lines strings.Builder
	for _, name := range runnerModules() {
		line, agent := "runner "+name, ""
		if info, err := caddy.GetModule("hooks.runners." + name); err == nil {
			if described, ok := info.New().(interface {
				Usage() (arguments, agent string)
			}); ok {
				var arguments string
				arguments, agent = described.Usage()
				line += " " + arguments
			}
		}
		lines.WriteString("\n  " + strings.TrimRight(fmt.Sprintf("%-36s%s", line, agent), " "))
	}
	return fmt.Errorf("needs a runner, which calls your agent. Write one of these lines in the hooks block:%s\n"+
		`In JSON, echo is "runners": {"default": {"runner": "echo"}}`, lines.String())
}

// runnerLines reads the lines of a hooks block that are about runners.
type runnerLines struct {
	handler *Handler
	helper  httpcaddyfile.Helper
	first   string // the name of the first one
	tiers   []tierLine
}

// tierLine is a line that sends a tier to a runner.
type tierLine struct {
	runner string
	place  caddyfile.Dispenser
}

// unmarshalRunner parses:
//
//	runner [<name>] <module> [<args...>] { … }
func (l *runnerLines) unmarshalRunner(d *caddyfile.Dispenser) error {
	place := *d
	name := unnamedRunner
	// The first word is a name if the second one is a kind of runner, unless it is one itself.
	ahead := *d
	if words := ahead.RemainingArgs(); len(words) > 1 && !slices.Contains(runnerModules(), words[0]) && slices.Contains(runnerModules(), words[1]) {
		d.NextArg()
		name = d.Val()
	}
	if err := checkRunnerName(name); err != nil {
		return place.WrapErr(err)
	}
	h := l.handler
	if _, ok := h.RunnersRaw[name]; ok {
		if name == unnamedRunner {
			return place.Err("runner is set already; a second one needs a name, as in: runner big http …")
		}
		return place.Errf("runner %s is set already", name)
	}
	raw, err := caddyconf.ModuleWithRoutes("hooks.runners", "runner", l.helper)(d)
	if err != nil {
		return err
	}
	if h.RunnersRaw == nil {
		h.RunnersRaw = make(map[string]json.RawMessage)
		l.first = name
	}
	h.RunnersRaw[name] = raw
	return nil
}

// readRunnerName reads the name of a runner in a hook.
func readRunnerName(d *caddyfile.Dispenser) (string, error) {
	ahead := *d
	if len(ahead.RemainingArgs()) > 1 {
		return "", d.Err("runner in a hook takes the name of a runner, as in: runner big; the runner itself is set beside the hook, as in: runner big http …")
	}
	return caddyconf.Word(d)
}

// unmarshalTiers parses:
//
//	runner_for <tier>... <name>
func (l *runnerLines) unmarshalTiers(d *caddyfile.Dispenser) error {
	place := *d
	words, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	last := len(words) - 1
	if last == 0 {
		return place.Err("runner_for takes one or more tiers, and then the name of a runner")
	}
	for _, tier := range words[:last] {
		if !slices.Contains(tiers, tier) {
			return place.Errf("'%s' is not a tier; the tiers are %s", tier, strings.Join(tiers, ", "))
		}
		if _, ok := l.handler.RunnerFor[tier]; ok {
			return place.Errf("runner_for %s is set already", tier)
		}
		if l.handler.RunnerFor == nil {
			l.handler.RunnerFor = make(map[string]string)
		}
		l.handler.RunnerFor[tier] = words[last]
	}
	l.tiers = append(l.tiers, tierLine{words[last], place})
	return nil
}

// check is called when all lines are read.
func (l *runnerLines) check() error {
	h := l.handler
	names := slices.Sorted(maps.Keys(h.RunnersRaw))
	for _, line := range l.tiers {
		if !slices.Contains(names, line.runner) {
			return line.place.Errf("runner_for names no runner that is configured here; there %s", areListed(names))
		}
	}
	if _, ok := h.RunnersRaw[unnamedRunner]; !ok && len(names) > 1 {
		h.DefaultRunner = l.first
	}
	return nil
}
