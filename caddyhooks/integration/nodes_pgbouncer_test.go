package integration

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Behind a pgbouncer in transaction mode, with fewer connections to the database than the nodes have to it.
func TestNodesBehindPgbouncerLoseNothing(t *testing.T) {
	if !inNodesNetwork(t) {
		return
	}
	seed := newSeed(t)
	c := newClusterOf(t, pgtest.New(t, pgtest.Config{Listen: back + "1"}), shortLease, seed, mostlyShort)
	bouncer := pgtest.NewPgbouncer(t, c.database, 3, databaseName)
	c.startNodes(2, bouncer.TCP(databaseName, databaseName, databaseName))
	cs := c.startCallers(seed)
	c.waitForMore(50)
	n := newNemesis(c, seed)
	n.freeze(n.victim())
	n.crashDatabase(nil)
	c.waitForMore(50)
	c.settle(cs)
	c.wantNoFaults()
	t.Logf("%v, %+v", n.counts, countHistory(&c.history))
}
