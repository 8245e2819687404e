package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
)

// No more gates are kept than may be, those that came first go first, and one that is written time and again pushes out no other.
func TestNumberOfGatesIsBounded(t *testing.T) {
	t.Parallel()
	var all gates
	id := func(i int) [32]byte { return gate.NewID(gate.Once, "hook", fmt.Sprint(i)) }
	long, short := gate.State{Until: time.Now().Add(1000 * time.Hour)}, gate.State{Until: time.Now().Add(time.Hour)}
	all.put(id(0), long)
	for range 10_000 {
		all.put(id(1), short)
	}
	if len(all.states) != 2 || len(all.order) > 2000 {
		t.Errorf("%d states of 2, in an order of %d", len(all.states), len(all.order))
	}
	for i := range 2 * maxGates {
		all.put(id(i), long)
	}
	all.put(id(-1), short)
	if all.state(id(-1)).Until.IsZero() || !all.state(id(0)).Until.IsZero() || len(all.states) != maxGates || len(all.order) > 2*maxGates+1000 {
		t.Errorf("%d states in an order of %d", len(all.states), len(all.order))
	}
}
