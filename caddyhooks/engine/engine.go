// Package engine carries out runs. It knows nothing of HTTP or Caddy: a Run goes in through Submit or Do, a Store keeps
// it, a worker claims it and has the Runner carry out its turn, and its Outcome goes to whoever waits for it and out as
// deliveries.
//
// Runs of one chat are carried out one at a time, in the order in which they were accepted; runs of different chats go
// side by side, as many at once as there are workers.
//
// A run that was accepted is carried out at least once. What was queued when the process ended is carried out after the
// next start, and what was running is started again, unless it has been started too often or only a caller who is gone
// would have been told.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// Engine carries out the runs of one store.
type Engine struct {
	id      string // of this engine alone, to know its own callers by
	store   Store
	schemas contract.Cache

	config  atomic.Pointer[Config]
	configs []*Config // all that are attached, the one in force last; under mu

	mu      sync.Mutex
	active  int // workers that have a run, or are about to get one
	running map[string]*runningTurn
	doomed  map[string]error   // runs to be cancelled as soon as they start, and why
	waiting map[string]*waiter // for the end of a run

	freed      chan struct{} // a worker has gone, or there may be work for a new one
	deliveries chan struct{} // a delivery was stored, or there is room to send another one
	sending    atomic.Int32  // attempts under way
	unsettled  atomic.Int32  // those and the ones whose end is being stored
	breakers   breakers
	stopping   chan struct{}
	stopOnce   sync.Once
	base       context.Context // of all turns and deliveries
	cut        context.CancelCauseFunc
	loops      sync.WaitGroup
	renewer    sync.WaitGroup // goes on until the last turn is over
	workers    sync.WaitGroup
}

// Config is what an engine works with. It is replaced as a whole when the configuration is reloaded.
type Config struct {
	Runner       Runner
	Channels     map[string]Channel
	Callbacks    Sender
	Workers      int
	Limits       Limits
	MaxAttempts  int // how often a run is started, if the process dies while it is carried out; 0 is no limit
	DrainTimeout time.Duration
	Log          *zap.Logger
}

// New makes an engine that works on store, and owns it from now on. It starts when a Config is attached.
func New(store Store) *Engine {
	e := &Engine{
		id:         uuid.NewString(),
		store:      store,
		running:    make(map[string]*runningTurn),
		doomed:     make(map[string]error),
		waiting:    make(map[string]*waiter),
		freed:      make(chan struct{}, 1),
		deliveries: make(chan struct{}, 1),
		stopping:   make(chan struct{}),
		breakers:   breakers{throttle: store.Throttle},
	}
	e.base, e.cut = context.WithCancelCause(context.Background())
	return e
}

// Store returns the store that the engine works on.
func (e *Engine) Store() Store { return e.store }

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
		e.loops.Add(3)
		go e.dispatch()
		go e.deliver()
		go e.prune()
		e.renewer.Add(1)
		go e.renew()
	}
	signal(e.freed)
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
			e.config.Store(e.configs[n-1])
			signal(e.freed)
		}
	}
}

// Submit stores the run, which gets its id. When it returns nil the run has been accepted and will be carried out.
func (e *Engine) Submit(ctx context.Context, run *Run) error {
	if e.isStopping() {
		return ErrStopping
	}
	run.AcceptedAt = time.Now()
	err := e.store.Add(ctx, run, e.config.Load().Limits)
	var duplicate *DuplicateError
	if err != nil && !errors.Is(err, ErrQueueFull) && !errors.Is(err, ErrChatFull) && !errors.As(err, &duplicate) {
		return fmt.Errorf("storing a run: %w", err)
	}
	return err
}

// Do submits the run and waits for its end. When ctx is done first, the run is cancelled unless it has deliveries.
func (e *Engine) Do(ctx context.Context, run *Run) (Outcome, error) {
	run.Owner = e.id
	if err := e.Submit(ctx, run); err != nil {
		return Outcome{}, err
	}
	w := e.wait(run.ID)
	defer e.stopWaiting(run.ID, w)
	// It may have ended before anybody could be told to wait for it.
	if record, err := e.store.Get(ctx, run.ID); err == nil && record.Status.Ended() {
		return record.Outcome, nil
	}

	timer := time.NewTimer(time.Until(run.deadline(run.AcceptedAt, true)))
	defer timer.Stop()
	grace := time.Second
	select {
	case <-w.ended:
		return w.outcome, nil
	case <-timer.C:
		_ = e.end(run, timedOut(run), errTimedOut) // a store that fails is in the log; the run's time is up all the same
	case <-e.stopping:
		// A turn that is under way has the drain time to end in; a run with deliveries stays queued for the next start.
		if run.hasDeliveries() && !e.isRunning(run.ID) {
			return stoppedOutcome(), nil
		}
		if !run.hasDeliveries() {
			_ = e.withdraw(run, stoppedOutcome())
		}
		grace += e.drainTimeout()
	case <-ctx.Done():
		if run.hasDeliveries() {
			return Outcome{}, ctx.Err()
		}
		_ = e.end(run, Outcome{Status: Cancelled, Message: "The caller went away."}, errCancelled)
	}
	// What became of the run is told by the worker that had it. A runner that does not return when it should must not
	// hold the caller too.
	timer.Reset(grace)
	select {
	case <-w.ended:
		return w.outcome, ctx.Err()
	case <-timer.C:
	}
	if ctx.Err() != nil {
		return Outcome{}, ctx.Err()
	}
	if e.isStopping() {
		return stoppedOutcome(), nil
	}
	return timedOut(run), nil
}

// end ends a run with outcome if it still waits, and otherwise cancels its turn because of cause.
func (e *Engine) end(run *Run, outcome Outcome, cause error) error {
	err := e.withdraw(run, outcome)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if turn := e.running[run.ID]; turn != nil {
		turn.cancel(cause)
	} else if err != nil && e.waiting[run.ID] != nil {
		e.doomed[run.ID] = cause // claimed, and about to be started
	}
	return nil
}

// withdraw ends a run that is queued. ErrNotFound says that it is not.
func (e *Engine) withdraw(run *Run, outcome Outcome) error {
	end := newEnd(run, outcome)
	err := e.store.Withdraw(context.Background(), run.ID, end)
	if err == nil {
		e.conclude(run, end, 0, nil)
	} else if !errors.Is(err, ErrNotFound) {
		signal(e.deliveries) // the store cannot know that they were not stored
		e.log().Error("storing the end of a run failed", zap.String("run_id", run.ID), zap.Error(err))
	}
	return err
}

func (e *Engine) isRunning(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, running := e.running[id]
	return running
}

// Stop ends the engine: nothing new is accepted or claimed, turns under way have the drain time to end, what is left
// goes back to the queue, and callers that still wait are told to come back. It may be called more than once, and
// returns when all is over and the store is closed.
func (e *Engine) Stop() {
	e.BeginStop()
	e.loops.Wait()
	drained := make(chan struct{})
	go func() {
		e.workers.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-e.base.Done(): // the drain time is over
		select {
		case <-drained:
		case <-time.After(stragglerTimeout):
			e.log().Error("a runner or channel does not return although it was told to; going on without it")
		}
	}
	e.cut(ErrStopping)
	e.renewer.Wait()
	if err := e.store.Close(); err != nil {
		e.log().Error("closing the store failed", zap.Error(err))
	}
}

// stragglerTimeout is how long Stop waits for a turn that has been cancelled.
const stragglerTimeout = 5 * time.Second

// BeginStop is the first half of Stop. It returns at once, for those who must not wait: the web server waits for the
// callers that the engine holds, and so must hear of the end before them.
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

func (e *Engine) log() *zap.Logger {
	if c := e.config.Load(); c != nil {
		return c.Log
	}
	return zap.NewNop()
}

// Why a turn's context was cancelled.
var (
	errTimedOut  = errors.New("the time of the run is up")
	errCancelled = errors.New("the run was cancelled")
)

func timedOut(run *Run) Outcome {
	return Outcome{Status: TimedOut, Message: fmt.Sprintf("The agent did not finish within %d seconds.", int(run.Timeout.Seconds()))}
}

func stoppedOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The service is shutting down; try again in a moment."}
}

// signal leaves word in a channel of capacity 1 if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
