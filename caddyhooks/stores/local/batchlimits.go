package local

import (
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// batchLimits counts how many runs of each bound a batch still takes, and knows which chats it leaves out. It is nil if there is neither.
type batchLimits struct {
	bounds  []engine.Bound
	taken   []int               // by bound
	without map[uint32]struct{} // chat queues

	// The runners and hooks that are full, by name, if there are many bounds.
	runners, hooks map[string]struct{}
}

// fewBounds is up to how many bounds are looked through for every kind.
const fewBounds = 8

func (l *ChatQueues) newBatchLimits(batch *engine.Batch) *batchLimits {
	bounds := batch.Bounds
	if len(bounds) == 0 && len(batch.Without) == 0 {
		return nil
	}
	r := &batchLimits{bounds: bounds, taken: make([]int, len(bounds))}
	for _, chat := range batch.Without {
		if li := l.queueFor(chat); li != 0 {
			if r.without == nil {
				r.without = make(map[uint32]struct{}, len(batch.Without))
			}
			r.without[li] = struct{}{}
		}
	}
	if len(bounds) > fewBounds {
		r.runners, r.hooks = make(map[string]struct{}), make(map[string]struct{})
		for i := range bounds {
			r.note(i)
		}
	}
	return r
}

// take counts a run.
func (r *batchLimits) take(runner, hook string) {
	if r == nil {
		return
	}
	for i := range r.bounds {
		if isFor(&r.bounds[i], runner, hook) {
			r.taken[i]++
			r.note(i)
		}
	}
}

// isFor reports whether a bound is for runs of a runner and a hook.
func isFor(bound *engine.Bound, runner, hook string) bool {
	return slices.Contains(bound.Runners, runner) || slices.Contains(bound.Hooks, hook)
}

// note leaves no room for those of a bound that is reached.
func (r *batchLimits) note(i int) {
	if r.runners == nil || r.taken[i] < r.bounds[i].AtMost {
		return
	}
	for _, name := range r.bounds[i].Runners {
		r.runners[name] = struct{}{}
	}
	for _, name := range r.bounds[i].Hooks {
		r.hooks[name] = struct{}{}
	}
}

// has reports whether there is room for a run of a kind.
func (r *batchLimits) has(k *kindOf) bool {
	if r == nil {
		return true
	}
	if r.runners != nil {
		_, fullRunner := r.runners[k.runner]
		_, fullHook := r.hooks[k.hook]
		return !fullRunner && !fullHook
	}
	for i := range r.bounds {
		if r.taken[i] >= r.bounds[i].AtMost && isFor(&r.bounds[i], k.runner, k.hook) {
			return false
		}
	}
	return true
}

// leavesOut reports whether no run of a chat queue is taken.
func (r *batchLimits) leavesOut(chatQueue uint32) bool {
	if r == nil || r.without == nil {
		return false
	}
	_, without := r.without[chatQueue]
	return without
}
