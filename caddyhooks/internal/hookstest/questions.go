package hookstest

import (
	"context"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

// AskBeforeStart lets the default instance, which has had no request yet, ask a question before a run starts, unless ask returns nil. It
// lasts until the next reload.
func AskBeforeStart(ask func(run *engine.Run) *engine.Question) {
	in := service.Running.Find("default")
	in.EngineConfig.Questions = questioner(ask)
	detach := in.Detach
	in.Detach = in.Service.Engine.Attach(in.EngineConfig)
	detach()
}

// questioner asks before runs start, and nothing else.
type questioner func(run *engine.Run) *engine.Question

func (ask questioner) BeforeStart(_ context.Context, run *engine.Run) (*engine.Question, error) {
	return ask(run), nil
}
func (questioner) Started(context.Context, *engine.Run) error                   { return nil }
func (questioner) BeforeDelivery(*engine.Run, *engine.Outcome) *engine.Question { return nil }
func (questioner) FromAgent(_ *engine.Run, of engine.Ask) *engine.Question {
	return &engine.Question{Text: of.Text, Choices: of.Choices}
}
func (questioner) Later(string) *engine.Later { return nil }
func (questioner) Link(string) string         { return "" }
