package storetest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var (
	modelSeed      = flag.Uint64("model-seed", 0, "the seed of a sequence that differs from the model; 0: all from 1 on")
	modelSequences = flag.Int("model-sequences", 30, "how many sequences are compared with the model")
)

// Model is the data of a store whose behaviour is right. Each call of Store opens it as another node.
type Model interface {
	Store() engine.Store
	Advance(by time.Duration)
}

// RunAgainst does the same random operations with a store and with a model, and compares all that they answer. A sequence with a difference is
// shown with the operations alone that lead to it.
func RunAgainst(t *testing.T, model func() Model, open func(t *testing.T) engine.Store, options Options) {
	t.Helper()
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = nil
		for i := range *modelSequences { // the same every time: what CI refuses can be repeated
			seeds = append(seeds, uint64(i+1))
		}
	}
	var shrinking atomic.Bool // one sequence is enough to look at
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // nothing here is secret
			// Each sequence has some actions and some kinds of runs alone: a few that come often find more than all that come rarely.
			some := slices.Clone(runActions[:basicActions])
			others := actions[basicActions:]
			others = slices.Concat(others, questionActions)
			for _, other := range others {
				if random.IntN(2) == 0 {
					some = append(some, other)
				}
			}
			operations := make([]operation, 30+random.IntN(70))
			for i := range operations {
				operations[i] = operation{&some[random.IntN(len(some))], random.Uint64()}
			}
			comparison := &comparison{t, model, open, options, random.Uint64()}
			difference := comparison.difference(operations)
			if difference == "" {
				return
			}
			if shrinking.CompareAndSwap(false, true) {
				operations, difference = shrink(operations, difference, comparison.difference)
			}
			t.Errorf("-model-seed %d: after %d operations\n%s", seed, len(operations), difference)
		})
	}
}

// shrink drops operations as long as there is a difference without them.
func shrink(all []operation, found string, difference func([]operation) string) ([]operation, string) {
	for size := len(all) / 2; size > 0; {
		dropped := false
		for from := 0; from+size <= len(all); {
			fewer := slices.Delete(slices.Clone(all), from, from+size)
			if without := difference(fewer); without != "" {
				all, found, dropped = fewer, without, true
			} else {
				from += size
			}
		}
		if !dropped || size > len(all) {
			size /= 2
		}
	}
	return all, found
}

// operation is an action, and what it depends on by chance.
type operation struct {
	*action
	seed uint64
}

// action is something that is done with a store. It returns what came of it.
type action struct {
	name string
	do   func(w *world, chance *rand.Rand) any
}

var actions = slices.Concat(runActions, deliveryActions, upkeepActions, readActions)

type comparison struct {
	t       *testing.T
	model   func() Model
	open    func(t *testing.T) engine.Store
	options Options
	often   uint64 // a bit for each kind of runs that there are many of
}

// difference says where the store and the model first differ, "" if they do not.
func (c *comparison) difference(operations []operation) string {
	model := c.model()
	want := newWorld(c, model.Store(), model.Advance)
	defer want.close()
	want.join = model.Store
	tested := c.open(c.t)
	got := newWorld(c, tested, func(d time.Duration) { c.options.Advance(c.t, tested, d) })
	defer got.close()
	if c.options.Join != nil {
		got.join = func() engine.Store { return c.options.Join(c.t, tested) }
	} else {
		want.join = nil
	}
	if c.options.Reopen != nil {
		want.reopen = func() engine.Store {
			_ = want.nodes[0].Close()
			return model.Store()
		}
		got.reopen = func() engine.Store {
			tested = c.options.Reopen(c.t, tested)
			return tested
		}
	}
	if !got.exact {
		got.model = want
	}
	var history strings.Builder
	step := func(name string, do func(w *world) any) bool {
		wanted, was := want.show(want.note(do)), got.show(got.note(do))
		fmt.Fprintf(&history, "%s: %.300s\n", name, wanted)
		if id := got.misses(want); id != "" {
			fmt.Fprintf(&history, "Watch.Ended of %s does not say the same\n", id)
			return false
		}
		if wanted == was {
			return true
		}
		at := 0
		for at < min(len(wanted), len(was)) && wanted[at] == was[at] {
			at++
		}
		from := max(0, at-100)
		fmt.Fprintf(&history, "got  …%.250s\nwant …%.250s\n", was[from:], wanted[from:])
		return false
	}
	for _, o := range operations {
		if !step(o.name, func(w *world) any { return o.do(w, rand.New(rand.NewPCG(o.seed, 1))) }) { //nolint:gosec // nothing here is secret
			return history.String()
		}
	}
	if !step("end what is claimed", (*world).endAll) || !step("look at all", (*world).lookAtAll) {
		return history.String()
	}
	if c.options.Reopen != nil {
		if !step("open it again", (*world).openAgain) || !step("look at all", (*world).lookAtAll) || !step("claim the rest", (*world).drain) {
			return history.String()
		}
	}
	return ""
}
