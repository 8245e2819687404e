package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/runnerstate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
)

// freshClaim is a claim that was not used yet, and what the engine knew when it asked for it.
type freshClaim struct {
	*Claim
	askedAt     time.Time
	cancelWords uint64
	probe       *runnerstate.Probe // if this run is to find out whether its runner is back
	left        bool               // its hook has room for another turn
	next        *freshClaim        // that was claimed in its place; also if what comes after that panics
}

// claiming is a question for claims, with what the engine knows before it asks.
type claiming struct {
	pool        *workerPool
	asked       int // how many runs, which may be more than the batch may have
	batch       Batch
	askedAt     time.Time
	cancelWords uint64
	probes      []runnerstate.Probe // for each of which one run may be claimed
	unused      bool                // a probe got no run
	rooms       map[string]int      // that are held for runs of hooks with a limit
	held        starts.Held         // starts of what was paused
}

// claiming prepares a claim of up to n runs, without those that are paused, of runners that are unreachable and of hooks that have as many
// under way as they may. A runner may be probed; if there are added runs, only theirs. The answer must be told to got.
func (p *workerPool) claiming(n int, added ...*Run) *claiming {
	c := &claiming{pool: p, asked: n, askedAt: time.Now(), cancelWords: p.leases.cancelWords.Load(), batch: Batch{Max: n, Lease: p.lease()}}
	if n == 0 {
		return c
	}
	config := p.config()
	c.held = p.pauses.Hold(n)
	c.batch.Max = c.held.Max
	for _, name := range p.runners.outages.Open() {
		bound := Bound{Runners: config.namesOf(name)}
		if len(added) == 0 || slices.ContainsFunc(added, func(run *Run) bool { return config.runnerOf(run) == name }) {
			if p, ok := p.runners.outages.Probe(name); ok {
				c.probes = append(c.probes, p)
				bound.AtMost = 1
			}
		}
		c.batch.Bounds = append(c.batch.Bounds, bound)
	}
	var limits []starts.Limit
	c.rooms, limits = p.hooks.Hold(n)
	for _, limit := range append(limits, c.held.Limits...) {
		switch limit.What {
		case starts.Hook:
			c.batch.Bounds = append(c.batch.Bounds, Bound{Hooks: []string{limit.Name}, AtMost: limit.AtMost})
		case starts.Runner:
			c.batch.Bounds = append(c.batch.Bounds, Bound{Runners: config.namesOf(limit.Name), AtMost: limit.AtMost})
		case starts.Chat: // its runs start one by one anyway
			if limit.AtMost == 0 {
				c.batch.Without = append(c.batch.Without, limit.Name)
			}
		}
	}
	return c
}

// got makes fresh claims of the answer. A runner of which no run came is not being probed, and a hook has room for other runs.
func (c *claiming) got(claims []*Claim) (fresh []*freshClaim) {
	hooks, started := make([]string, len(claims)), make([]starts.Started, len(claims))
	for i, claim := range claims {
		hooks[i], started[i] = claim.Run.Hook, c.pool.config().startOf(claim.Run)
		fresh = append(fresh, &freshClaim{Claim: claim, askedAt: c.askedAt, cancelWords: c.cancelWords})
	}
	moreOfHooks, morePaced := c.pool.hooks.Settle(c.asked, c.rooms, hooks), c.pool.pauses.Settle(c.held, started)
	if moreOfHooks || morePaced {
		signal(c.pool.free)
	}
	for _, p := range c.probes {
		i := slices.IndexFunc(claims, func(claim *Claim) bool { return c.pool.config().runnerOf(claim.Run) == p.Runner })
		if i < 0 {
			c.pool.runners.outages.Unprobe(p)
			c.unused = true
		} else {
			c.pool.runners.outages.Claimed(p)
			fresh[i].probe = &p
		}
	}
	return fresh
}

// gotOne is got for a worker. The dispatcher may have looked for runs that needed its probe meanwhile, and looks again.
func (c *claiming) gotOne(claims []*Claim) *freshClaim {
	fresh := append(c.got(claims), nil)
	if c.unused {
		signal(c.pool.free)
	}
	return fresh[0]
}

// claim returns nothing if the store fails, and then sees to it that it is asked again. For wait see Runs.Claim.
func (p *workerPool) claim(n int) (fresh []*freshClaim, wait time.Duration) {
	if !p.leases.areFresh() {
		signal(p.leases.now) // after that there is word for the dispatcher
		return nil, -1
	}
	err := errors.New("the store panicked")
	p.protect("claiming runs", func() {
		asked := p.claiming(n)
		var claims []*Claim
		defer func() { fresh = asked.got(claims) }()
		claims, wait, err = p.store.Runs().Claim(p.base, asked.batch)
	})
	p.store.writes.Note(writeClaim, err)
	if p.store.noteBroken(err) {
		return fresh, -1
	}
	if err != nil {
		p.store.failed("claiming runs failed, trying again in a second", err)
		return fresh, time.Second
	}
	return fresh, wait
}

// add stores runs. If a worker is free it claims one in the same step, most often the one that is stored. Not so while others add runs:
// they share the steps of the store, and for each of them to claim by itself takes longer than to claim all in the next step.
func (p *workerPool) add(ctx context.Context, runs []*Run, terms Terms) (err error) {
	store, ok := p.store.Runs().(ClaimingRuns)
	isAlone := p.adding.Add(1) == 1
	defer p.adding.Add(-1)
	if !ok || !isAlone || terms.Refuse != nil || !p.takeWorker() {
		return p.store.Runs().AddAll(ctx, runs, terms)
	}
	asked := p.claiming(1, runs...)
	var claims []*Claim
	defer func() {
		next := asked.gotOne(claims)
		go func() {
			defer p.workers.Done()
			p.work(next) // without one the worker goes
		}()
	}()
	claims, err = store.AddAndClaim(ctx, runs, terms, asked.batch)
	return err
}

// takeWorker takes a worker that is free, and reports whether there is one.
func (p *workerPool) takeWorker() bool {
	if !p.leases.areFresh() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.isStopping() || p.active >= p.config().Workers {
		return false
	}
	p.active++
	p.workers.Add(1)
	return true
}

// another is how many runs a worker claims when its run is over: one more, unless it is not needed any more.
func (p *workerPool) another() int {
	p.mu.Lock()
	surplus := p.active > p.config().Workers // after a reload with fewer workers
	p.mu.Unlock()
	if surplus || p.isStopping() || !p.leases.areFresh() {
		return 0
	}
	return 1
}

// leave lets another turn of the hook begin. The turn of the claim is over; its end need not be stored yet.
func (p *workerPool) leave(claim *freshClaim) {
	if !claim.left {
		claim.left = true
		p.hooks.Leave(claim.Run.Hook)
	}
}

// endProbe lets another run be the probe if this one has told nothing.
func (p *workerPool) endProbe(last runnerstate.Probe) {
	p.runners.outages.Unprobe(last)
	signal(p.free)
}
