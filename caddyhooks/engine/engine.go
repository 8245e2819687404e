// Package engine carries out runs. It knows nothing of HTTP or Caddy: a Run goes in through Submit or Do, a Store keeps
// it, a worker claims it and has the Runner carry out its turn, and its Outcome goes to whoever waits for it and out as
// deliveries.
//
// Runs of one chat are carried out one at a time, in the order in which they were submitted; runs of different chats go
// side by side, as many at once as there are workers.
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
	store   Store
	schemas contract.Cache

	config  atomic.Pointer[Config]
	configs []*Config // all that are attached, the one in force last; under mu

	mu      sync.Mutex
	active  int // workers that have a run, or are about to get one
	running map[string]context.CancelCauseFunc
	doomed  map[string]error // runs to be cancelled as soon as they start, and why
	waiting map[string]chan Outcome

	freed      chan struct{} // a worker has gone, or there may be work for a new one
	deliveries chan struct{} // a delivery was stored, or there is room to send another one
	sending    atomic.Int32  // attempts under way
	stopping   chan struct{}
	stopOnce   sync.Once
	base       context.Context // of all turns and deliveries
	cut        context.CancelCauseFunc
	loops      sync.WaitGroup
	workers    sync.WaitGroup
}

// Config is what an engine works with. It is replaced as a whole when the configuration is reloaded.
type Config struct {
	Runner       Runner
	Channels     map[string]Channel
	Callbacks    Sender
	Workers      int
	Limits       Limits
	DrainTimeout time.Duration
	Log          *zap.Logger
}

// New makes an engine that works on store, and owns it from now on. It starts when a Config is attached.
func New(store Store) *Engine {
	e := &Engine{
		store:      store,
		running:    make(map[string]context.CancelCauseFunc),
		doomed:     make(map[string]error),
		waiting:    make(map[string]chan Outcome),
		freed:      make(chan struct{}, 1),
		deliveries: make(chan struct{}, 1),
		stopping:   make(chan struct{}),
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
		e.loops.Add(2)
		go e.dispatch()
		go e.deliver()
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

// Submit gives the run an id and stores it. When it returns nil the run has been accepted and will be carried out.
func (e *Engine) Submit(ctx context.Context, run *Run) error {
	if err := e.accept(run); err != nil {
		return err
	}
	return e.add(ctx, run)
}

// Do submits the run and waits for its end. When ctx is done first, the run is cancelled unless it has deliveries.
func (e *Engine) Do(ctx context.Context, run *Run) (Outcome, error) {
	if err := e.accept(run); err != nil {
		return Outcome{}, err
	}
	ended := make(chan Outcome, 1)
	e.mu.Lock()
	e.waiting[run.ID] = ended
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.waiting, run.ID)
		delete(e.doomed, run.ID)
		e.mu.Unlock()
	}()
	if err := e.add(ctx, run); err != nil {
		return Outcome{}, err
	}

	timer := time.NewTimer(time.Until(run.deadline(run.AcceptedAt)))
	defer timer.Stop()
	grace := time.Second
	select {
	case outcome := <-ended:
		return outcome, nil
	case <-timer.C:
		e.end(run, timedOut(run), errTimedOut)
	case <-e.stopping:
		// A turn that is under way has the drain time to end in; a run with deliveries stays queued for the next start.
		if run.hasDeliveries() && !e.isRunning(run.ID) {
			return stoppedOutcome(), nil
		}
		if !run.hasDeliveries() {
			e.withdraw(run, stoppedOutcome())
		}
		grace += e.drainTimeout()
	case <-ctx.Done():
		if run.hasDeliveries() {
			return Outcome{}, ctx.Err()
		}
		e.end(run, Outcome{Status: Cancelled, Message: "The caller went away."}, errCancelled)
	}
	// What became of the run is told by the worker that had it. A runner that does not return when it should must not
	// hold the caller too.
	timer.Reset(grace)
	select {
	case outcome := <-ended:
		return outcome, ctx.Err()
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

func (e *Engine) accept(run *Run) error {
	if e.isStopping() {
		return ErrStopping
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("making a run id: %w", err)
	}
	run.ID = id.String()
	run.AcceptedAt = time.Now()
	return nil
}

func (e *Engine) add(ctx context.Context, run *Run) error {
	err := e.store.Add(ctx, run, e.config.Load().Limits)
	if err != nil && !errors.Is(err, ErrQueueFull) && !errors.Is(err, ErrChatFull) {
		return fmt.Errorf("storing a run: %w", err)
	}
	return err
}

// end ends a run with outcome if it still waits, and otherwise cancels its turn because of cause.
func (e *Engine) end(run *Run, outcome Outcome, cause error) {
	if e.withdraw(run, outcome) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if cancel := e.running[run.ID]; cancel != nil {
		cancel(cause)
	} else if _, waiting := e.waiting[run.ID]; waiting {
		e.doomed[run.ID] = cause // claimed, and about to be started
	}
}

func (e *Engine) withdraw(run *Run, outcome Outcome) bool {
	deliveries := deliveriesOf(run, outcome)
	err := e.store.Withdraw(context.Background(), run.ID, outcome, deliveries)
	if errors.Is(err, ErrNotFound) {
		return false
	}
	if err != nil {
		e.log().Error("storing the end of a run failed", zap.String("run_id", run.ID), zap.Error(err))
	}
	e.conclude(run, outcome, deliveries, 0, nil)
	return true
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
