// Package engine carries out runs. It knows nothing of HTTP or Caddy.
//
// Submit and Do accept a Run, and a Store keeps it. A worker claims the run, and a Runner carries out its turn. The Outcome
// answers the caller if one waits, and is sent out as deliveries: a callback, or an answer on a Channel.
//
// Runs of one chat are carried out one at a time, in the order of acceptance. Runs of different chats go side by side, up to
// the number of workers.
//
// An accepted run is carried out at least once. After a restart, queued runs are carried out and interrupted runs start
// again; so do runs whose agent went down. A run fails instead if it was started MaxAttempts times, or if its only receiver was a waiting caller, who is gone.
//
// Several engines may share the data of a store, each as a node of its own. Any node accepts runs, carries them out and sends
// deliveries. The node that holds a caller answers it. A node claims runs and deliveries for a lease, and renews its leases.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/minutes"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// Engine carries out the runs of one store. Engines on several nodes may share the data of a store.
type Engine struct {
	store   Store
	schemas contract.Cache

	config  atomic.Pointer[Config]
	configs []*Config // all that are attached, the one in force last; under mu

	mu      sync.Mutex
	active  int                        // workers that have a run, or are about to get one
	running map[string][]*turnUnderWay // by run, the newest last; a turn may be for several runs
	callers map[string]chan Outcome    // of Do, by run: for an outcome that cannot be read from the store
	sending map[*attempting]struct{}   // deliveries that this node has claimed

	expireAt atomic.Pointer[time.Time] // when it is planned to look for runs that waited too long

	workerFree  chan struct{} // a worker has gone, or there may be work for a new one
	sendMore    chan struct{} // there may be deliveries to send, or room to send more
	renewNow    chan struct{} // leases are to be renewed before their time
	pruneNow    chan struct{} // likewise for pruning
	toldSince   atomic.Int64  // about how many bytes were added to the history since pruning was last asked for
	attempts    atomic.Int32  // at deliveries that are under way; of those in sending, the end of the others is being stored
	expireNow   chan struct{} // a run was accepted that has to be looked at earlier than planned
	hookWorkers hookWorkers
	breakers    breakers
	away        awayRunners
	states      runnerStates
	leases      leases
	minutes     *minutes.Keeper
	events      Events
	streams     *stream.Hub
	broken      chan struct{} // closed when the store is known to be broken
	brokenOnce  sync.Once
	writes      storeWrites

	stopping chan struct{}
	stopOnce sync.Once
	shut     atomic.Bool     // nothing more is accepted
	base     context.Context // of all turns and deliveries
	cut      context.CancelCauseFunc
	loops    sync.WaitGroup
	renewer  sync.WaitGroup // goes on until the last turn is over
	workers  sync.WaitGroup
}

// Config is what an engine works with. It is replaced as a whole when the configuration is reloaded.
type Config struct {
	Runners       map[string]Runner
	DefaultRunner string // the name of the runner for runs that name none
	Channels      map[string]Channel
	Callbacks     Sender
	ErrorBody     func(message string) (contentType, body string) // of a callback for a run without a text; nil: plain text
	Workers       int
	Limits        Limits
	History       func() time.Duration // the History of the limits, if it changes; nil if it does not
	MaxAttempts   int                  // how often a run is started, if the process or the agent dies while it is carried out; 0 is no limit
	Lease         time.Duration        // how long a node keeps what it has claimed if it falls silent. Default: 12s.
	DrainTimeout  time.Duration
	Metrics       Metrics // nil if nobody counts
	Traces        Traces  // nil if nobody traces
	Announcer     Announcer
	Log           *zap.Logger
}

// runnerOf is the name of the runner that carries out a run.
func (c *Config) runnerOf(run *Run) string {
	if run.Runner == "" {
		return c.DefaultRunner
	}
	return run.Runner
}

// namesOf are the names that runs have for some runners.
func (c *Config) namesOf(runners ...string) (names []string) {
	for _, name := range runners {
		names = append(names, name)
		if name == c.DefaultRunner {
			names = append(names, "")
		}
	}
	return names
}

// New makes an engine that works on store, and owns it from now on. It starts when a Config is attached.
func New(store Store) *Engine {
	e := &Engine{
		store:      store,
		running:    make(map[string][]*turnUnderWay),
		callers:    make(map[string]chan Outcome),
		sending:    make(map[*attempting]struct{}),
		workerFree: make(chan struct{}, 1),
		sendMore:   make(chan struct{}, 1),
		renewNow:   make(chan struct{}, 1),
		expireNow:  make(chan struct{}, 1),
		broken:     make(chan struct{}),
		pruneNow:   make(chan struct{}, 1),
		stopping:   make(chan struct{}),
	}
	e.leases.renewedAt = time.Now()
	e.base, e.cut = context.WithCancelCause(context.Background())
	e.streams, e.minutes = e.newStreams(), e.newMinutes()
	if commits, ok := store.(Commits); ok {
		commits.OnCommit(func(changes int, took time.Duration) { e.metrics().StoreCommitted(changes, took) })
	}
	return e
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
	c := &config
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.config.Load() == nil
	e.configs = append(e.configs, c)
	e.config.Store(c)
	if first {
		e.loops.Add(5)
		go e.watchStore()
		go e.dispatch()
		go e.deliver()
		go e.prune()
		go e.expire()
		e.loops.Go(e.minutes.Keep)
		e.renewer.Add(1)
		go e.keepLeases()
		e.streams.PassOn(e.base.Done())
	} else {
		e.runnersChanged()
	}
	signal(e.workerFree)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for i := range e.configs {
			if e.configs[i] == c {
				e.configs = append(e.configs[:i:i], e.configs[i+1:]...)
				break
			}
		}
		if n := len(e.configs); n > 0 {
			if before := e.config.Swap(e.configs[n-1]); before == c {
				e.runnersChanged()
			}
			signal(e.workerFree)
		}
	}
}

// runnersChanged is called when another config is in force: its runners may be others.
func (e *Engine) runnersChanged() {
	config := e.config.Load()
	e.away.reset(config)
	e.states.forget(config)
}

// Submit stores the run, which gets its id. settings is the revision of the live settings that its request was checked
// against. When Submit returns nil the run has been accepted and will be carried out.
func (e *Engine) Submit(ctx context.Context, run *Run, settings int64) error {
	return e.SubmitAll(ctx, []*Run{run}, settings)
}

// SubmitAll is Submit for the runs of one request. All of them are accepted in one step, or none is.
func (e *Engine) SubmitAll(ctx context.Context, runs []*Run, settings int64) error {
	return e.submit(ctx, runs, Terms{Settings: settings})
}

// submit stores runs under the limits in force.
func (e *Engine) submit(ctx context.Context, runs []*Run, terms Terms) error {
	if e.shut.Load() {
		return ErrStopping
	}
	// It takes a moment, so a caller that goes away meanwhile makes no difference. A store that hangs must not hold a request.
	ctx, stop := e.patience(context.WithoutCancel(ctx))
	defer stop()
	terms.Limits = e.config.Load().Limits
	for _, run := range runs {
		if run.Fold.IsSet() {
			run.Fold.Alike = run.alike()
		}
	}
	err := e.store.Runs().AddAll(ctx, runs, terms)
	var duplicate *DuplicateError
	switch {
	case err == nil:
		e.writes.note(writeRun, nil)
		for _, run := range runs {
			e.metrics().RunAccepted(run)
			e.minutes.RunAccepted(run.Hook, run.AcceptedAt)
			e.events.Runs.publish(run.ID)
			e.expectExpiry(run)
		}
		return nil
	case errors.Is(err, ErrQueueFull), errors.Is(err, ErrChatFull), errors.Is(err, ErrSettingsChanged), errors.As(err, &duplicate),
		errors.Is(err, ErrRunAgain), errors.Is(err, ErrNotFound):
		return err
	default:
		e.noteBroken(err)
		e.writes.note(writeRun, err)
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
		e.workers.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-e.base.Done(): // the drain time is over
		if !inTime(drained) {
			e.log().Error("a runner, a channel or the store does not return although it was told to; going on without it")
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
			if !e.IsBroken() {
				e.minutes.SaveLast(ctx)
			}
		})
		if err := e.store.Close(); err != nil {
			e.storeFailed("closing the store failed", err)
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
	e.stopOnce.Do(func() {
		close(e.stopping)
		time.AfterFunc(e.drainTimeout(), func() { e.cut(ErrStopping) })
	})
}

func (e *Engine) isStopping() bool {
	select {
	case <-e.stopping:
		return true
	default:
		return false
	}
}

func (e *Engine) drainTimeout() time.Duration {
	if c := e.config.Load(); c != nil {
		return c.DrainTimeout
	}
	return 0
}

// storeFailed logs that the store failed, unless that is known.
func (e *Engine) storeFailed(message string, err error, fields ...zap.Field) {
	if !e.isKnown(err) {
		e.log().Error(message, append(fields, ErrorField(err))...)
	}
}

// noteBroken reports whether an error says that the store is broken. The first time that is logged: from then on every call
// of the store fails alike.
func (e *Engine) noteBroken(err error) bool {
	var broken *StoreBrokenError
	if !errors.As(err, &broken) {
		return false
	}
	e.brokenOnce.Do(func() {
		close(e.broken)
		e.log().Error("the store is broken: nothing more is accepted or carried out. Restart the service; it checks the store, and says what to do if it is damaged",
			zap.String("reason", broken.Reason), zap.ByteString("stack", broken.Stack))
	})
	return true
}

func (e *Engine) metrics() Metrics {
	if c := e.config.Load(); c != nil && c.Metrics != nil {
		return c.Metrics
	}
	return NoMetrics{}
}

func (e *Engine) log() *zap.Logger {
	if c := e.config.Load(); c != nil {
		return c.Log
	}
	return zap.NewNop()
}

// errTimedOut is why the context of a turn was cancelled whose run has no time left.
var errTimedOut = errors.New("the time of the run is up")

// cancelledError is why the context of a turn was cancelled whose run somebody cancelled.
type cancelledError struct{ by string }

func (e *cancelledError) Error() string { return "the run was cancelled by " + e.by }

func timedOut(run *Run) Outcome {
	return Outcome{Status: TimedOut, Message: fmt.Sprintf("The agent did not finish within %d seconds.", int(run.Timeout.Seconds())),
		Account: Account{Reason: fmt.Sprintf("the runner did not answer within the %v that the run had", run.Timeout)}}
}

// cancelledOutcome is the end of a run that somebody cancelled.
func cancelledOutcome(message, by string) Outcome {
	return Outcome{Status: Cancelled, Message: message, Account: Account{CancelledBy: by}}
}

// waitedOut is the end of a run whose caller waited as long as it could, while the run was never started.
func waitedOut(run *Run) Outcome {
	return Outcome{Status: TimedOut,
		Message: fmt.Sprintf("The run waited its whole time of %d seconds for a free worker, or for earlier runs of its chat.", int(run.Timeout.Seconds())),
		Account: Account{Reason: fmt.Sprintf("the run waited its whole time of %v for a free worker, or for earlier runs of its chat", run.Timeout)}}
}

// expired is the end of a run that no runner took on in time.
func (e *Engine) expired(run *Run) Outcome {
	reason := fmt.Sprintf("no runner took the run on within its queue time of %v", run.QueueTime)
	if cause := e.away.causeFor(e.config.Load().runnerOf(run)); cause != "" {
		reason += ": " + cause
	}
	return Outcome{Status: Expired,
		Message: fmt.Sprintf("No agent took the run on within its queue time of %d seconds.", int(run.QueueTime.Seconds())),
		Account: Account{Reason: reason}}
}

func unavailableOutcome(retryAfter time.Duration, account Account) Outcome {
	return Outcome{Status: Failed, Failure: RunnerUnavailable, RetryAfter: max(retryAfter, 5*time.Second),
		Message: "The agent is not available right now; try again later.", Account: account}
}

func stoppedOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The service is shutting down; try again in a moment.", Account: Account{Reason: "the service shut down before the run was over"}}
}

// brokenOutcome is for a caller whose run cannot be carried out. It is not stored: the run is carried out when the store
// works again.
func brokenOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The store failed before the run was carried out; try again later."}
}

// signal leaves word in a channel of capacity 1 if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
