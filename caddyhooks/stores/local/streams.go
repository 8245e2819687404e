package local

import (
	"context"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Streams implements engine.Streams for a node.
type Streams struct{ *Node }

// feed is a run that a node follows.
type feed struct {
	node   *Node
	id     string
	frames chan engine.Frame
	closed chan struct{}
	asked  uint64 // when, among all; under the lock of the nodes
}

// feedLength is how many frames wait for a node that is slow before their sender does.
const feedLength = 16

// Follow is that of engine.Streams.
func (s Streams) Follow(id string) engine.Feed {
	f := &feed{node: s.Node, id: id, frames: make(chan engine.Frame, feedLength), closed: make(chan struct{})}
	all := s.nodes
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open[s.name] != s.Node { // it has left
		close(f.closed)
		return f
	}
	all.feeds[id] = append(all.feeds[id], f)
	all.ask(f)
	return f
}

// ask is called under the lock.
func (n *Nodes) ask(f *feed) {
	n.asks++
	f.asked = n.asks
	n.tellAsked(f.node)
}

// tellAsked tells all nodes but one that another one follows something else now. It is called under the lock.
func (n *Nodes) tellAsked(but *Node) {
	for _, node := range n.open {
		if node != but {
			signal(node.asked)
		}
	}
}

// Frames is that of engine.Feed.
func (f *feed) Frames() <-chan engine.Frame { return f.frames }

// Ask is that of engine.Feed.
func (f *feed) Ask() {
	all := f.node.nodes
	all.mu.Lock()
	defer all.mu.Unlock()
	if slices.Contains(all.feeds[f.id], f) {
		all.ask(f)
	}
}

// Close is that of engine.Feed.
func (f *feed) Close() {
	all := f.node.nodes
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.Index(all.feeds[f.id], f); i >= 0 {
		all.drop(f)
		all.tellAsked(f.node)
	}
}

// drop is called under the lock.
func (n *Nodes) drop(f *feed) {
	left := slices.DeleteFunc(n.feeds[f.id], func(other *feed) bool { return other == f })
	if len(left) == 0 {
		delete(n.feeds, f.id)
	} else {
		n.feeds[f.id] = left
	}
	close(f.closed)
}

// dropFeeds closes what a node follows. It is called under the lock.
func (n *Nodes) dropFeeds(node *Node) {
	dropped := false
	for _, feeds := range n.feeds {
		for _, f := range slices.Clone(feeds) {
			if f.node == node {
				n.drop(f)
				dropped = true
			}
		}
	}
	if dropped {
		n.tellAsked(node)
	}
}

// Asked is that of engine.Streams.
func (s Streams) Asked() <-chan struct{} { return s.asked }

// Wanted is that of engine.Streams.
func (s Streams) Wanted() map[string]uint64 {
	all := s.nodes
	all.mu.Lock()
	defer all.mu.Unlock()
	wanted := make(map[string]uint64)
	for id, feeds := range all.feeds {
		for _, f := range feeds {
			if f.node != s.Node {
				wanted[id] = max(wanted[id], f.asked)
			}
		}
	}
	return wanted
}

// Send is that of engine.Streams.
func (s Streams) Send(ctx context.Context, id string, frame engine.Frame) error {
	all := s.nodes
	all.mu.Lock()
	feeds := slices.Clone(all.feeds[id])
	all.mu.Unlock()
	for _, f := range feeds {
		if f.node == s.Node {
			continue
		}
		select {
		case f.frames <- frame:
		case <-f.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Interface guards
var (
	_ engine.Streams = Streams{}
	_ engine.Feed    = (*feed)(nil)
)
