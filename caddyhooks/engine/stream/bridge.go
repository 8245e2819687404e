package stream

import (
	"context"
	"time"
)

// bridge sends what is said in a turn of this engine to other nodes, on which somebody follows its run.
type bridge struct {
	writer *Writer
	cancel context.CancelFunc
	asked  uint64        // as Network.Wanted had it; under the lock of the hub
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

// PassOn keeps up bridges for runs that other nodes follow, until the last turn is over.
func (h *Hub) PassOn(last <-chan struct{}) {
	h.watchers.Go(func() {
		for {
			select {
			case <-last:
				return
			case <-h.node.Network.Asked():
				h.node.Protect("asking for streams", func() { h.want(h.node.Network.Wanted()) })
			}
		}
	})
}

// want has a bridge for each run that other nodes follow and that is carried out here.
func (h *Hub) want(wanted map[string]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = wanted
	for id, b := range h.bridges {
		if _, ok := wanted[id]; !ok {
			b.cancel()
			delete(h.bridges, id)
		}
	}
	for id, asked := range wanted {
		if b := h.bridges[id]; b != nil {
			if b.asked != asked {
				b.asked = asked
				signal(b.again)
			}
			continue
		}
		if s := h.runs[id]; s != nil {
			if w := s.currentWriter(); w != nil {
				h.build(w, asked)
			}
		}
	}
}

// build starts a bridge for a turn. It is called under the lock.
func (h *Hub) build(w *Writer, asked uint64) {
	if h.stopped {
		return
	}
	w.listen()
	ctx, cancel := context.WithCancel(context.Background())
	b := &bridge{writer: w, cancel: cancel, asked: asked, again: make(chan struct{}, 1)}
	h.bridges[w.stream.id] = b // one for an earlier turn ends by itself
	h.watchers.Go(func() {
		defer cancel()
		h.node.Protect("sending what was said to other nodes", func() { b.send(ctx) })
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.bridges[w.stream.id] == b {
			delete(h.bridges, w.stream.id)
		}
	})
}

// send sends all that is said until the turn is over, or ctx is done.
func (b *bridge) send(ctx context.Context) {
	network := b.writer.stream.hub.node.Network
	beat := time.NewTicker(bridgeBeat)
	defer beat.Stop()
	for ctx.Err() == nil {
		frame, found, news := b.next()
		if found {
			b.sendFrame(ctx, network, frame)
			if frame.Over {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-news:
		case <-beat.C:
			b.sendFrame(ctx, network, Frame{Turn: b.turn, At: b.sent, Said: b.sent})
		case <-b.again:
			b.turn, b.sent = 0, 0
		}
	}
}

// sendFrame sends a frame if that can be done soon. A node that misses it asks again.
func (b *bridge) sendFrame(ctx context.Context, network Network, frame Frame) {
	ctx, stop := context.WithTimeout(ctx, bridgePatience)
	defer stop()
	_ = network.Send(ctx, b.writer.stream.id, frame)
}

// next returns a frame that is to be sent now, or what tells when there may be one.
func (b *bridge) next() (frame Frame, found bool, news <-chan struct{}) {
	s := b.writer.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.over != nil || s.writer != b.writer
	if s.turn == 0 || s.over == nil && over { // another turn may have begun
		return Frame{Turn: b.turn, At: b.sent, Said: b.sent, Over: true}, true, nil
	}
	begins := b.turn != s.turn
	if begins {
		b.turn, b.sent = s.turn, 0
		s.shown = s.text.Len()
	}
	frame = Frame{Turn: b.turn, At: b.sent, Said: s.shown, Text: s.text.String()[b.sent:s.shown]}
	if len(frame.Text) > MaxFrameText {
		frame.Text = frame.Text[:MaxFrameText]
	}
	b.sent += len(frame.Text)
	frame.Over = over && b.sent == s.shown
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
	case s.writer != nil || s.over != nil:
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
	elsewhere := s.writer == nil && s.turn != 0 && s.over == nil
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
