package engine

import (
	"context"
	"time"
)

// bridge sends what is said in a turn of this engine to other nodes, on which somebody follows its run.
type bridge struct {
	voice  *voice
	cancel context.CancelFunc
	asked  uint64        // as Streams.Wanted had it; under the lock of the streams
	again  chan struct{} // somebody asked again

	// Of the goroutine that sends.
	turn int64 // that is being sent, 0 to begin with
	sent int   // of its text
}

const (
	// bridgePatience is how long a frame may take, and how long the end of a run waits for what was said before it.
	bridgePatience = time.Second
	// bridgeBeat is after how long a frame without a text shows a node that it misses those before it.
	bridgeBeat = 5 * time.Second
)

// passOn keeps up bridges for runs that other nodes follow, until the last turn is over.
func (e *Engine) passOn() {
	for {
		select {
		case <-e.base.Done():
			return
		case <-e.store.Streams().Asked():
			e.protect("asking for streams", func() { e.streams.want(e.store.Streams().Wanted()) })
		}
	}
}

// want has a bridge for each run that other nodes follow and that is carried out here.
func (all *streams) want(wanted map[string]uint64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.wanted = wanted
	for id, b := range all.bridges {
		if _, ok := wanted[id]; !ok {
			b.cancel()
			delete(all.bridges, id)
		}
	}
	for id, asked := range wanted {
		if b := all.bridges[id]; b != nil {
			if b.asked != asked {
				b.asked = asked
				signal(b.again)
			}
			continue
		}
		if s := all.runs[id]; s != nil {
			if v := s.speaker(); v != nil {
				all.build(v, asked)
			}
		}
	}
}

// build starts a bridge for a turn. It is called under the lock.
func (all *streams) build(v *voice, asked uint64) {
	if all.stopped {
		return
	}
	v.listen()
	ctx, cancel := context.WithCancel(context.Background())
	b := &bridge{voice: v, cancel: cancel, asked: asked, again: make(chan struct{}, 1)}
	all.bridges[v.stream.id] = b // one for an earlier turn ends by itself
	all.watchers.Go(func() {
		defer cancel()
		all.engine.protect("sending what was said to other nodes", func() { b.send(ctx) })
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.bridges[v.stream.id] == b {
			delete(all.bridges, v.stream.id)
		}
	})
}

// send sends all that is said until the turn is over, or ctx is done.
func (b *bridge) send(ctx context.Context) {
	store := b.voice.stream.streams.engine.store.Streams()
	beat := time.NewTicker(bridgeBeat)
	defer beat.Stop()
	for ctx.Err() == nil {
		frame, found, news := b.next()
		if found {
			b.sendFrame(ctx, store, frame)
			if frame.Over {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-news:
		case <-beat.C:
			b.sendFrame(ctx, store, Frame{Turn: b.turn, At: b.sent, Said: b.sent})
		case <-b.again:
			b.turn, b.sent = 0, 0
		}
	}
}

// sendFrame sends a frame if that can be done soon. A node that misses it asks again.
func (b *bridge) sendFrame(ctx context.Context, store Streams, frame Frame) {
	ctx, stop := context.WithTimeout(ctx, bridgePatience)
	defer stop()
	_ = store.Send(ctx, b.voice.stream.id, frame)
}

// next returns a frame that is to be sent now, or what tells when there may be one.
func (b *bridge) next() (frame Frame, found bool, news <-chan struct{}) {
	s := b.voice.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.over != nil || s.voice != b.voice
	if s.turn == 0 || s.over == nil && over { // another turn may have begun
		return Frame{Turn: b.turn, At: b.sent, Said: b.sent, Over: true}, true, nil
	}
	begins := b.turn != s.turn
	if begins {
		b.turn, b.sent = s.turn, 0
		s.told = s.text.Len()
	}
	frame = Frame{Turn: b.turn, At: b.sent, Said: s.told, Text: s.text.String()[b.sent:s.told]}
	if len(frame.Text) > MaxFrameText {
		frame.Text = frame.Text[:MaxFrameText]
	}
	b.sent += len(frame.Text)
	frame.Over = over && b.sent == s.told
	if begins || frame.Text != "" || frame.Over {
		return frame, true, nil
	}
	return frame, false, s.wait()
}

// receive adds what another node sent, and reports whether something before it is missing.
func (s *stream) receive(frame Frame) (missing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.voice != nil || s.over != nil:
		return false
	case frame.Turn > s.last:
		if frame.At > 0 {
			return true
		}
		s.begin(frame.Turn)
	case frame.Turn != s.turn:
		return false // of an earlier turn
	}
	s.said = max(s.said, frame.Said)
	have := s.text.Len()
	if frame.At > have {
		return true
	}
	if more := have - frame.At; more < len(frame.Text) {
		s.add(frame.Text[more:])
	}
	return false
}

// receiveRest waits a moment for what was said on another node before a run ended.
func (s *stream) receiveRest(ctx context.Context, frames <-chan Frame) {
	s.mu.Lock()
	elsewhere := s.voice == nil && s.turn != 0 && s.over == nil
	s.mu.Unlock()
	if !elsewhere {
		return
	}
	ctx, stop := context.WithTimeout(ctx, bridgePatience)
	defer stop()
	for {
		select {
		case frame := <-frames:
			s.receive(frame)
			if frame.Over {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
