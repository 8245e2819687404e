package integration

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/nodescheck"
)

// nemesis makes trouble, one after the other.
type nemesis struct {
	*cluster
	random *rand.Rand
	counts map[string]int
}

func newNemesis(c *cluster, seed uint64) *nemesis {
	return &nemesis{cluster: c, random: rand.New(rand.NewPCG(seed, 2)), counts: make(map[string]int)}
}

// trouble is one thing that goes wrong with a node, and is over in the end. It puts down itself.
type trouble func(n *nemesis, node *clusterNode)

var allTroubles = []trouble{(*nemesis).kill, (*nemesis).freeze, (*nemesis).cutOffDatabase, (*nemesis).cutOff, (*nemesis).crashDatabase}

// torment makes trouble of all kinds in turn, in any order, until the time is over and there was each of them.
func (n *nemesis) torment(duration time.Duration, kinds []trouble) {
	for made, end := 0, time.Now().Add(duration); ; {
		for _, i := range n.random.Perm(len(kinds)) {
			n.wait(500*time.Millisecond, time.Second)
			if made >= len(kinds) && time.Now().After(end) {
				return
			}
			kinds[i](n, n.victim())
			made++
		}
	}
}

// victim is the node with most turns under way or, now and then, any.
func (n *nemesis) victim() *clusterNode {
	if n.random.IntN(4) == 0 {
		return n.nodes[n.random.IntN(len(n.nodes))]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	underWay := make(map[string]int)
	for _, turn := range n.history.Turns {
		if turn.Ended == 0 {
			underWay[turn.Node]++
		}
	}
	return slices.MaxFunc(n.nodes, func(a, b *clusterNode) int { return underWay[a.name] - underWay[b.name] })
}

// wait lets time pass, as trouble and its end have to come at any moment.
func (n *nemesis) wait(least, most time.Duration) {
	time.Sleep(least + time.Duration(n.random.Int64N(int64(most-least))))
}

// beyondALease waits for longer than a lease.
func (n *nemesis) beyondALease() { n.wait(n.history.Lease*11/10, n.history.Lease*3/2) }

// note puts down trouble that begins now. over is to be called when it is over.
func (n *nemesis) note(what, node string) (over func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts[what]++
	at := len(n.history.Troubles)
	n.history.Troubles = append(n.history.Troubles, nodescheck.Trouble{What: what, Node: node, From: n.now()})
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.history.Troubles[at].Until = n.now()
	}
}

// kill is kill -9 of a node, which is started again before or after its leases have ended.
func (n *nemesis) kill(node *clusterNode) {
	over := n.note("killed", node.name)
	node.process.WantNoCrash(n.T)
	node.process.Over = true
	node.process.Kill()
	n.wait(0, n.history.Lease*3/2)
	node.process = node.Launch(n.T)
	n.waitUntilReady(node)
	over()
}

// freeze has a node stand still beyond its leases. It goes on as if nothing had happened.
func (n *nemesis) freeze(node *clusterNode) {
	over := n.note("frozen", node.name)
	node.process.Signal(n.T, syscall.SIGSTOP)
	n.beyondALease()
	node.process.Signal(n.T, syscall.SIGCONT)
	over()
}

// cutOffDatabase takes the database away from a node, which goes on to hear callers and the runner.
func (n *nemesis) cutOffDatabase(node *clusterNode) {
	over := n.note("cut off from the database", node.name)
	node.set("back", "down")
	n.beyondALease()
	node.set("back", "up")
	n.waitUntilReady(node)
	over()
}

// cutOff takes everything away from a node.
func (n *nemesis) cutOff(node *clusterNode) {
	over := n.note("cut off", node.name)
	node.set("back", "down")
	node.set("front", "down")
	n.beyondALease()
	node.set("front", "up")
	node.set("back", "up")
	n.waitUntilReady(node)
	over()
}

// crashDatabase stops the database as in a crash, and starts it again.
func (n *nemesis) crashDatabase(*clusterNode) {
	over := n.note("database crashed", "")
	n.database.Stop("immediate")
	n.wait(100*time.Millisecond, n.history.Lease)
	if err := n.database.Start(); err != nil {
		n.Fatal(err)
	}
	for _, node := range n.nodes {
		n.waitUntilReady(node)
	}
	over()
}
