package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// RunnerState is how a runner fares, as far as this node knows since it was started. Health, metrics, the overview, the page and the
// command line all tell this and nothing else.
type RunnerState struct {
	Name        string
	State       string    // one of the constants below
	Since       time.Time // when it did not take on the first turn, if it takes on none …
	Cause       string    // … and why it did not take on the last one, for operators
	InFlight    int       // calls of the runner that are under way
	LastError   string    // of the last call that failed, on one line, for operators
	LastErrorAt time.Time
	LastOK      time.Time // when a call was last answered
}

// The states of runners.
const (
	RunnerOK          = "ok"          // it answered the last turn that it took on
	RunnerFailing     = "failing"     // it took on the last turn, and did not answer it: LastError says why
	RunnerUnreachable = "unreachable" // it could not be reached for the last turn, and its runs wait
	RunnerBusy        = "busy"        // it was too busy for each of the last turns, and its runs wait
	RunnerUnknown     = "unknown"     // it had no turn so far, or has not taken on the last one, and no other turn was tried since
)

// IsUp reports whether the runner takes on turns, as far as is known.
func (s *RunnerState) IsUp() bool { return s.State != RunnerUnreachable && s.State != RunnerBusy }

// ErrTryUnderWay is returned by Try while another try of the runner is under way.
var ErrTryUnderWay = errors.New("a try of this runner is under way")

// runners calls the runners of the configuration in force, and knows how they fare.
type runners struct {
	*node
	unreachable unreachableRunners
	states      runnerStates
	workerFree  chan struct{} // there may be work for a worker
}

// runnerStates are notes on the calls of runners. They outlive reloads, by the name of the runner.
type runnerStates struct {
	mu    sync.Mutex
	known map[string]*runnerNotes
}

type runnerNotes struct {
	inFlight    int
	trying      bool
	lastError   string
	lastErrorAt time.Time
	lastOK      time.Time
}

// get returns the notes on a runner. It is called under the lock.
func (s *runnerStates) get(name string) *runnerNotes {
	notes := s.known[name]
	if notes == nil {
		if s.known == nil {
			s.known = make(map[string]*runnerNotes)
		}
		notes = new(runnerNotes)
		s.known[name] = notes
	}
	return notes
}

// begin notes that a call begins.
func (s *runnerStates) begin(name string) {
	s.mu.Lock()
	s.get(name).inFlight++
	s.mu.Unlock()
}

// answered notes that a call is over and was answered.
func (s *runnerStates) answered(name string) {
	now := time.Now()
	s.mu.Lock()
	notes := s.get(name)
	notes.inFlight--
	notes.lastOK = now
	s.mu.Unlock()
}

// failed notes that a call is over without an answer. The text is "" if that is not the runner's fault.
func (s *runnerStates) failed(name, text string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.get(name)
	notes.inFlight--
	if text != "" {
		notes.lastError, notes.lastErrorAt = text, now
	}
}

// beginTry reports false if a try is under way.
func (s *runnerStates) beginTry(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.get(name)
	if notes.trying {
		return false
	}
	notes.trying = true
	return true
}

func (s *runnerStates) endTry(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.get(name).trying = false
}

// forget drops the notes on runners that are gone and have no calls under way. It looks at all of them: there are few.
func (s *runnerStates) forget(config *Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(name string, notes *runnerNotes) bool {
		return config.Runners[name] == nil && notes.inFlight == 0 && !notes.trying
	})
}

// RunnerStates tells how the runners fare that are configured, and those that are gone and still have turns under way, sorted
// by name.
func (r *runners) RunnerStates() []RunnerState {
	config := r.config()
	if config == nil { // nothing is attached yet
		return nil
	}
	r.states.forget(config)
	r.states.mu.Lock()
	notes := make(map[string]runnerNotes)
	for name := range config.Runners {
		notes[name] = runnerNotes{}
	}
	for name, known := range r.states.known {
		notes[name] = *known
	}
	r.states.mu.Unlock()
	states := make([]RunnerState, 0, len(notes))
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		n := notes[name]
		state := RunnerState{Name: name, InFlight: n.inFlight, LastError: n.lastError, LastErrorAt: n.lastErrorAt, LastOK: n.lastOK}
		state.State, state.Since, state.Cause = r.unreachable.stateOf(name)
		states = append(states, state)
	}
	return states
}

// noteCall notes how a call of a runner ended.
func (r *runners) noteCall(ctx context.Context, name string, runner Runner, turn *Turn, err error) {
	turned := RunnerOK
	if err == nil {
		r.states.answered(name)
	} else {
		text := callError(ctx, runner, turn, err)
		r.states.failed(name, text)
		turned = RunnerFailing
		if unavailable := (*UnavailableError)(nil); text == "" || errors.As(err, &unavailable) {
			turned = "" // it was not taken on, or somebody ended it
		}
	}
	switch config := r.config(); {
	case config.Runners[name] == nil: // it was the last turn of a runner that a reload took away
		r.states.forget(config)
	case turned != "":
		r.unreachable.ended(name, turned)
	}
}

// callError is why a call failed, for operators and without the secrets of the runner. It is "" if somebody ended the call.
func callError(ctx context.Context, runner Runner, turn *Turn, err error) string {
	text := err.Error()
	if cause := context.Cause(ctx); cause != nil {
		var unavailable *UnavailableError
		switch timedOut := errors.Is(cause, errTimedOut) || errors.Is(cause, context.DeadlineExceeded); {
		case !timedOut:
			return ""
		case !errors.As(err, &unavailable):
			text = fmt.Sprintf("the runner did not answer within %v", turn.Timeout) + lastWordsIn(err)
		}
	}
	if redactor, ok := runner.(Redactor); ok {
		text = redactor.Redact(text) // before a secret can be cut in two
	}
	return oneline.Of(text, maxReason)
}

// tryMessage is what a runner is told to see whether it works.
const tryMessage = "Answer with OK."

// Try has a runner carry out one turn, so that an operator can see whether it works. It makes no run and stores nothing. ctx has
// the time for it. The reply is without the secrets of the runner. If the runner was unreachable and takes the turn on, its runs go on.
// A *RunnerGoneError says that there is no such runner.
func (r *runners) Try(ctx context.Context, name string) (Reply, error) {
	config := r.config()
	runner, ok := config.Runners[name]
	if !ok {
		return Reply{}, &RunnerGoneError{Name: name}
	}
	if r.isStopping() {
		return Reply{}, ErrStopping
	}
	if !r.states.beginTry(name) {
		return Reply{}, ErrTryUnderWay
	}
	defer r.states.endTry(name)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.base, func() { cancel(ErrStopping) })()

	id := uuid.NewString()
	turn := Turn{RunID: id, ChatID: "try:" + id, Action: Agent, Message: tryMessage, MemoryPreset: MemoryDisabled}
	if at, ok := ctx.Deadline(); ok {
		turn.Deadline, turn.Timeout = at, time.Until(at).Round(time.Second)
	}
	reply, err := r.call(ctx, name, runner, turn)
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &unavailable):
		r.unreachable.doubt(name, unavailable)
	case ctx.Err() == nil:
		r.tookOn(name)
	}
	if err != nil {
		if text := callError(ctx, runner, &turn, err); text != "" {
			err = &tryError{text, err}
		}
		return Reply{}, err
	}
	if redactor, ok := runner.(Redactor); ok {
		reply.Text = redactor.Redact(reply.Text)
	}
	return reply, nil
}

// tryError is why a try failed, in the words of RunnerState.LastError.
type tryError struct {
	text string
	err  error
}

func (e *tryError) Error() string { return e.text }
func (e *tryError) Unwrap() error { return e.err }

// call calls the runner once. A panic of the runner is an error. A turn that stays with the runner for a while after it was
// sent has been taken on, which is good to know while the runner counts as unreachable.
func (r *runners) call(ctx context.Context, name string, runner Runner, turn Turn) (reply Reply, err error) {
	r.states.begin(name)
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError("the runner", p)
		}
		r.noteCall(ctx, name, runner, &turn, err)
	}()
	ended, refused := r.unreachable.tryAgain(name)
	if refused {
		defer ended()
	}
	if sent := turn.Sent; sent != nil && refused {
		over, end := context.WithCancel(ctx)
		defer end()
		turn.Sent = func() {
			sent()
			timer := time.AfterFunc(takenOnAfter, func() {
				if over.Err() == nil {
					r.tookOn(name)
				}
			})
			context.AfterFunc(over, func() { timer.Stop() })
		}
	}
	return runner.Run(ctx, turn)
}

// tookOn notes that a runner took on a turn. If it was unreachable, its runs can go on.
func (r *runners) tookOn(name string) {
	if unreachable, back := r.unreachable.takenOn(name); back {
		r.log().Info("the runner is back; its runs go on", zap.String("runner", name), zap.Duration("unreachable", unreachable))
		signal(r.workerFree)
	}
}

// gone notes that a run was found whose runner is not configured any more. The others need not wait for it either.
func (r *runners) gone(name string) {
	if r.unreachable.gone(name) {
		signal(r.workerFree)
	}
}

// refused notes that a runner did not take on a turn. For a runner that is gone since a reload nobody waits.
func (r *runners) refused(config *Config, run *Run, name string, err *UnavailableError, start time.Time) {
	if r.config().Runners[name] == nil {
		return
	}
	opened, news := r.unreachable.failed(name, err, start)
	if news {
		config.Log.Warn("the runner cannot be reached", zap.String("runner", name), zap.String("run_id", run.ID), zap.Error(err))
	}
	if opened {
		config.Log.Warn("the runner does not take on runs; they wait until it does", zap.String("runner", name), zap.Error(err))
	} else if !news {
		config.Log.Debug("the runner did not take on a run", zap.String("runner", name), zap.String("run_id", run.ID), zap.Error(err))
	}
}

// changed is called when another config is in force: its runners may be others.
func (r *runners) changed() {
	config := r.config()
	r.unreachable.reset(config)
	r.states.forget(config)
}

// expired is the end of a run that no runner took on in time.
func (r *runners) expired(run *Run) Outcome {
	reason := fmt.Sprintf("no runner took the run on within its queue time of %v", run.QueueTime)
	if cause := r.unreachable.causeFor(r.config().runnerOf(run)); cause != "" {
		reason += ": " + cause
	} else if paused := r.pauses.Of(r.config().startOf(run)); paused != "" {
		reason += ": " + paused
	}
	return Outcome{Status: Expired,
		Message: fmt.Sprintf("No agent took the run on within its queue time of %d seconds.", int(run.QueueTime.Seconds())),
		Account: Account{Reason: reason}}
}
