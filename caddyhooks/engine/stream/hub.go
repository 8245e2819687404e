package stream

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Hub holds what is said in turns that are carried out here, and news of runs that somebody follows. Nothing of it is stored.
type Hub struct {
	node      Node
	followers atomic.Int64 // of all runs
	pace      pacer

	mu       sync.Mutex
	runs     map[string]*stream
	kept     []*stream   // of runs that have ended, the oldest first
	keptMem  int         // of their texts
	sweeper  *time.Timer // forgets them; nil before the first one
	stopped  bool
	wanted   map[string]uint64  // the runs that other nodes follow, see Network
	bridges  map[string]*bridge // to them, by run
	watchers sync.WaitGroup     // all goroutines that are started for followers and other nodes
}

// Node is what a hub uses of the node that it belongs to.
type Node struct {
	Network Network

	// Ended returns a channel that is closed when a run ends after this call, until stop is called.
	Ended func(id string) (ended <-chan struct{}, stop func())
	// Status is where a run is: Queued, Running, Waiting, or another one if it has ended.
	Status func(ctx context.Context, id string) (string, error)
	// Lasts reports whether an error of Status is not worth another try.
	Lasts func(error) bool
	// Protect calls a function, and logs its panic.
	Protect func(what string, do func())

	Stopping    <-chan struct{} // closed when no more turns begin
	ErrStopping error           // tells followers so
}

// What was said in a run that has ended is kept for a moment, for followers that are disconnected just then.
const (
	keepSaid      = 10 * time.Second // after the end, and for those who followed it so long before it was let go
	maxKept       = 256              // streams
	maxKeptMemory = 8 << 20          // of their texts
)

// NewHub makes a hub. It must be stopped.
func NewHub(node Node) *Hub {
	return &Hub{node: node, runs: make(map[string]*stream), bridges: make(map[string]*bridge)}
}

// Follow tells news of a run until it has ended. after is the ID of the last event that is known, 0 to begin with. A follower
// that comes back a moment after the end gets what it missed, if that is still known. It has to be closed.
func (h *Hub) Follow(id string, after int64) *Follower {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.get(id)
	s.followers++
	h.followers.Add(1)
	f := &Follower{stream: s, after: after, clean: after == 0, closed: make(chan struct{})}
	if w := s.currentWriter(); w != nil {
		w.listen()
	}
	switch {
	case h.stopped:
		s.end(h.node.ErrStopping)
	case s.unwatch == nil && !s.isOver():
		ctx, cancel := context.WithCancel(context.Background())
		s.unwatch = cancel
		h.watchers.Go(func() {
			err := errors.New("the store panicked")
			h.node.Protect("following a run", func() { h.watch(ctx, s); err = nil })
			if err != nil {
				s.end(err)
			}
		})
	}
	return f
}

// get returns the stream of a run, which is made if there is none. It is called under the lock.
func (h *Hub) get(id string) *stream {
	s := h.runs[id]
	if s == nil {
		s = &stream{hub: h, id: id, look: make(chan struct{}, 1)}
		h.runs[id] = s
	}
	return s
}

// release forgets a stream that nobody needs. It is called under the lock.
func (h *Hub) release(s *stream) {
	if s.followers == 0 && s.unwatch != nil {
		s.unwatch()
		s.unwatch = nil
	}
	if s.followers == 0 && s.writers == 0 && h.runs[s.id] == s && !h.keep(s) {
		delete(h.runs, s.id)
	}
}

// keep reports whether a stream that nobody needs may still be asked for: its run has ended, and somebody who followed it
// lately may not have got all that was said. It is called under the lock.
func (h *Hub) keep(s *stream) bool {
	if !s.keptUntil.IsZero() {
		return true // the sweeper forgets it
	}
	s.mu.Lock()
	memory := s.text.Cap()
	ended := errors.Is(s.over, io.EOF) && s.text.Len() > 0
	s.mu.Unlock()
	if !ended || h.stopped || s.followed.IsZero() || time.Since(s.followed) > keepSaid {
		return false
	}
	s.keptUntil = time.Now().Add(keepSaid)
	h.kept = append(h.kept, s)
	h.keptMem += memory
	for len(h.kept) > maxKept || h.keptMem > maxKeptMemory {
		h.forgetOldest()
	}
	switch {
	case h.sweeper == nil:
		h.sweeper = time.AfterFunc(keepSaid, h.sweep)
	case len(h.kept) == 1:
		h.sweeper.Reset(keepSaid)
	}
	return true
}

// forgetOldest lets go of the stream that was kept for longest. It is called under the lock.
func (h *Hub) forgetOldest() {
	s := h.kept[0]
	h.kept[0] = nil
	h.kept = h.kept[1:]
	s.mu.Lock()
	h.keptMem -= s.text.Cap()
	s.mu.Unlock()
	if h.runs[s.id] == s {
		delete(h.runs, s.id) // those who follow it still have it
	}
}

// sweep forgets streams that were kept long enough.
func (h *Hub) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.kept) > 0 {
		if rest := time.Until(h.kept[0].keptUntil); rest > 0 {
			h.sweeper.Reset(rest)
			return
		}
		h.forgetOldest()
	}
}

// End tells those who follow a run that it has ended.
func (h *Hub) End(id string) {
	h.mu.Lock()
	s := h.runs[id]
	h.mu.Unlock()
	if s != nil {
		s.end(io.EOF)
	}
}

// Stop lets all followers go, and waits for what was started for them.
func (h *Hub) Stop() {
	h.mu.Lock()
	h.stopped = true
	for len(h.kept) > 0 {
		h.forgetOldest()
	}
	if h.sweeper != nil {
		h.sweeper.Stop()
	}
	for _, s := range h.runs {
		s.end(h.node.ErrStopping)
		if s.unwatch != nil {
			s.unwatch()
		}
	}
	bridges := slices.Collect(maps.Values(h.bridges))
	h.mu.Unlock()
	// Those whose turn is over have a moment for what other nodes do not have yet.
	cut := time.AfterFunc(bridgePatience, func() {
		for _, b := range bridges {
			b.cancel()
		}
	})
	defer cut.Stop()
	h.watchers.Wait()
}

// Size is how many runs the hub has news of, and to how many other nodes send them.
func (h *Hub) Size() (runs, bridges int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runs), len(h.bridges)
}

// watch tells a stream how its run is, if that is not known here, and that it has ended.
func (h *Hub) watch(ctx context.Context, s *stream) {
	ended, unwatch := h.node.Ended(s.id)
	defer unwatch()
	again := time.NewTimer(0)
	defer again.Stop()
	var feed Feed // from other nodes, unless the run is carried out here
	var frames <-chan Frame
	closeFeed := func() {
		if feed != nil {
			feed.Close()
			feed, frames = nil, nil
		}
	}
	defer closeFeed()
	var asked time.Time
	stopping := h.node.Stopping
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			s.receiveRest(ctx, frames)
			s.end(io.EOF)
			return
		case frame := <-frames:
			if s.receive(frame) && time.Since(asked) > bridgePatience {
				feed.Ask()
				asked = time.Now()
			}
			if !frame.Over {
				continue
			}
		case <-stopping:
			stopping = nil
		case <-s.look:
		case <-again.C:
		}
		here := s.isHere()
		if here {
			closeFeed()
		} else if feed == nil {
			feed = h.node.Network.Follow(s.id)
			frames = feed.Frames()
		}
		var err error
		if !here {
			err = h.lookAt(ctx, s)
		}
		if err == nil && stopping == nil && !s.isHere() {
			err = h.node.ErrStopping // a turn that is under way here has the drain time to end in
		}
		switch {
		case err == nil:
		case errors.Is(err, h.node.ErrStopping), h.node.Lasts(err):
			s.end(err)
			return
		case ctx.Err() == nil:
			again.Reset(time.Second)
		}
	}
}

// lookAt asks the store how a run is.
func (h *Hub) lookAt(ctx context.Context, s *stream) error {
	status, err := h.node.Status(ctx, s.id)
	if err != nil {
		return err
	}
	if status != Queued && status != Running && status != Waiting {
		s.end(io.EOF)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer != nil || s.over != nil {
		return nil
	}
	if status != Running { // otherwise the node that carries it out tells
		s.forgetTurn()
		s.pause = status
		s.changed()
	}
	return nil
}
