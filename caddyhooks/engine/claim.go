package engine

import (
	"errors"
	"slices"
	"time"
)

// freshClaim is a claim that was not used yet, and what the engine knew when it asked for it.
type freshClaim struct {
	*Claim
	askedAt     time.Time
	cancelWords uint64
	probe       *probe // if this run is to find out whether its runner is back
	left        bool   // its hook has room for another turn
}

// claiming is a question for claims, with what the engine knows before it asks.
type claiming struct {
	engine      *Engine
	batch       Batch
	askedAt     time.Time
	cancelWords uint64
	probes      []probe        // for each of which one run may be claimed
	rooms       map[string]int // that are held for runs of hooks with a limit
}

// claiming prepares a claim of up to n runs, without those of runners that are away and of hooks that have as many under way as they
// may. The answer must be told to got.
func (e *Engine) claiming(n int) *claiming {
	c := &claiming{engine: e, askedAt: time.Now(), cancelWords: e.leases.cancelWords.Load(), batch: Batch{Max: n, Lease: e.lease()}}
	if n == 0 {
		return c
	}
	config := e.config.Load()
	for _, name := range e.away.openRunners() {
		bound := Bound{Runners: config.namesOf(name)}
		if p, ok := e.away.probe(name); ok {
			c.probes = append(c.probes, p)
			bound.AtMost = 1
		}
		c.batch.Bounds = append(c.batch.Bounds, bound)
	}
	var bounds []Bound
	c.rooms, bounds = e.hookWorkers.hold(n)
	c.batch.Bounds = append(c.batch.Bounds, bounds...)
	return c
}

// got makes fresh claims of the answer. A runner of which no run came is not being probed, and a hook has room for other runs.
func (c *claiming) got(claims []*Claim) (fresh []*freshClaim) {
	if c.engine.hookWorkers.settle(c.batch.Max, c.rooms, claims) {
		signal(c.engine.workerFree)
	}
	for _, claim := range claims {
		fresh = append(fresh, &freshClaim{Claim: claim, askedAt: c.askedAt, cancelWords: c.cancelWords})
	}
	for _, p := range c.probes {
		i := slices.IndexFunc(claims, func(claim *Claim) bool { return c.engine.config.Load().runnerOf(claim.Run) == p.runner })
		if i < 0 {
			c.engine.away.unprobe(p)
		} else {
			fresh[i].probe = &p
		}
	}
	return fresh
}

// claim returns nothing if the store fails, and then sees to it that it is asked again. For wait see Runs.Claim.
func (e *Engine) claim(n int) (fresh []*freshClaim, wait time.Duration) {
	if !e.leasesAreFresh() {
		signal(e.renewNow) // after that there is word for the dispatcher
		return nil, -1
	}
	err := errors.New("the store panicked")
	e.protect("claiming runs", func() {
		asked := e.claiming(n)
		var claims []*Claim
		defer func() { fresh = asked.got(claims) }()
		claims, wait, err = e.store.Runs().Claim(e.base, asked.batch)
	})
	e.writes.note(writeClaim, err)
	if e.noteBroken(err) {
		return fresh, -1
	}
	if err != nil {
		e.storeFailed("claiming runs failed, trying again in a second", err)
		return fresh, time.Second
	}
	return fresh, wait
}

// another is how many runs a worker claims when its run is over: one more, unless it is not needed any more.
func (e *Engine) another() int {
	e.mu.Lock()
	surplus := e.active > e.config.Load().Workers // after a reload with fewer workers
	e.mu.Unlock()
	if surplus || e.isStopping() || !e.leasesAreFresh() {
		return 0
	}
	return 1
}

// leave lets another turn of the hook begin. The turn of the claim is over; its end need not be stored yet.
func (e *Engine) leave(claim *freshClaim) {
	if !claim.left {
		claim.left = true
		e.hookWorkers.leave(claim.Run.Hook)
	}
}
