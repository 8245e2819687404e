package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/nodescheck"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var nodesDuration = flag.Duration("nodes.duration", 20*time.Second, "for how long a nemesis torments three nodes on one PostgreSQL")

// shortLease is the shortest lease there is.
const shortLease = 3 * time.Second

// mostlyShort is how long turns take that are short, but for some.
func mostlyShort(random *rand.Rand) time.Duration {
	switch n := random.IntN(100); {
	case n < 70:
		return time.Duration(random.Int64N(int64(30 * time.Millisecond)))
	case n < 95:
		return time.Duration(random.Int64N(int64(300 * time.Millisecond)))
	default:
		return time.Duration(random.Int64N(int64(shortLease)))
	}
}

// Several Caddys on one PostgreSQL lose nothing, whatever happens to them and to it.
func TestThreeNodesLoseNothing(t *testing.T) {
	if !inNodesNetwork(t, "-nodes.duration", nodesDuration.String(), "-seed", fmt.Sprint(*seedFlag)) {
		return
	}
	seed := newSeed(t)
	c := newCluster(t, 3, shortLease, seed, mostlyShort)
	cs := c.startCallers(seed)
	n := newNemesis(c, seed)
	n.torment(*nodesDuration, allTroubles)
	c.settle(cs)
	c.wantNoFaults()
	counts := countHistory(&c.history)
	t.Logf("%v, %+v", n.counts, counts)
	if counts.acknowledged < 50 || counts.again == 0 || counts.replies == 0 || counts.changes == 0 {
		t.Error("that was not enough to tell")
	}
}

// What the checker is for: without tokens that are compared, nodes that were frozen end runs that others carry out.
func TestCheckerFindsThatNodesAreNotFenced(t *testing.T) {
	if !inNodesNetwork(t, "-seed", fmt.Sprint(*seedFlag)) {
		return
	}
	seed := newSeed(t)
	long := func(random *rand.Rand) time.Duration {
		return time.Second + time.Duration(random.Int64N(int64(shortLease)))
	}
	c := newCluster(t, 3, shortLease, seed, long)
	c.database.Exec(t, databaseName, "SET search_path = hooks_default; CREATE OR REPLACE FUNCTION "+
		"holds_1(p_held text, p_given text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'")
	cs := c.startCallers(seed)
	n := newNemesis(c, seed)
	n.torment(15*time.Second, []trouble{(*nemesis).freeze})
	c.settle(cs)
	faults := nodescheck.Check(&c.history)
	t.Logf("%v, %+v, %d faults", n.counts, countHistory(&c.history), len(faults))
	if !slices.ContainsFunc(faults, func(f nodescheck.Fault) bool {
		return f.Promise == nodescheck.Fenced || f.Promise == nodescheck.OneEnd || f.Promise == nodescheck.OneTurnOfChat || f.Promise == nodescheck.OneTurnOfRun
	}) {
		t.Errorf("found only %v", faults)
	}
}

// historyCounts are what a history is worth.
type historyCounts struct {
	requests, acknowledged, refused, unanswered, replies, runs, turns, again, overlaps, failed, changes int
}

func countHistory(h *nodescheck.History) (counts historyCounts) {
	runs := make(map[string]int)
	chats := make(map[string][]nodescheck.Turn)
	for _, turn := range h.Turns {
		counts.turns++
		if runs[turn.Run]++; runs[turn.Run] == 2 {
			counts.again++
		}
		for _, other := range chats[turn.Chat] {
			if other.Ended == 0 || other.Ended > turn.Began {
				counts.overlaps++
			}
		}
		chats[turn.Chat] = append(chats[turn.Chat], turn)
	}
	for _, r := range h.Requests {
		counts.requests++
		switch {
		case r.Run != "":
			counts.acknowledged++
		case r.Status == 0:
			counts.unanswered++
		default:
			counts.refused++
		}
		if r.Reply != "" {
			counts.replies++
		}
	}
	for _, change := range h.Changes {
		if change.Answered > 0 {
			counts.changes++
		}
	}
	for _, end := range h.Stored {
		counts.runs++
		if end.Status != "completed" {
			counts.failed++
		}
	}
	return counts
}

// The runs of a node that dies are carried on by another one.
func TestDeathOfANodeMovesItsRuns(t *testing.T) {
	if !inNodesNetwork(t) {
		return
	}
	for _, end := range []string{"killed", "frozen", "cut off"} {
		t.Run(end, func(t *testing.T) { movesRuns(t, end) })
	}
}

func movesRuns(t *testing.T, end string) {
	const defaultLease, bound = 12 * time.Second, 15 * time.Second
	c := newCluster(t, 2, defaultLease, 1, func(*rand.Rand) time.Duration { return time.Hour })
	defer close(c.letGo)
	one := &caller{callers: &callers{cluster: c}, chat: "a chat", client: clientFrom(front + "100")}
	if r := one.send(c.nodes[0], "text-1", "", 0); r.Run == "" {
		t.Fatalf("got %+v", r)
	}
	turns := func() []nodescheck.Turn {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.history.Turns)
	}
	hookstest.Eventually(t, "the run is started", func() bool { return len(turns()) == 1 })
	victim := c.nodes[slices.IndexFunc(c.nodes, func(node *clusterNode) bool { return node.name == turns()[0].Node })]
	died := c.now()
	switch end {
	case "killed":
		victim.process.Over = true
		victim.process.Kill()
	case "frozen":
		victim.process.Signal(t, syscall.SIGSTOP)
	case "cut off":
		victim.set("back", "down")
		victim.set("front", "down")
	}
	hookstest.Within(t, time.Minute, "the run is started again", func() bool { return len(turns()) == 2 })
	moved := turns()[1].Began - died
	t.Logf("a node was %s: its run moved after %v", end, moved.Round(10*time.Millisecond))
	if moved > bound {
		t.Errorf("that is more than %v", bound)
	}
}
