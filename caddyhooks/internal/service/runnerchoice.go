package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// RunnerChoice checks the names of the runners.
func (o *Options) RunnerChoice() (settings.RunnerChoice, error) {
	choice := settings.RunnerChoice{Names: slices.Sorted(maps.Keys(o.RunnersRaw)), ByTier: o.RunnerFor, Fallback: o.DefaultRunner}
	for _, name := range choice.Names {
		if err := settings.CheckRunnerName(name); err != nil {
			return choice, err
		}
	}
	if choice.Fallback == "" {
		choice.Fallback = settings.UnnamedRunner
		if len(choice.Names) == 1 {
			choice.Fallback = choice.Names[0]
		}
	}
	if !slices.Contains(choice.Names, choice.Fallback) && (len(choice.Names) > 0 || o.DefaultRunner != "") {
		if o.DefaultRunner == "" {
			return choice, errors.New("with several runners, one must be called default, or default_runner must name one")
		}
		return choice, fmt.Errorf("default_runner names no runner that is configured here; there %s", settings.AreListed(choice.Names))
	}
	for _, tier := range slices.Sorted(maps.Keys(o.RunnerFor)) {
		if !slices.Contains(settings.Tiers, tier) {
			return choice, fmt.Errorf("runner_for names an unknown tier; the tiers are %s", text.List(settings.Tiers))
		}
		if !slices.Contains(choice.Names, o.RunnerFor[tier]) {
			return choice, fmt.Errorf("runner_for %s names no runner that is configured here; there %s", tier, settings.AreListed(choice.Names))
		}
	}
	return choice, nil
}
