package runners

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// runApart carries out a turn in a process of its own, with a home that is gone afterwards: nothing of the turn is left that a
// later one could recall.
func (a *ACP) runApart(ctx context.Context, turn *engine.Turn) (reply engine.Reply, err error) {
	select {
	case a.pool.apart <- struct{}{}:
		defer func() { <-a.pool.apart }()
	case <-ctx.Done():
		return reply, ctx.Err()
	}
	dir, home, _, err := a.Program.folders()
	if err != nil {
		return reply, &engine.UnavailableError{Err: err}
	}
	once, err := a.foldersForOnce(home, a.preset.config)
	if err != nil {
		return reply, &engine.UnavailableError{Err: err}
	}
	defer func() { err = errors.Join(err, once.remove()) }()
	for name, text := range a.preset.settings {
		if _, err := os.Lstat(filepath.Join(once.home, name)); errors.Is(err, fs.ErrNotExist) {
			if err := errors.Join(once.write(name, []byte(text)), once.handOver()); err != nil {
				return reply, err
			}
		}
	}
	place := acpPlace{dir: dir, home: once.home, temp: once.temp, more: make(map[string]string)}
	if a.Dir == "" {
		place.dir = once.work
	}
	for name, folder := range a.preset.shared {
		place.more[name] = filepath.Join(home, folder)
	}
	agent, err := a.startAgent(place, acpProcessKind{permit: a.Permit, isolated: turn.Isolated(), folder: a.placeDir()}, 1)
	if err != nil {
		return reply, a.pool.unavailable(err)
	}
	defer func() {
		agent.client.Close(errNotNeeded)
		agent.stop()
	}()
	go agent.initialize() //nolint:gosec // it ends with the process, which ends below
	if err := agent.awaitReady(ctx); err != nil {
		return reply, err
	}
	if agent.failure != nil {
		return reply, a.pool.unavailable(agent.failure)
	}
	return a.runWith(ctx, turn, agent, "")
}
