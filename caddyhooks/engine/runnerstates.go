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
func (e *Engine) RunnerStates() []RunnerState {
	config := e.config.Load()
	if config == nil { // nothing is attached yet
		return nil
	}
	e.states.forget(config)
	e.states.mu.Lock()
	notes := make(map[string]runnerNotes)
	for name := range config.Runners {
		notes[name] = runnerNotes{}
	}
	for name, known := range e.states.known {
		notes[name] = *known
	}
	e.states.mu.Unlock()
	states := make([]RunnerState, 0, len(notes))
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		n := notes[name]
		state := RunnerState{Name: name, InFlight: n.inFlight, LastError: n.lastError, LastErrorAt: n.lastErrorAt, LastOK: n.lastOK}
		state.State, state.Since, state.Cause = e.away.stateOf(name)
		states = append(states, state)
	}
	return states
}

// noteCall notes how a call of a runner ended.
func (e *Engine) noteCall(ctx context.Context, name string, runner Runner, turn *Turn, err error) {
	turned := RunnerOK
	if err == nil {
		e.states.answered(name)
	} else {
		text := callError(ctx, runner, turn, err)
		e.states.failed(name, text)
		turned = RunnerFailing
		if unavailable := (*UnavailableError)(nil); text == "" || errors.As(err, &unavailable) {
			turned = "" // it was not taken on, or somebody ended it
		}
	}
	switch config := e.config.Load(); {
	case config.Runners[name] == nil: // it was the last turn of a runner that a reload took away
		e.states.forget(config)
	case turned != "":
		e.away.ended(name, turned)
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
// the time for it. The reply is without the secrets of the runner. If the runner was away and takes the turn on, its runs go on.
// A *RunnerGoneError says that there is no such runner.
func (e *Engine) Try(ctx context.Context, name string) (Reply, error) {
	config := e.config.Load()
	runner, ok := config.Runners[name]
	if !ok {
		return Reply{}, &RunnerGoneError{Name: name}
	}
	if e.isStopping() {
		return Reply{}, ErrStopping
	}
	if !e.states.beginTry(name) {
		return Reply{}, ErrTryUnderWay
	}
	defer e.states.endTry(name)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.base, func() { cancel(ErrStopping) })()

	id := uuid.NewString()
	turn := Turn{RunID: id, ChatID: "try:" + id, Action: Agent, Message: tryMessage, MemoryPreset: MemoryDisabled}
	if at, ok := ctx.Deadline(); ok {
		turn.Deadline, turn.Timeout = at, time.Until(at).Round(time.Second)
	}
	reply, err := e.call(ctx, name, runner, turn)
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &unavailable):
		e.away.doubt(name, unavailable)
	case ctx.Err() == nil:
		e.runnerTookOn(name)
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
