package service

import (
	"context"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// logStart tells in one line what was started: whether webhooks are on, and what they work with. queued is the number of runs
// that waited by then, negative if it is not known.
func (in *Instance) logStart(reload bool, active *settings.Active, queued int) {
	message := "hooks started"
	if reload {
		message = "hooks reloaded"
	}
	fields := append([]zap.Field{zap.String("path", in.Path)}, onOrOff(active)...)
	if active.On {
		by := "saved"
		if in.Pinned.Enabled != nil {
			by = "config"
		}
		fields = append(fields, zap.String("enabled_by", by))
	}
	fields = append(fields,
		zap.Int("hooks", len(active.Hooks)),
		zap.String("runner", in.describeRunners()),
		zap.String("store", in.describeStore()))
	if queued >= 0 {
		fields = append(fields, zap.Int("queued", queued))
	}
	in.Log.Info(message, fields...)
}

// onOrOff tells in the log whether webhooks are on, and why not.
func onOrOff(a *settings.Active) []zap.Field {
	if a.On {
		return []zap.Field{zap.Bool("on", true)}
	}
	return []zap.Field{zap.Bool("on", false), zap.String("off_because", a.OffBecause)}
}

// countQueued is the number of runs that wait, negative if the store does not tell.
func (s *Service) countQueued() int {
	ctx, stop := context.WithTimeout(context.Background(), StorePatience)
	defer stop()
	n, err := s.Engine.Queued(ctx)
	if err != nil {
		return -1
	}
	return n
}

// describeRunners names the runners as a Caddyfile does, the default one first, with the addresses of those that tell one.
func (in *Instance) describeRunners() string {
	config := &in.EngineConfig
	if len(config.Runners) == 0 {
		return "none"
	}
	described := []string{describeRunner(config.Runners[config.DefaultRunner])}
	if len(config.Runners) == 1 {
		return described[0]
	}
	described[0] = config.DefaultRunner + " " + described[0]
	for _, name := range in.Rules.Runners.Names {
		if name != config.DefaultRunner {
			described = append(described, name+" "+describeRunner(config.Runners[name]))
		}
	}
	return strings.Join(described, ", ")
}

func describeRunner(runner engine.Runner) string {
	described := moduleName(runner)
	if located, ok := runner.(interface{ Address() string }); ok {
		described += " " + located.Address()
	}
	return described
}

// describeStore names the store as a Caddyfile does, with its file or its place if it has one.
func (in *Instance) describeStore() string {
	name := moduleName(in.Opener)
	switch located := in.Opener.(type) {
	case interface{ File(instance string) string }:
		name += " " + located.File(in.Name)
	case interface{ Place(instance string) string }:
		name += " " + located.Place(in.Name)
	}
	return name
}

func moduleName(guest any) string {
	if module, ok := guest.(caddy.Module); ok {
		return module.CaddyModule().ID.Name()
	}
	return ""
}
