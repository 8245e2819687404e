package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
)

// Traces shows what becomes of runs as spans of traces. Its methods must not block. The engine knows nothing of where the spans go.
//
// The functions that end a span get "", or the kind of the failure: a word that callers and agents cannot choose.
type Traces interface {
	// RunEnded is called for each run with a trace parent whose end this engine has stored.
	RunEnded(run *Run, end TracedEnd)

	// RunAgain is called before a run is stored that repeats an earlier one. The new run gets the trace parent.
	RunAgain(ctx context.Context, earlier *Run) (traceParent string, end func(failure string))

	// TurnBegins is called before each call of a runner, if one of its runs has a trace parent. The runner is told the new one.
	TurnBegins(call TracedCall) (traceParent string, end func(used []Use, failure string))

	// DeliveryBegins is called before each attempt at a delivery of a run that has a trace parent. The receiver is told the new
	// one. When the span ends, d tells how the attempt went.
	DeliveryBegins(run *Run, d *Delivery) (traceParent string, end func(failure string))
}

// TracedEnd is how a run ended.
type TracedEnd struct {
	Status   Status
	Failure  Failure
	Repairs  int
	Attempts int           // how often the run was started
	Waited   time.Duration // until it was last started, 0 if it was not
	Folded   int           // how many runs its turn had, if it led them
	Leader   *Run          // the run that led its turn, if that is another one
}

// TracedCall is a call of a runner.
type TracedCall struct {
	Runs    []*Run // that the turn is for, in order
	Runner  string
	Attempt int // how often the run was started
	Try     int // counts the calls for this turn, or for this repair, from 1
	Repair  int // counts repairs from 1; 0 is the turn itself
	Tier    string
}

// traceRun shows the span of a run that has ended.
func (c *configs) traceRun(run *Run, outcome *Outcome, how *ending) {
	if traces := c.traces(); traces != nil && run.TraceParent != "" {
		traces.RunEnded(run, TracedEnd{Status: outcome.Status, Failure: outcome.Failure, Repairs: outcome.Repairs,
			Attempts: how.attempts, Waited: how.waited, Folded: how.folded, Leader: how.leader})
	}
}

// traceAgain begins the trace of a run that repeats an earlier one.
func (c *configs) traceAgain(ctx context.Context, run, earlier *Run) (end func(error)) {
	traces := c.traces()
	if traces == nil {
		return notTraced
	}
	traceParent, endSpan := traces.RunAgain(ctx, earlier)
	run.TraceParent = traceParent
	return func(err error) {
		if err != nil {
			endSpan("refused")
		} else {
			endSpan("")
		}
	}
}

// traceTurn begins the span of a call of a runner, which is told about it.
func (c *configs) traceTurn(ctx context.Context, claim *Claim, turn *Turn, runner string, try int) (end func([]Use, error)) {
	traces := c.traces()
	if traces == nil {
		return func([]Use, error) {}
	}
	for run := range claim.eachRun {
		if run.TraceParent == "" {
			continue
		}
		traceParent, endSpan := traces.TurnBegins(TracedCall{
			Runs: claim.runs(), Runner: runner, Attempt: claim.Attempt, Try: try, Repair: turn.Repair, Tier: turn.Tier,
		})
		turn.TraceParent = traceParent
		return func(used []Use, err error) { endSpan(used, turnFailure(ctx, err)) }
	}
	return func([]Use, error) {}
}

// notTraced is the end of a span that is not there.
func notTraced(error) {}

// turnFailure is the kind of failure of a call of a runner, "" if it went well.
func turnFailure(ctx context.Context, err error) string {
	var unavailable *UnavailableError
	var interrupted *InterruptedError
	var cancelled *cancelledError
	var panicked *panics.Error
	switch cause := context.Cause(ctx); {
	case err == nil:
		return ""
	case errors.Is(cause, errTimedOut):
		return string(TimedOut)
	case errors.As(cause, &cancelled):
		return string(Cancelled)
	case errors.Is(cause, ErrStopping):
		return string(ShuttingDown)
	case errors.Is(cause, ErrClaimLost):
		return "claim_lost"
	case errors.As(err, &unavailable) && unavailable.Busy:
		return "runner_busy"
	case errors.As(err, &unavailable):
		return string(RunnerUnavailable)
	case errors.As(err, &interrupted):
		return string(Interrupted)
	case errors.As(err, &panicked):
		return "panic"
	default:
		return string(RunnerFailed)
	}
}

// deliveryFailure is the kind of failure of an attempt at a delivery: the status of the answer, if that tells. "" if it went well.
func deliveryFailure(ctx context.Context, d *Delivery, err error) string {
	var unreachable *UnreachableError
	var panicked *panics.Error
	switch {
	case err == nil:
		return ""
	case d.LastStatus >= 300:
		return strconv.Itoa(d.LastStatus)
	case d.LastStatus != 0: // some services say so in the body
		return "refused"
	case errors.Is(context.Cause(ctx), ErrClaimLost):
		return "claim_lost"
	case ctx.Err() != nil:
		return string(ShuttingDown)
	case errors.As(err, &unreachable):
		return "unreachable"
	case errors.As(err, &panicked):
		return "panic"
	default:
		return "not_sent"
	}
}

type traceParentKey struct{}

// DeliveryTraceParent is the trace parent that the receiver of a delivery is told, "" if there is none. ctx is that of Sender.Send.
func DeliveryTraceParent(ctx context.Context) string {
	traceParent, _ := ctx.Value(traceParentKey{}).(string)
	return traceParent
}

// traceID is the id of the trace that the run belongs to, "" if it belongs to none.
func (r *Run) traceID() string {
	_, rest, _ := strings.Cut(r.TraceParent, "-")
	id, _, _ := strings.Cut(rest, "-")
	return id
}
