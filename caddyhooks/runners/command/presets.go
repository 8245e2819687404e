package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// programPreset is a program that is known here. Its file says how it is called, and what its output means.
type programPreset struct {
	program string // its usual name

	// config are the files below HOME that a turn without memory gets copies of, in a home that is gone afterwards. It is nil for a
	// program that can be asked to forget.
	config []string

	// call returns how the program is started for a turn.
	call func(c *Command, p *presetTurn) (programCall, error)

	// newReader returns what reads the output of one start.
	newReader func(p *presetTurn) presetReader
}

// A presetReader reads what a program writes.
type presetReader interface {
	// line reads a line of the output, which is valid until line returns.
	line(data []byte) error

	// end says what came of it. The program has ended by itself.
	end(exit programExit) presetEnd
}

// presetEnd is what came of one start.
type presetEnd struct {
	reply engine.Reply
	err   error
	said  string // last, about a failure; "" if it is for the standard error to say

	// The program did nothing, as it does not know the session or does not take the schema. It can be started again without.
	lostSession   bool
	refusedSchema bool
}

// presetTurn is a turn of a program that is known here.
type presetTurn struct {
	*programTurn
	model    string // "" for the program's own
	session  string // a UUID: the conversation to go on with, "" for a new one
	before   string // what the preset noted about that conversation
	noSchema bool   // the program does not get the schema
}

// programPresets are the presets by name. To add one, write a file with its call and its reader, and a line here.
var programPresets = map[string]*programPreset{
	"claude": claudePreset,
	"codex":  codexPreset,
	"gemini": geminiPreset,
}

func presetNames() []string { return slices.Sorted(maps.Keys(programPresets)) }

// NewOneShot is a runner for turns that another runner cannot carry out itself: those without memory, and repairs. args are the
// program and its arguments, or nothing for the usual program. Its folders are those of Place, which the caller calls.
func NewOneShot(preset string, program programs.Program, models models.ByTier, args []string, log *zap.Logger) (*Command, error) {
	c := &Command{Preset: preset, Program: program, ByTier: models, Args: args}
	if err := c.provision(log); err != nil {
		return nil, err
	}
	return c, nil
}

// runPreset carries out a turn with a program that is known here.
func (c *Command) runPreset(ctx context.Context, t *programTurn) (engine.Reply, error) {
	session, err := turns.Session(ctx, t.turn)
	if err != nil {
		return engine.Reply{}, err
	}
	p := &presetTurn{programTurn: t, model: c.For(t.turn)}
	p.session, p.before, _ = strings.Cut(session, " ")
	renewed := false
	if p.session != "" && uuid.Validate(p.session) != nil { // it could be read as an option
		p.session, renewed = "", true
	}
	for {
		end := c.startPreset(ctx, p)
		end.reply.SessionRenewed = renewed
		if !t.turn.Memory() {
			end.reply.Session = ""
		}
		switch {
		case end.err == nil || ctx.Err() != nil:
			return end.reply, end.err
		case end.lostSession && p.session != "":
			p.session, renewed = "", true
		case end.refusedSchema && !p.noSchema:
			p.noSchema = true
		default:
			return end.reply, end.err
		}
	}
}

func (c *Command) startPreset(ctx context.Context, p *presetTurn) presetEnd {
	call, err := c.preset.call(c, p)
	if err != nil {
		return presetEnd{err: err}
	}
	reader := c.preset.newReader(p)
	exit, err := p.run(ctx, call, func(output io.Reader) error { return readLines(output, reader.line) })
	if exit.how == nil {
		return presetEnd{err: err}
	}
	end := reader.end(exit)
	switch {
	case ctx.Err() != nil: // it was stopped, and may still have ended well; the session is worth keeping
		end.err, end.reply.Text = answers.CutShort(err, cmp.Or(end.said, exit.stderr)), ""
	case err != nil:
		end.err, end.reply.Text = err, ""
	case slices.Contains(c.BusyOn, exit.how.Code):
		end.err = c.exitError(exit)
	}
	var unavailable *engine.UnavailableError
	if errors.As(end.err, &unavailable) {
		end.reply.Session = "" // the next try begins without this message in its past
	}
	return end
}

// checkAnswer checks the text of an answer.
func checkAnswer(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errNotUTF8
	}
	a := new(growingAnswer)
	if err := a.add(text); err != nil {
		return "", err
	}
	return a.whole()
}

// reportEach makes reports of models that a program tells of by their names, at most as many as a run may have.
func reportEach[T any](models map[string]T, of func(T) usage.Report) (reports []usage.Report) {
	for _, model := range slices.Sorted(maps.Keys(models)) {
		report := of(models[model])
		report.Model = model
		if !report.IsEmpty() && len(reports) < usage.MaxModels {
			reports = append(reports, report)
		}
	}
	return reports
}
