package postgres

import (
	"fmt"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// asks are questions for claims, of one or more calls each, as the functions of the database take them.
type asks struct {
	most        []int32 // by question, like leases
	leases      []float64
	boundAsk    []int32 // by bound: the number of its question …
	boundMost   []int32 // … and how many runs it allows
	nameBound   []int32 // by name: the number of its bound
	names       []string
	nameIsHook  []bool
	withoutAsk  []int32 // by chat that is left out: the number of its question
	without     []string
	bounded     bool                // something is left behind that could be claimed
	ofCall      map[*turnover]int32 // the number of its question
	numberOfKey map[string]int32
}

// newAsks gathers what calls ask for. Calls share a question if it does not matter which of them gets a run.
func newAsks(calls []*turnover) *asks {
	a := &asks{ofCall: make(map[*turnover]int32), numberOfKey: make(map[string]int32)}
	for _, t := range calls {
		a.ask(t)
	}
	return a
}

// ask adds what a call asks for.
func (a *asks) ask(t *turnover) {
	batch := &t.next
	if batch.Max <= 0 {
		return
	}
	bounds, shared := binding(batch)
	key := ""
	if shared {
		key = keyOf(bounds, batch)
		if n := a.numberOfKey[key]; n > 0 {
			a.most[n-1] += int32(batch.Max) //nolint:gosec // workers of an engine
			a.ofCall[t] = n
			return
		}
	}
	n := a.add(bounds, batch)
	a.ofCall[t] = n
	if shared {
		a.numberOfKey[key] = n
	}
}

// binding are the bounds of a batch that matter, and whether all of them leave runs out altogether.
func binding(batch *engine.Batch) (bounds []engine.Bound, allNone bool) {
	allNone = true
	for _, bound := range batch.Bounds {
		if bound.AtMost < batch.Max {
			bounds = append(bounds, bound)
			allNone = allNone && bound.AtMost <= 0
		}
	}
	return bounds, allNone
}

// keyOf is the same for batches that leave out the same runs.
func keyOf(bounds []engine.Bound, batch *engine.Batch) string {
	if len(bounds) == 0 && len(batch.Without) == 0 {
		return fmt.Sprint(batch.Lease)
	}
	var key strings.Builder
	for _, bound := range bounds {
		fmt.Fprintf(&key, "%q%q", bound.Runners, bound.Hooks)
	}
	fmt.Fprintf(&key, "%q%v", batch.Without, batch.Lease)
	return key.String()
}

func (a *asks) add(bounds []engine.Bound, batch *engine.Batch) (number int32) {
	a.most = append(a.most, int32(batch.Max)) //nolint:gosec // workers of an engine
	a.leases = append(a.leases, batch.Lease.Seconds())
	number = int32(len(a.most)) //nolint:gosec // calls of a batch
	for _, bound := range bounds {
		a.bounded = true
		a.boundAsk = append(a.boundAsk, number)
		a.boundMost = append(a.boundMost, int32(max(bound.AtMost, 0))) //nolint:gosec // less than the batch
		of := int32(len(a.boundAsk))                                   //nolint:gosec // runners and hooks
		a.name(of, bound.Runners, false)
		a.name(of, bound.Hooks, true)
	}
	for _, chat := range batch.Without {
		a.bounded = true
		a.withoutAsk, a.without = append(a.withoutAsk, number), append(a.without, codec.Escape(chat))
	}
	return number
}

func (a *asks) name(bound int32, names []string, isHook bool) {
	for _, name := range names {
		a.nameBound, a.names, a.nameIsHook = append(a.nameBound, bound), append(a.names, codec.Escape(name)), append(a.nameIsHook, isHook)
	}
}

// take gives a call its part of what was claimed.
func (a *asks) take(t *turnover, byAsk map[int32][]*engine.Claim) []*engine.Claim {
	ask := a.ofCall[t]
	claims := byAsk[ask]
	n := min(len(claims), max(t.next.Max, 0))
	byAsk[ask] = claims[n:]
	return claims[:n:n]
}

// arguments are those of the functions that say what to claim.
func (a *asks) arguments(after int64, lapsed float64) []any {
	return []any{
		after, lapsed, notNull(a.most), notNull(a.leases), notNull(a.boundAsk), notNull(a.boundMost), notNull(a.nameBound), notNull(a.names),
		notNull(a.nameIsHook), notNull(a.withoutAsk), notNull(a.without),
	}
}
