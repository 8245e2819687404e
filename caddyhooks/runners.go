package caddyhooks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

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
func (o *Options) runnerChoice() (runnerChoice, error) {
	choice := runnerChoice{names: slices.Sorted(maps.Keys(o.RunnersRaw)), byTier: o.RunnerFor, fallback: o.DefaultRunner}
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
	if !slices.Contains(choice.names, choice.fallback) && (len(choice.names) > 0 || o.DefaultRunner != "") {
		if o.DefaultRunner == "" {
			return choice, errors.New("with several runners, one must be called default, or default_runner must name one")
		}
		return choice, fmt.Errorf("default_runner names no runner that is configured here; there %s", areListed(choice.names))
	}
	for _, tier := range slices.Sorted(maps.Keys(o.RunnerFor)) {
		if !slices.Contains(tiers, tier) {
			return choice, fmt.Errorf("runner_for names an unknown tier; the tiers are %s", text.List(tiers))
		}
		if !slices.Contains(choice.names, o.RunnerFor[tier]) {
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
