package service

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// progressChats says what the hooks of an instance say while a run is carried out.
type progressChats struct{ in *Instance }

// Begin is called when runs are started in one turn.
func (p progressChats) Begin(runs []*engine.Run) engine.TurnProgress {
	return p.in.Service.progress.Begin(runs, p)
}

// Ended is called after a run has ended without a turn.
func (p progressChats) Ended(run *engine.Run) { p.in.Service.progress.Ended(run, p) }

// ProgressText is what the hook of a run says now, "" if it says nothing, or is gone.
func (p progressChats) ProgressText(run *engine.Run) string {
	hook := p.in.Active.Load().Hooks[run.Hook]
	if hook == nil || !allowsChat(&p.in.Compiler, p.in.Rules.Channels[run.Channel], run.Hook, run.To) {
		return ""
	}
	return hook.Progress
}

// ProgressChannel finds a channel that can say it.
func (p progressChats) ProgressChannel(name string) engine.ProgressChannel {
	channel, _ := p.in.Rules.Channels[name].(engine.ProgressChannel)
	return channel
}
