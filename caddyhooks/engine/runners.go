package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/account"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/agent"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/runnerstate"
)

// RunnerState is how a runner fares: see runnerstate.State.
type RunnerState = runnerstate.State

// The states of runners.
const (
	RunnerOK          = runnerstate.OK
	RunnerFailing     = runnerstate.Failing
	RunnerUnreachable = runnerstate.Unreachable
	RunnerBusy        = runnerstate.Busy
	RunnerUnknown     = runnerstate.Unknown
)

// ErrTryUnderWay is returned by Try while another try of the runner is under way.
var ErrTryUnderWay = errors.New("a try of this runner is under way")

// runners calls the runners of the configuration in force, and knows how they fare.
type runners struct {
	*node
	outages    runnerstate.Outages
	calls      runnerstate.Calls
	workerFree chan struct{} // there may be work for a worker
}

// RunnerStates tells how the runners fare that are configured, and those that are gone and still have turns under way, sorted
// by name.
func (r *runners) RunnerStates() []RunnerState {
	config := r.config()
	if config == nil { // nothing is attached yet
		return nil
	}
	r.calls.Forget(config.hasRunner)
	states := r.calls.States(slices.Collect(maps.Keys(config.Runners)))
	for i := range states {
		state := &states[i]
		state.State, state.Since, state.Cause = r.outages.State(state.Name)
	}
	return states
}

// noteCall notes how a call of a runner ended.
func (r *runners) noteCall(ctx context.Context, name string, runner Runner, turn *Turn, err error) {
	turned := RunnerOK
	if _, takenOn := errors.AsType[*TakenOnError](err); err == nil || takenOn {
		r.calls.Answered(name)
	} else {
		text := callError(ctx, runner, turn, err)
		r.calls.Failed(name, text)
		turned = RunnerFailing
		if _, unavailable := errors.AsType[*UnavailableError](err); text == "" || unavailable {
			turned = "" // it was not taken on, or somebody ended it
		}
	}
	switch config := r.config(); {
	case config.Runners[name] == nil: // it was the last turn of a runner that a reload took away
		r.calls.Forget(config.hasRunner)
	case turned != "":
		r.outages.Ended(name, turned)
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
			text = fmt.Sprintf("the runner did not answer within %v", turn.Timeout) + agent.LastWordsIn(err)
		}
	}
	return redactOf(runner).Line(text, account.MaxReason)
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
	if !r.calls.BeginTry(name) {
		return Reply{}, ErrTryUnderWay
	}
	defer r.calls.EndTry(name)
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
		r.outages.Doubt(name, refusalOf(unavailable))
	case ctx.Err() == nil:
		r.tookOn(name)
	}
	if err != nil {
		if text := callError(ctx, runner, &turn, err); text != "" {
			err = &tryError{text, err}
		}
		return Reply{}, err
	}
	if redact := redactOf(runner); redact != nil {
		reply.Text = redact(reply.Text)
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
	r.calls.Begin(name)
	defer func() {
		if p := recover(); p != nil {
			err = panics.New("the runner", p)
		}
		r.noteCall(ctx, name, runner, &turn, err)
	}()
	ended, refused := r.outages.TryAgain(name)
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
	if unreachable, back := r.outages.TakenOn(name); back {
		r.log().Info("the runner is back; its runs go on", zap.String("runner", name), zap.Duration("unreachable", unreachable))
		signal(r.workerFree)
	}
}

// gone notes that a run was found whose runner is not configured any more. The others need not wait for it either.
func (r *runners) gone(name string) {
	if r.outages.Gone(name) {
		signal(r.workerFree)
	}
}

// refused notes that a runner did not take on a turn. For a runner that is gone since a reload nobody waits.
func (r *runners) refused(config *Config, run *Run, name string, err *UnavailableError, start time.Time) {
	if r.config().Runners[name] == nil {
		return
	}
	opened, news := r.outages.Failed(name, refusalOf(err), start)
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
	r.outages.Reset(config.hasRunner)
	r.calls.Forget(config.hasRunner)
}

// expired is the end of a run that no runner took on in time.
func (r *runners) expired(run *Run) Outcome {
	reason := fmt.Sprintf("no runner took the run on within its queue time of %v", run.QueueTime)
	if cause := r.outages.Cause(r.config().runnerOf(run)); cause != "" {
		reason += ": " + cause
	} else if paused := r.pauses.Of(r.config().startOf(run)); paused != "" {
		reason += ": " + paused
	} else if limit := r.budgets.Holding(run.Hook, run.Budgets); limit != "" {
		reason += ": the budget of " + limit + " is used up"
	}
	return Outcome{Status: Expired,
		Message: fmt.Sprintf("No agent took the run on within its queue time of %d seconds.", int(run.QueueTime.Seconds())),
		Account: Account{Reason: reason}}
}
