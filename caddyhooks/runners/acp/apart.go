package acp

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

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
	dir, home, _, err := a.Program.Folders()
	if err != nil {
		return reply, &engine.UnavailableError{Err: err}
	}
	once, err := a.FoldersForOnce(home, a.preset.config)
	if err != nil {
		return reply, &engine.UnavailableError{Err: err}
	}
	defer func() {
		if err := once.Remove(); err != nil {
			a.log.Error("folder of a turn not removed", zap.Error(err))
		}
	}()
	for name, text := range a.preset.settings {
		if _, err := os.Lstat(filepath.Join(once.Home, name)); errors.Is(err, fs.ErrNotExist) {
			if err := errors.Join(once.Write(name, []byte(text)), once.HandOver()); err != nil {
				return reply, err
			}
		}
	}
	place := agentFolders{dir: dir, home: once.Home, temp: once.Temp, more: make(map[string]string)}
	if a.Dir == "" {
		place.dir = once.Work
	}
	for name, folder := range a.preset.shared {
		place.more[name] = filepath.Join(home, folder)
	}
	agent, err := a.startAgent(place, processKind{permit: a.Permit, isolated: turn.Isolated(), folder: a.PlaceDir()}, 1)
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
