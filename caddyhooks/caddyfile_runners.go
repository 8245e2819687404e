package caddyhooks

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

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
//	runner [<name>] <module> [<arg>...] { … }
func (l *runnerLines) unmarshalRunner(d *caddyfile.Dispenser) error {
	place := *d
	name := settings.UnnamedRunner
	// The first word is a name if the second one is a kind of runner, unless it is one itself.
	ahead := *d
	if words := ahead.RemainingArgs(); len(words) > 1 && !slices.Contains(settings.RunnerModules(), words[0]) &&
		slices.Contains(settings.RunnerModules(), words[1]) {
		d.NextArg()
		name = d.Val()
	}
	if err := settings.CheckRunnerName(name); err != nil {
		return place.WrapErr(err)
	}
	h := l.handler
	if _, ok := h.RunnersRaw[name]; ok {
		if name == settings.UnnamedRunner {
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
		if !slices.Contains(settings.Tiers, tier) {
			return place.Errf("'%s' is not a tier; the tiers are %s", tier, strings.Join(settings.Tiers, ", "))
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
			return line.place.Errf("runner_for names no runner that is configured here; there %s", settings.AreListed(names))
		}
	}
	if _, ok := h.RunnersRaw[settings.UnnamedRunner]; !ok && len(names) > 1 {
		h.DefaultRunner = l.first
	}
	return nil
}
