// Package engine carries out runs. It knows nothing of HTTP or Caddy.
//
// Submit and Do accept a Run, and a Store keeps it. A worker claims the run, and a Runner carries out its turn. The Outcome answers the
// caller if one waits, and is sent out as deliveries: a callback, or an answer on a Channel.
//
// Runs of one chat are carried out one at a time, in the order of acceptance. Runs of different chats go side by side, up to the number of
// workers.
//
// An accepted run is carried out at least once. After a restart, queued runs are carried out and interrupted runs start again; so do runs
// whose agent went down. A run fails instead if it was started MaxAttempts times, or if its only receiver was a waiting caller, who is
// gone.
//
// Several engines may share the data of a store, each as a node of its own. Any node accepts runs, carries them out and sends deliveries.
// The node that holds a caller answers it. A node claims runs and deliveries for a lease, and renews its leases.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/minutes"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// Engine carries out the runs of one store. Engines on several nodes may share the data of a store.
//
// Its parts own their state, each with a lock of its own. Those that are embedded have methods for callers.
type Engine struct {
	*node
	*records
	*deliveries
	*questions
	*runners

	schemas *contract.Cache
	events  *Events
	streams *stream.Hub
	minutes *minutes.Keeper
	turns   *turns
	leases  *leases
	pool    *workerPool
	ends    *runEnds
	pruner  *pruner
	expirer *expirer

	loops   sync.WaitGroup
	renewer sync.WaitGroup // goes on until the last turn is over
}

// New makes an engine that works on store, and owns it from now on. It starts when a Config is attached.
func New(store Store) *Engine {
	n := newNode(store)
	e := &Engine{node: n, schemas: new(contract.Cache), events: new(Events), turns: newTurns(), pruner: newPruner(n)}
	workerFree := make(chan struct{}, 1)
	e.runners = &runners{node: n, workerFree: workerFree}
	e.records = &records{node: n, turns: e.turns, runners: e.runners}
	e.streams, e.minutes = newStreams(e.records), newMinutes(n)
	e.leases = newLeases(n)
	e.questions = &questions{node: n, events: e.events}
	e.deliveries = newDeliveries(n, e.leases, e.minutes, e.events)
	e.ends = &runEnds{node: n, turns: e.turns, streams: e.streams, pruner: e.pruner, minutes: e.minutes, events: e.events,
		workerFree: workerFree}
	e.expirer = newExpirer(n, e.ends, e.runners)
	e.pool = &workerPool{node: n, schemas: e.schemas, turns: e.turns, leases: e.leases, runners: e.runners, ends: e.ends, streams: e.streams,
		free: workerFree}
	e.leases.renewed = e.lookForWork
	if commits, ok := store.(Commits); ok {
		commits.OnCommit(func(changes int, took time.Duration) { e.metrics().StoreCommitted(changes, took) })
	}
	return e
}

// lookForWork has workers and deliveries looked for: a lease of another node may be over.
func (e *Engine) lookForWork() {
	signal(e.pool.free)
	signal(e.deliveries.more)
}

// CheckSchema reports what is wrong with a schema, in a sentence for whoever sent it. One that is right is remembered
// for the runs that use it.
func (e *Engine) CheckSchema(raw []byte) error {
	_, err := e.schemas.Compile(raw)
	return err
}

// Attach puts config in force until it is detached or another one is attached after it. Turns that are under way go on
// as they are. Detaching the config in force brings back the one before it, so that a reload that fails half-way leaves
// no trace.
func (e *Engine) Attach(config Config) (detach func()) {
	if e.attach(&config) {
		for _, loop := range []func(){e.watchStore, e.deliveries.loop, e.pruner.loop, e.expirer.loop, e.minutes.Keep} {
			e.loops.Go(loop)
		}
		e.pool.workers.Go(e.pool.dispatch)
		e.renewer.Go(e.leases.keep)
		e.streams.PassOn(e.base.Done())
	} else {
		e.runners.changed()
	}
	signal(e.pool.free)
	return func() {
		if e.configs.detach(&config) {
			e.runners.changed()
		}
		signal(e.pool.free)
	}
}

// watchStore is told when the store is back, and then has everything looked at that may have changed meanwhile.
func (e *Engine) watchStore() {
	e.store.watch(func() {
		signal(e.leases.now) // which then tells dispatchers
		e.lookForWork()
		signal(e.expirer.now)
	})
}

// Submit stores the run, which gets its id. settings is the revision of the live settings that its request was checked
// against. When Submit returns nil the run has been accepted and will be carried out.
func (e *Engine) Submit(ctx context.Context, run *Run, settings int64) error {
	return e.SubmitAll(ctx, []*Run{run}, settings)
}

// SubmitAll is Submit for the runs of one request. All of them are accepted in one step, or none is, but for those that gates leave out:
// see Runs.AddAll.
func (e *Engine) SubmitAll(ctx context.Context, runs []*Run, settings int64) error {
	return e.submit(ctx, runs, Terms{Settings: settings})
}

// submit stores runs under the limits in force.
func (e *Engine) submit(ctx context.Context, runs []*Run, terms Terms) error {
	if e.shut.Load() {
		return ErrStopping
	}
	// It takes a moment, so a caller that goes away meanwhile makes no difference. A store that hangs must not hold a request.
	ctx, stop := e.store.patience(context.WithoutCancel(ctx))
	defer stop()
	terms.Limits = e.config().Limits
	for _, run := range runs {
		if run.Fold.IsSet() {
			run.Fold.Alike = run.alike()
		}
	}
	err := e.pool.add(ctx, runs, terms)
	_, duplicate := errors.AsType[*DuplicateError](err)
	_, closed := errors.AsType[*gate.ClosedError](err)
	switch {
	case err == nil:
		e.store.writes.Note(writeRun, nil)
		for _, run := range runs {
			if run.ID == "" { // a gate has left it out
				continue
			}
			e.metrics().RunAccepted(run)
			e.minutes.RunAccepted(run.Hook, run.AcceptedAt)
			e.events.Runs.Publish(run.ID)
			e.expirer.expect(run)
			if run.Replaces {
				e.protect("replacing runs", func() { e.ends.replaceOlder(run) })
			}
		}
		return nil
	case duplicate, closed, errors.Is(err, ErrQueueFull), errors.Is(err, ErrChatFull), errors.Is(err, ErrSettingsChanged),
		errors.Is(err, ErrRunAgain), errors.Is(err, ErrNotFound):
		return err
	default:
		e.store.noteBroken(err)
		e.store.writes.Note(writeRun, err)
		return fmt.Errorf("storing a run: %w", err)
	}
}

// Stop ends the engine: nothing new is accepted or claimed, turns under way have the drain time to end, what is left
// goes back to the queue, and callers that still wait are told to come back. It may be called more than once, and
// returns when all is over and the store is closed.
func (e *Engine) Stop() {
	e.shut.Store(true)
	e.BeginStop()
	drained := make(chan struct{})
	go func() {
		e.loops.Wait()
		e.pool.workers.Wait()
		e.deliveries.workers.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-e.base.Done(): // the drain time is over
		if !inTime(drained) {
			e.log().Error("a runner, a channel or the store does not stop; going on without it")
		}
	}
	e.cut(ErrStopping)
	closed := make(chan struct{})
	go func() {
		e.renewer.Wait()
		e.streams.Stop()
		e.protect("saving the last minute", func() {
			ctx, stop := context.WithTimeout(context.Background(), stragglerTimeout/2)
			defer stop()
			if !e.store.isBroken() {
				e.minutes.SaveLast(ctx)
			}
		})
		if err := e.store.Close(); err != nil {
			e.store.failed("closing the store failed", err)
		}
		close(closed)
	}()
	if !inTime(closed) {
		e.log().Error("the store does not close; going on without it")
	}
}

// inTime waits for something that should be over soon, and reports whether it was.
func inTime(over <-chan struct{}) bool {
	timer := time.NewTimer(stragglerTimeout)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
		return false
	}
}

// stragglerTimeout is how long Stop waits for a turn that has been cancelled, and for the store to close.
const stragglerTimeout = 5 * time.Second

// BeginStop is the first half of Stop. It returns at once, for those who must not wait: the web server waits for the
// callers that the engine holds, and so must hear of the end before them. Until Stop, runs that nobody waits for are
// accepted: they start after the next start, or on another node.
func (e *Engine) BeginStop() {
	e.beginStop(e.drainTimeout())
}

// signal leaves word in a channel of capacity 1 if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Repeated looks whether a request that is not accepted now was accepted before. The error is a *DuplicateError or *gate.ClosedError then,
// as that of Submit, nil if it is a new one, and ErrSettingsChanged if the settings are not those in force. Nothing is stored.
func (e *Engine) Repeated(ctx context.Context, runs []*Run, settings int64) error {
	ctx, stop := e.store.patience(context.WithoutCancel(ctx))
	defer stop()
	err := e.store.Runs().AddAll(ctx, runs, Terms{Settings: settings, Limits: e.config().Limits, Refuse: errNotRepeated})
	var duplicate *DuplicateError
	var closed *gate.ClosedError
	switch {
	case errors.Is(err, errNotRepeated):
		return nil
	case errors.As(err, &duplicate), errors.As(err, &closed), errors.Is(err, ErrSettingsChanged):
		return err
	default:
		e.store.noteBroken(err)
		return fmt.Errorf("looking for a repeated request: %w", err)
	}
}

var errNotRepeated = errors.New("the request is not a repeat")

// IsStopping reports whether the engine takes on nothing more.
func (e *Engine) IsStopping() bool { return e.isStopping() }

// IsBroken reports whether the store is broken, which only a restart can mend.
func (e *Engine) IsBroken() bool { return e.store.isBroken() }

// StoreFailing is why the store could not write what it was last asked to, lately; nil if it could.
func (e *Engine) StoreFailing() error { return e.store.failing() }

// StoreUnreachable tells since when the store cannot be reached, and why; cause is nil if it can be. changed is closed when that is
// different, and nil if it never is.
func (e *Engine) StoreUnreachable() (since time.Time, changed <-chan struct{}, cause error) {
	return e.store.outage()
}

// StoreSpaceIsLow tells how many bytes are free where the store is, if these are few.
func (e *Engine) StoreSpaceIsLow() (free uint64, low bool) { return e.store.spaceIsLow() }

// Nodes lists the nodes that work with the store, none if no others can.
func (e *Engine) Nodes(ctx context.Context) ([]Node, error) {
	if shared, ok := e.store.Store.(Shared); ok {
		return shared.Nodes(ctx)
	}
	return nil, nil
}

// LimitHooks sets how many turns of each hook are carried out at once by this engine. A hook that is not named, or has 0, has no
// limit of its own. Turns that are under way go on.
func (e *Engine) LimitHooks(workers map[string]int) {
	e.pool.hooks.Limit(workers)
	signal(e.pool.free)
}

// SetPauses replaces what is paused, of which there may be MaxWithout. Runs of it are accepted, and start when it is not paused any more.
func (e *Engine) SetPauses(pauses []starts.Pause) {
	e.pauses.Set(pauses)
	signal(e.pool.free)
}

// Prune has the engine look for what was kept long enough now, and not in its time. It does not wait for that.
func (e *Engine) Prune() { e.pruner.soon() }
