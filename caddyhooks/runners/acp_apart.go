package runners

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// runApart carries out a turn in a process of its own, with a home that is gone afterwards: nothing of the turn is left that a
// later one could recall.
func (a *ACP) runApart(ctx context.Context, turn *engine.Turn) (reply engine.Reply, err error) {
	dir, home, _, err := a.Program.folders()
	if err != nil {
		return reply, err
	}
	once, err := a.foldersForOnce(home, a.preset.config)
	if err != nil {
		return reply, err
	}
	defer func() { err = errors.Join(err, once.remove()) }()
	if a.Dir == "" {
		dir = once.work
	}
	env := make(map[string]string)
	for name, value := range a.preset.env {
		if _, ok := a.Program.env[name]; !ok {
			env[name] = value
		}
	}
	for name, folder := range a.preset.shared {
		if _, ok := a.Program.env[name]; !ok {
			env[name] = filepath.Join(home, folder)
		}
	}
	agent, err := a.startAgentWith(dir, a.Program.environment(once.home, once.temp, env), 1)
	if err != nil {
		return reply, a.pool.unavailable(err)
	}
	defer func() {
		agent.client.Close(errNotNeeded)
		agent.stop()
	}()
	go agent.initialize()
	select {
	case <-agent.ready:
	case <-ctx.Done():
		return reply, ctx.Err()
	}
	if agent.failure != nil {
		return reply, a.pool.unavailable(agent.failure)
	}
	return a.runWith(ctx, turn, agent, "")
}

// runOnce has another program of the agent carry out a turn without memory.
func (a *ACP) runOnce(ctx context.Context, turn *engine.Turn) (engine.Reply, error) {
	if a.once == nil {
		return a.runApart(ctx, turn)
	}
	return a.once.Run(ctx, *turn)
}
