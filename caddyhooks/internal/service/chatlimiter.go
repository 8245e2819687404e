package service

import (
	"context"
	"errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// limitedChannel is a channel that sends nothing to a chat that is not allowed. When a request comes in its chat is checked, but
// the run may be one of before, or one that is run again, or that of a live hook that was saved earlier. A hook of Caddy's configuration
// may name any chat, but not let requests choose it.
type limitedChannel struct {
	engine.Channel
	compiler *settings.Compiler
}

// limited returns the channel with its limit, if it has one.
func (in *Instance) limited(channel engine.Channel) engine.Channel {
	if _, ok := channel.(settings.ChatLimiter); !ok {
		return channel
	}
	limited := limitedChannel{channel, &in.Compiler}
	if asks, ok := channel.(engine.QuestionChannel); ok {
		return limitedQuestionChannel{limited, asks}
	}
	return limited
}

// limitedQuestionChannel is one that can ask questions. Their chats are the operator's word, and were checked when they were configured.
type limitedQuestionChannel struct {
	limitedChannel
	engine.QuestionChannel
}

var errChatNotAllowed = errors.New("the chat is not in allow_to of the channel, and no hook of Caddy's configuration names it")

// allowsChat reports whether a channel may send to a chat what runs of a hook answer.
func allowsChat(compiler *settings.Compiler, channel engine.Channel, hook, to string) bool {
	return settings.AllowsTo(channel, to) || compiler.NamesChat(hook)
}

// Send sends the answer, or a question that has no buttons.
func (c limitedChannel) Send(ctx context.Context, d *engine.Delivery) error {
	if d.Question == "" && !allowsChat(c.compiler, c.Channel, d.Hook, d.To) {
		return &engine.FinalError{Err: errChatNotAllowed}
	}
	return c.Channel.Send(ctx, d)
}

// Interface guards
var (
	_ engine.Channel         = limitedChannel{}
	_ engine.Channel         = limitedQuestionChannel{}
	_ engine.QuestionChannel = limitedQuestionChannel{}
)
