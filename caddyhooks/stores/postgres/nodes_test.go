//go:build real

package postgres

import (
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func (s *store) advance(t *testing.T, by time.Duration) {
	t.Helper()
	if err := s.exec(t.Context(), "UPDATE @.test_clock SET ahead = ahead + make_interval(secs => $1)", by.Seconds()); err != nil {
		t.Fatal(err)
	}
}

func TestNodeThatIsClosedLeavesNothing(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	b := joinAs(t, a.schema, func(*store) {})
	b.Streams().Follow(uuid.NewString())
	if n := a.number(t, "SELECT count(*) FROM @.node") + a.number(t, "SELECT count(*) FROM @.follow"); n != 3 {
		t.Errorf("there are %d rows of nodes and of what they follow, want 3", n)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if n := a.number(t, "SELECT count(*) FROM @.node") + a.number(t, "SELECT count(*) FROM @.follow"); n != 1 {
		t.Errorf("there are %d rows of nodes and of what they follow, want 1", n)
	}
	waitFor(t, "node a knows that it is alone", a.watch.isLone.Load)
}

// What a node follows that fell silent is not sent any more, and is forgotten. It is there again when the node goes on.
func TestNodeThatFellSilentIsForgottenUntilItGoesOn(t *testing.T) {
	t.Parallel()
	a := newPostgres(t)
	defer a.Close()
	b := joinAs(t, a.schema, func(*store) {})
	run := uuid.NewString()
	b.Streams().Follow(run)
	a.wants(t, run, true)

	b.watch.cancel()
	b.watch.background.Wait()
	frame := engine.Frame{Turn: 1, Text: "hello"}
	if err := a.Streams().Send(t.Context(), run, frame); err != nil {
		t.Fatal(err)
	}
	wantNodes := func(of *store, silent bool) {
		t.Helper()
		nodes, err := of.Nodes(t.Context())
		seen := make(map[string]engine.Node)
		for _, n := range nodes {
			seen[n.Name] = n
		}
		host, _ := os.Hostname()
		if n := seen[b.node]; err != nil || len(nodes) != 2 || n.Silent != silent || n.Host != host || n.JoinedAt.IsZero() || n.SeenAt.IsZero() {
			t.Errorf("nodes are %+v: %v", nodes, err)
		}
		if seen[a.node].This != (of == a) || seen[b.node].This != (of == b) {
			t.Errorf("the node that was asked is not marked: %+v", nodes)
		}
	}
	wantNodes(a, false)
	wantNodes(b, false)
	a.advance(t, time.Minute)
	wantNodes(a, true)
	a.wants(t, run, false)
	waitFor(t, "node a takes itself for alone", a.watch.isLone.Load)
	a.advance(t, 10*time.Minute)
	if err := a.exec(t.Context(), "SELECT @.sweep_nodes_1()"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"node", "follow", "frame"} { // node a may be sweeping at the same time, which ours does not wait for
		waitFor(t, "the silent node is gone from "+table, func() bool {
			return a.number(t, "SELECT count(*) FROM @."+table+" WHERE "+map[bool]string{true: "name", false: "node"}[table == "node"]+" = $1", b.node) == 0
		})
	}
	for range 2 { // the first one finds that it was forgotten
		if err := b.watch.beat(t.Context(), request{full: true}); err != nil {
			t.Fatal(err)
		}
	}
	a.wants(t, run, true)
}
