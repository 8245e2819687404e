package local

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Nodes are the openings of a store, and pass on word from one to the others. It is safe for use by many goroutines.
type Nodes struct {
	mu       sync.Mutex
	open     map[string]*Node
	watchers map[string][]chan struct{} // of the end of runs, by run id
	feeds    map[string][]*feed         // by run id
	asks     uint64                     // how often somebody asked for a stream
}

// Node is one opening of a store. It implements engine.Watch.
type Node struct {
	name   string
	nodes  *Nodes
	tokens atomic.Uint64

	alive     time.Time // until when; under the lock of nodes
	claimable chan struct{}
	cancelled chan struct{}
	due       chan struct{}
	settings  chan struct{}
	asked     chan struct{}
}

// firstLease is how long a node counts as alive before it has renewed anything.
const firstLease = time.Minute

// Join adds a node.
func (n *Nodes) Join(now time.Time) *Node {
	var name [9]byte
	_, _ = rand.Read(name[:]) // never fails
	node := &Node{
		name: base64.RawURLEncoding.EncodeToString(name[:]), nodes: n, alive: now.Add(firstLease),
		claimable: make(chan struct{}, 1), cancelled: make(chan struct{}, 1), due: make(chan struct{}, 1), settings: make(chan struct{}, 1),
		asked: make(chan struct{}, 1),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open = make(map[string]*Node)
		n.watchers = make(map[string][]chan struct{})
		n.feeds = make(map[string][]*feed)
	}
	n.open[node.name] = node
	signal(node.asked) // others may follow runs
	return node
}

// Leave takes a node out, and reports whether it was the last one.
func (n *Nodes) Leave(node *Node) (last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, node.name)
	n.dropFeeds(node)
	return len(n.open) == 0
}

// Awaits reports whether a caller waits for a run that node claims.
func (n *Nodes) Awaits(run *engine.Run, node *Node, now time.Time) bool {
	if !run.Sync || run.Owner == node.name {
		return run.Sync
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	owner := n.open[run.Owner]
	return owner != nil && now.Before(owner.alive)
}

// TellClaimable tells all nodes that there may be runs to claim.
func (n *Nodes) TellClaimable() {
	n.tell(func(node *Node) chan struct{} { return node.claimable }, nil)
}

// TellDue tells all nodes that there may be deliveries to claim.
func (n *Nodes) TellDue() { n.tell(func(node *Node) chan struct{} { return node.due }, nil) }

// TellSettingsChanged tells all nodes that there are new settings.
func (n *Nodes) TellSettingsChanged() {
	n.tell(func(node *Node) chan struct{} { return node.settings }, nil)
}

// TellOthersDue is TellDue for all nodes but one, which knows.
func (n *Nodes) TellOthersDue(but *Node) {
	n.tell(func(node *Node) chan struct{} { return node.due }, but)
}

// Shared reports whether there is more than one node.
func (n *Nodes) Shared() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.open) > 1
}

func (n *Nodes) tell(word func(*Node) chan struct{}, but *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.open {
		if node != but {
			signal(word(node))
		}
	}
}

// signal leaves word in a channel of capacity 1 if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// TellEnded tells those who watch for the end of a run.
func (n *Nodes) TellEnded(runID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ended := range n.watchers[runID] {
		close(ended)
	}
	delete(n.watchers, runID)
}

// Name is the name of this opening.
func (n *Node) Name() string { return n.name }

// NewToken makes a token that was never used before.
func (n *Node) NewToken() string { return n.name + "." + strconv.FormatUint(n.tokens.Add(1), 36) }

// KeepAlive lets the node count as alive until a time.
func (n *Node) KeepAlive(until time.Time) {
	n.nodes.mu.Lock()
	defer n.nodes.mu.Unlock()
	n.alive = until
}

// Claimable is that of engine.Watch.
func (n *Node) Claimable() <-chan struct{} { return n.claimable }

// Cancelled is that of engine.Watch.
func (n *Node) Cancelled() <-chan struct{} { return n.cancelled }

// Due is that of engine.Watch.
func (n *Node) Due() <-chan struct{} { return n.due }

// SettingsChanged is that of engine.Watch.
func (n *Node) SettingsChanged() <-chan struct{} { return n.settings }

// Ended is that of engine.Watch.
func (n *Node) Ended(id string) (<-chan struct{}, func()) {
	ended := make(chan struct{})
	all := n.nodes
	all.mu.Lock()
	defer all.mu.Unlock()
	all.watchers[id] = append(all.watchers[id], ended)
	return ended, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		watchers := all.watchers[id]
		for i := range watchers {
			if watchers[i] == ended {
				watchers[i] = watchers[len(watchers)-1]
				watchers = watchers[:len(watchers)-1]
				break
			}
		}
		if len(watchers) == 0 {
			delete(all.watchers, id)
		} else {
			all.watchers[id] = watchers
		}
	}
}

// Interface guard
var _ engine.Watch = (*Node)(nil)
