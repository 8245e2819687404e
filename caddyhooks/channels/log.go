package channels

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

func init() {
	caddy.RegisterModule(Log{})
}

// Log is a channel that writes answers to Caddy's log, as the logger hooks.channels.log. A chat is any name
// that can be printed.
type Log struct {
	Recipients

	log *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Log) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.log",
		New: func() caddy.Module { return new(Log) },
	}
}

// Provision sets up the channel.
func (l *Log) Provision(ctx caddy.Context) error {
	l.log = ctx.Logger()
	return l.provisionRecipients("log", l.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> log {
//		allow_to <to>...
//	}
func (l *Log) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return caddyconf.ReadBlock(d, "the log channel", l.allowDirective(l.ValidTo))
}

// ValidTo takes any name that can be printed.
func (*Log) ValidTo(to string) error { return checkChatName(to) }

// Send writes the answer to the log.
func (l *Log) Send(_ context.Context, d *engine.Delivery) error {
	l.log.Info("answer", zap.String("to", d.To), zap.String("run_id", d.RunID), zap.String("text", d.Body))
	return nil
}

// Ask writes a question to the log, without its link: whoever may read the log may not answer.
func (l *Log) Ask(_ context.Context, to string, question engine.ChannelQuestion) (string, error) {
	l.log.Info("question", zap.String("to", to), zap.String("question_id", question.ID), zap.String("text", question.Text),
		zap.Strings("choices", question.Choices))
	return question.ID, nil
}

// Close writes to the log what became of a question.
func (l *Log) Close(_ context.Context, to, posted, text string) error {
	l.log.Info("question closed", zap.String("to", to), zap.String("question_id", posted), zap.String("text", text))
	return nil
}

// Interface guards
var (
	_ engine.QuestionChannel = (*Log)(nil)
	_ engine.Channel         = (*Log)(nil)
	_ caddy.Provisioner      = (*Log)(nil)
	_ caddyfile.Unmarshaler  = (*Log)(nil)
)
