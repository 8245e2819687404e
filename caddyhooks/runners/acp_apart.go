package runners

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	fresh, err := a.throwAway(home)
	if err != nil {
		return reply, fmt.Errorf("making a home for a turn without memory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	if a.Dir == "" {
		dir = filepath.Join(fresh, "work")
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
	agent, err := a.startAgentWith(dir, a.Program.environment(filepath.Join(fresh, "home"), filepath.Join(fresh, "tmp"), env), 1)
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

// throwAway makes folders for one turn, with copies of the files that the agent cannot do without.
func (a *ACP) throwAway(home string) (fresh string, err error) {
	const mode = 0o700
	if err := os.MkdirAll(a.place, mode); err != nil {
		return "", err
	}
	if fresh, err = os.MkdirTemp(a.place, "once-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(fresh))
		}
	}()
	for _, name := range []string{"home", "tmp", "work"} {
		if err := os.Mkdir(filepath.Join(fresh, name), mode); err != nil {
			return "", err
		}
	}
	for _, name := range a.preset.config {
		if err := copyConfig(filepath.Join(home, name), filepath.Join(fresh, "home", name)); err != nil {
			return "", err
		}
	}
	return fresh, nil
}

// copyConfig copies a file of settings, if it is there.
func copyConfig(from, to string) error {
	const most, dirMode, fileMode = 1 << 20, 0o700, 0o600
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return fmt.Errorf("%s is no file of settings", from)
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(to), dirMode); err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, io.LimitReader(source, most))
	return errors.Join(err, target.Close())
}

// runOnce has another program of the agent carry out a turn without memory.
func (a *ACP) runOnce(ctx context.Context, turn *engine.Turn) (engine.Reply, error) {
	if a.once == nil {
		return a.runApart(ctx, turn)
	}
	return a.once.Run(ctx, *turn)
}
