package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// carryOut carries out a turn. Its errors may show a secret.
func (c *Command) carryOut(ctx context.Context, turn *engine.Turn) (engine.Reply, error) {
	if err := ctx.Err(); err != nil {
		return engine.Reply{}, err
	}
	t, err := c.newTurn(turn)
	if err != nil {
		return engine.Reply{}, &engine.UnavailableError{Err: err}
	}
	defer t.removeFiles()
	if c.preset != nil {
		return c.runPreset(ctx, t)
	}
	call := programCall{args: c.args}
	if call.stdin, err = c.stdinFor(turn); err != nil {
		return engine.Reply{}, err
	}
	var text string
	exit, err := t.run(ctx, call, func(output io.Reader) (err error) {
		text, err = c.reply.read(output, turn.Emit)
		return err
	})
	if failure := c.exitError(exit); failure != nil && !outputError(err) {
		return engine.Reply{}, failure
	}
	switch {
	case ctx.Err() != nil:
		return engine.Reply{}, answers.CutShort(err, exit.stderr)
	case err != nil:
		return engine.Reply{}, withStderr(err, exit.stderr)
	}
	return engine.Reply{Text: text}, nil
}

func (c *Command) stdinFor(turn *engine.Turn) (string, error) {
	if c.Stdin == stdinJSON {
		body, err := turns.Encode(turn, nil)
		return string(body), err
	}
	return turns.WithSystem(turn, turn.Message), nil
}

// withStderr adds what the program wrote to its standard error, where it usually says why there is no answer.
func withStderr(err error, stderr string) error {
	if errors.Is(err, errNoOutput) {
		return &answers.Error{Problem: err.Error(), Text: stderr}
	}
	return err
}

// exitError says why a program without a preset has failed, nil if it has not.
func (c *Command) exitError(exit programExit) error {
	if exit.how == nil {
		return nil
	}
	failure := &answers.Error{Problem: "the program " + programs.ExitText(exit.how), Text: exit.stderr}
	switch code := exit.how.Code; {
	case slices.Contains(c.BusyOn, code):
		failure.Problem += ", which busy_on has"
		return &engine.UnavailableError{Busy: true, Err: failure}
	case code == 0, code > 0 && len(c.FailOn) > 0 && !slices.Contains(c.FailOn, code):
		return nil
	}
	return failure
}

// programTurn is a turn for which programs are started, one after the other if there are several.
type programTurn struct {
	runner          *Command
	turn            *engine.Turn
	dir, home, temp string
	files           string                // a folder for this turn, "" until it is needed
	release         func()                // of files
	system          string                // a file, "" without instructions
	schema          string                // a file, "" without a schema
	once            *programs.OnceFolders // of a turn without memory, nil until they are needed
	started         bool
}

// newTurn prepares a turn. No program has been started if it fails.
func (c *Command) newTurn(turn *engine.Turn) (t *programTurn, err error) {
	t = &programTurn{runner: c, turn: turn}
	if t.dir, t.home, t.temp, err = c.Folders(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.removeFiles()
		}
	}()
	if !turn.Memory() {
		if err := t.makeOnce(); err != nil {
			return nil, err
		}
	}
	if system := turns.SystemText(turn, nil); system != "" {
		if t.system, err = t.writeFile("system.txt", []byte(system)); err != nil {
			return nil, err
		}
	}
	if turn.ResponseSchema != nil {
		if t.schema, err = t.writeFile("schema.json", turn.ResponseSchema); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// makeOnce makes folders for a turn without memory, if it needs some: one to work in, so that what it writes is for no other turn, and
// a home for a program that cannot be asked to forget.
func (t *programTurn) makeOnce() error {
	c := t.runner
	var config []string
	if c.preset != nil {
		config = c.preset.config
	}
	if c.Dir != "" && config == nil {
		return nil
	}
	once, err := c.FoldersForOnce(t.home, config)
	if err != nil {
		return err
	}
	t.once = &once
	if c.Dir == "" {
		t.dir = once.Work
	}
	return nil
}

// writeFile makes a file that the program can read, and nobody else. Another user cannot change the folder that it is in, nor the one
// around that: in the place of either, or of the file, it could put a link to what Caddy may write.
func (t *programTurn) writeFile(name string, data []byte) (path string, err error) {
	const private, passage = 0o600, 0o711
	as, err := t.runner.Owner()
	if err != nil {
		return "", err
	}
	if t.files == "" {
		around := t.temp
		if as != nil && around == filepath.Join(t.runner.PlaceDir(), "tmp") { // which is that user's
			around = t.runner.PlaceDir()
		}
		if t.files, t.release, err = programs.MakeTurnFolder(around, programs.TurnFolder); err != nil {
			return "", err
		}
		if as != nil {
			if err := os.Chmod(t.files, passage); err != nil {
				return "", err
			}
		}
	}
	path = filepath.Join(t.files, name)
	if err := os.WriteFile(path, data, private); err != nil {
		return "", err
	}
	if as != nil {
		err = as.Give(path)
	}
	return path, err
}

func (t *programTurn) removeFiles() {
	if t.files != "" {
		_ = os.RemoveAll(t.files) // below a folder of the runner's own
		t.release()
	}
	if t.once != nil {
		if err := t.once.Remove(); err != nil {
			t.runner.log.Error("folder of a turn not removed", zap.Error(err))
		}
	}
}

// turnVariables are the variables that tell a program of the turn.
func (t *programTurn) turnVariables() map[string]string {
	turn := t.turn
	facts := map[string]string{
		"HOOKS_RUN_ID": turn.RunID, "HOOKS_CHAT_ID": turn.ChatID, "HOOKS_HOOK": turn.Hook, "HOOKS_ACTION": string(turn.Action),
		"HOOKS_TIER": turn.Tier, "HOOKS_MEMORY_PRESET": turn.MemoryPreset, "HOOKS_PHASE": turns.Phase(turn),
		"HOOKS_DEADLINE": turn.Deadline.UTC().Format(time.RFC3339),
	}
	if t.system != "" {
		facts["HOOKS_SYSTEM_FILE"] = t.system
	}
	if t.schema != "" {
		facts["HOOKS_SCHEMA_FILE"] = t.schema
	}
	if turn.TraceParent != "" {
		facts["TRACEPARENT"] = turn.TraceParent
	}
	for name, value := range facts {
		facts[name] = strings.ReplaceAll(value, "\x00", "") // which no variable can hold
	}
	return facts
}

// programCall is one start of a program.
type programCall struct {
	args  []string
	env   map[string]string // more variables; the operator's go before them
	stdin string
}

// programExit is how a program ended.
type programExit struct {
	how    *supervise.Exit // nil if it did not start
	stderr string
}

// run starts a program, has its output read, and waits until nothing of it is left. The error is why the output cannot be used: that
// of read, or that of ctx if it is done. A program that could not be started makes an UnavailableError.
func (t *programTurn) run(ctx context.Context, call programCall, read func(output io.Reader) error) (programExit, error) {
	c := t.runner
	facts := t.turnVariables()
	for name, value := range call.env {
		if _, ok := c.Variables()[name]; !ok {
			facts[name] = value
		}
	}
	process, err := supervise.Start(supervise.Program{
		Args: call.args, Env: c.Environment(t.home, t.temp, facts), Dir: t.dir, User: c.User, Turn: turns.Key(t.turn) + ":" + uuid.NewString(),
	})
	if err != nil {
		return programExit{}, &engine.UnavailableError{Err: fmt.Errorf("starting the program: %w", err)}
	}
	programs.ProcessWarnings.Started(c.log, process)
	if t.turn.Sent != nil && !t.started {
		t.turn.Sent()
	}
	t.started = true

	stopped := make(chan struct{})
	cancelStop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		process.Stop(programs.StopGrace)
	})
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(process.Stdin, call.stdin) // a program need not read all of it
		_ = process.Stdin.Close()
	}()

	most := int64(c.MaxOutput)
	if most == 0 {
		most = c.usualOutput()
	}
	err = read(&boundedOutput{process.Stdout, most})
	if outputError(err) {
		_ = process.Stdout.Close()
		process.Stop(programs.StopGrace)
	}
	<-process.Done()
	if !cancelStop() {
		<-stopped
	}
	_ = process.Stdout.Close()
	_ = process.Stdin.Close()
	<-written
	programs.ProcessWarnings.Ended(c.log, process, zap.String("run_id", t.turn.RunID))
	exit := process.Exit()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return programExit{&exit, process.Stderr()}, err
}

const (
	defaultOutput       = 8 << 20
	defaultPresetOutput = 64 << 20
)

func (c *Command) usualOutput() int64 {
	if c.preset != nil {
		return defaultPresetOutput
	}
	return defaultOutput
}

// outputError reports whether an error goes before what the exit code says: the program was stopped because of it.
func outputError(err error) bool {
	return err != nil && !errors.Is(err, errNoOutput)
}
