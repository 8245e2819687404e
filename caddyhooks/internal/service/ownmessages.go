package service

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// ownMessages knows how services name the channels of an instance, so that an answer does not come back as an event. Each service is asked
// in the background, as soon as there is a hook that takes its events, and again after failures. No request waits for that.
type ownMessages struct {
	channels map[string][]*channelAuthors // by the name of the service
	log      *zap.Logger

	mu      sync.Mutex
	learn   func(*channelAuthors) // asks in the background; nil before the start and after the end
	stop    context.CancelFunc
	ended   bool
	pending sync.WaitGroup
}

// channelAuthors are the ids of whoever posts for a channel.
type channelAuthors struct {
	name   string
	config []byte // as JSON
	asked  engine.AuthorChannel
	begun  bool // guarded by the mutex of ownMessages
	ids    atomic.Pointer[[]string]
}

func newOwnMessages(channels map[string]engine.Channel, configs map[string]json.RawMessage, log *zap.Logger) *ownMessages {
	o := &ownMessages{channels: make(map[string][]*channelAuthors), log: log}
	for name, channel := range channels {
		if asked, ok := channel.(engine.AuthorChannel); ok {
			service := settings.ServiceOf(channel)
			o.channels[service] = append(o.channels[service], &channelAuthors{name: name, config: configs[name], asked: asked})
		}
	}
	return o
}

// inherit takes over what the configuration of before knew about channels that are still the same. They are asked all the same.
func (o *ownMessages) inherit(before *ownMessages) {
	for service, channels := range o.channels {
		for _, c := range channels {
			for _, was := range before.channels[service] {
				if was.name == c.name && bytes.Equal(was.config, c.config) {
					c.ids.Store(was.ids.Load())
				}
			}
		}
	}
}

// begin asks the services whose events hooks take.
func (o *ownMessages) begin(hooks map[string]*settings.Hook) {
	ctx, stop := context.WithCancel(context.Background())
	o.mu.Lock()
	if o.stop = stop; o.ended {
		stop()
	} else {
		o.learn = func(c *channelAuthors) { o.pending.Go(func() { c.learn(ctx, o.log) }) }
	}
	o.mu.Unlock()
	for _, h := range hooks {
		if h.Auth.Scheme != nil {
			o.ask(o.channels[h.Auth.Name])
		}
	}
}

// end stops asking, and waits for it.
func (o *ownMessages) end() {
	o.mu.Lock()
	if o.stop != nil {
		o.stop()
	}
	o.learn, o.ended = nil, true
	o.mu.Unlock()
	o.pending.Wait()
}

// ask begins to ask for the ids of channels, unless that was done before.
func (o *ownMessages) ask(channels []*channelAuthors) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range channels {
		if !c.begun && o.learn != nil {
			c.begun = true
			o.learn(c)
		}
	}
}

const (
	firstAuthorPause = time.Second
	longAuthorPause  = 5 * time.Minute
	authorPatience   = 30 * time.Second
)

// learn asks until there is an answer.
func (c *channelAuthors) learn(ctx context.Context, log *zap.Logger) {
	for pause := firstAuthorPause; ; pause = min(2*pause, longAuthorPause) {
		asking, done := context.WithTimeout(ctx, authorPatience)
		ids, err := c.asked.Authors(asking)
		done()
		if err == nil {
			c.ids.Store(&ids)
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("cannot tell the channel's own messages yet; will ask again", zap.String("channel", c.name), zap.Error(err),
			zap.Duration("pause", pause))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Owner returns the channel that an author is, "" if it is none. unsure names a channel of which that is not known yet.
func (o *ownMessages) Owner(author settings.EventAuthor) (channel, unsure string) {
	channels := o.channels[author.Service]
	for _, c := range channels {
		ids := c.ids.Load()
		if ids == nil {
			unsure = c.name
			o.ask(channels)
			continue
		}
		if slices.ContainsFunc(author.IDs, func(id string) bool { return slices.Contains(*ids, id) }) {
			return c.name, ""
		}
	}
	return "", unsure
}
