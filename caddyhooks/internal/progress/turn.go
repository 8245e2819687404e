package progress

import (
	"context"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// turn is what is posted about the runs of one turn.
type turn []*message

// message is one that is posted, or is being posted, about a run.
type message struct {
	keeper  *Keeper
	run     string
	channel engine.ProgressChannel
	text    string

	mu     sync.Mutex
	posted posted
	isDone bool // its run has ended
	filled bool // a delivery takes its place
}

// Begin posts a message in each chat that answers of the runs go to.
func (k *Keeper) Begin(runs []*engine.Run, chats Chats) engine.TurnProgress {
	var all turn
	for _, run := range runs {
		if run.Channel == "" || all.has(run) {
			continue
		}
		text, channel := chats.ProgressText(run), chats.ProgressChannel(run.Channel)
		if text == "" || channel == nil {
			continue
		}
		m := &message{keeper: k, run: run.ID, channel: channel, text: text, posted: posted{Channel: run.Channel, To: run.To}}
		all = append(all, m)
		k.start(run.Channel, m.post, false)
	}
	if all == nil {
		return nil
	}
	return all
}

func (t turn) has(run *engine.Run) bool {
	for _, m := range t {
		if m.posted.Channel == run.Channel && m.posted.To == run.To {
			return true
		}
	}
	return false
}

// post posts the message, unless an earlier attempt of the run did.
func (m *message) post(ctx context.Context) {
	k := m.keeper
	before, revision, err := k.find(ctx, m.run)
	if err != nil {
		k.note("reading", m.run, m.posted.Channel, err)
		return
	}
	isKnown := revision > 0 && before.Channel == m.posted.Channel && before.To == m.posted.To
	now := before
	if !isKnown {
		now = posted{Channel: m.posted.Channel, To: m.posted.To, At: time.Now()}
		now.Progress, err = m.channel.Begin(ctx, now.To, m.text)
		k.note("posting", m.run, now.Channel, err)
		if err != nil || now.Progress == "" || len(now.Progress) > engine.MaxProgress {
			return
		}
		// Before it is known here: whoever knows of it may forget the document.
		k.note("storing", m.run, now.Channel, k.remember(ctx, m.run, now))
	}
	m.mu.Lock()
	m.posted.Progress = now.Progress
	isDone := m.isDone
	m.mu.Unlock()
	if isDone { // without it
		m.finish(ctx)
	}
}

// finish removes the message, unless a delivery takes its place.
func (m *message) finish(ctx context.Context) {
	m.mu.Lock()
	posted, filled := m.posted, m.filled
	m.mu.Unlock()
	if !filled {
		m.keeper.withdraw(ctx, m.channel, m.run, posted)
	}
	m.keeper.forget(ctx, m.run)
}

// Fill notes in deliveries what they are to replace.
func (t turn) Fill(deliveries []*engine.Delivery) {
	for _, m := range t {
		m.mu.Lock()
		for _, d := range deliveries {
			if m.posted.Progress != "" && d.Channel == m.posted.Channel && d.To == m.posted.To {
				d.Progress, m.filled = m.posted.Progress, true
			}
		}
		m.mu.Unlock()
	}
}

// Done removes the messages that no delivery takes the place of. One that is still being posted is removed when it is there.
func (t turn) Done() {
	for _, m := range t {
		m.mu.Lock()
		m.isDone = true
		isPosted := m.posted.Progress != ""
		m.mu.Unlock()
		if isPosted {
			m.keeper.start(m.posted.Channel, m.finish, true)
		}
	}
}
