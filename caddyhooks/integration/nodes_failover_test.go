package integration

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/nodescheck"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// short is how long turns take that are all short.
func short(random *rand.Rand) time.Duration {
	return time.Duration(random.Int64N(int64(50 * time.Millisecond)))
}

// newReplicatedCluster is a cluster whose nodes know of two databases, one of which follows the other.
func newReplicatedCluster(t *testing.T, synchronous bool, seed uint64) (c *cluster, standby *pgtest.Server) {
	t.Helper()
	c = newClusterOf(t, pgtest.New(t, pgtest.Config{Listen: back + "1"}), shortLease, seed, short)
	standby = c.database.Standby(t, synchronous)
	c.startNodes(2, pgtest.AnyOf(databaseName, databaseName, databaseName, c.database, standby))
	return c, standby
}

// failOver kills the database, and has the standby take its place.
func (n *nemesis) failOver(standby *pgtest.Server) {
	n.Helper()
	over := n.note("failed over", "")
	n.database.Kill()
	standby.Promote(n.T)
	n.database = standby
	for _, node := range n.nodes {
		n.waitUntilReady(node)
	}
	over()
}

func TestFailoverToASynchronousStandbyLosesNothing(t *testing.T) {
	if !inNodesNetwork(t) {
		return
	}
	seed := newSeed(t)
	c, standby := newReplicatedCluster(t, true, seed)
	cs := c.startCallers(seed)
	c.waitForMore(100)
	newNemesis(c, seed).failOver(standby)
	c.waitForMore(100)
	c.settle(cs)
	c.wantNoFaults()
	t.Logf("%+v, unreachable for %v", countHistory(&c.history), c.history.Troubles[0].Until-c.history.Troubles[0].From)
}

// While the synchronous standby is unreachable nothing is acknowledged, and nodes say so. What they were told to do meanwhile is on one server alone, and may be
// lost with it.
func TestWithoutTheSynchronousStandbyNothingIsAcknowledged(t *testing.T) {
	if !inNodesNetwork(t) {
		return
	}
	seed := newSeed(t)
	c, standby := newReplicatedCluster(t, true, seed)
	cs := c.startCallers(seed)
	c.waitForMore(50)
	n := newNemesis(c, seed)
	over := n.note("standby stopped", "")
	standby.Stop("immediate")
	before := c.acknowledged()
	for _, node := range c.nodes {
		hookstest.Within(t, time.Minute, node.name+" says that it is not ready", func() bool {
			resp, err := c.get(node.Admin + "/hooks/health")
			return err == nil && resp.Status == 503 && strings.Contains(resp.Body, "the store cannot be reached: ")
		})
	}
	t.Logf("%d requests were acknowledged after that", c.acknowledged()-before)
	c.database.Kill()
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	over()
	n.failOver(standby)
	c.waitForMore(50)
	c.settle(cs)
	c.wantNoFaults()
	counts := countHistory(&c.history)
	t.Logf("%+v, unreachable for %v", counts, c.history.Troubles[1].Until-c.history.Troubles[0].From)
	if counts.refused == 0 {
		t.Error("nothing was refused")
	}
}

// A standby that is behind does not have all that was acknowledged. What it lacks is lost, and nodes go on.
func TestFailoverToAnAsynchronousStandbyLosesWhatItLacks(t *testing.T) {
	if !inNodesNetwork(t) {
		return
	}
	seed := newSeed(t)
	c, standby := newReplicatedCluster(t, false, seed)
	cs := c.startCallers(seed)
	c.waitForMore(100)
	standby.FallBehind(t)
	c.waitForMore(50)
	newNemesis(c, seed).failOver(standby)
	c.waitForMore(100)
	c.settle(cs)
	c.wantNoCrash()

	failedOver := c.history.Troubles[0]
	isKept := make(map[string]bool)
	for _, end := range c.history.Stored {
		isKept[end.Run] = true
	}
	lost := make(map[string]bool)
	for _, r := range c.history.Requests {
		if r.Run == "" || isKept[r.Run] {
			continue
		}
		lost[r.Run] = true
		if r.Sent > failedOver.Until {
			t.Errorf("%+v is lost though it came after the failover", r)
		}
	}
	others := 0
	for _, fault := range nodescheck.Check(&c.history) {
		if fault.Promise != nodescheck.NothingLost {
			others++
		}
	}
	t.Logf("%d of %d acknowledged runs are lost, %d other promises broken; %+v", len(lost), c.acknowledged(), others, countHistory(&c.history))
	if len(lost) == 0 {
		t.Error("nothing is lost: the standby was not behind")
	}
}
