package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/agent"
)

func timedOut(run *Run) Outcome {
	return Outcome{Status: TimedOut, Message: fmt.Sprintf("The agent did not finish within %d seconds.", int(run.Timeout.Seconds())),
		Account: Account{Reason: fmt.Sprintf("the runner did not answer within the %v that the run had", run.Timeout)}}
}

// cancelledOutcome is the end of a run that somebody, or a newer run, cancelled.
func cancelledOutcome(message, by string) Outcome {
	outcome := Outcome{Status: Cancelled, Message: message, Account: Account{CancelledBy: by}}
	if strings.HasPrefix(by, byNewer) {
		outcome.Failure, outcome.Message = Replaced, "A newer run has taken the place of this one."
	}
	return outcome
}

// byNewer is by what a run was cancelled, before the id of the newer run.
const byNewer = "the newer run "

// waitedOut is the end of a run whose caller waited as long as it could, while the run was never started. paused is why, if an operator
// has paused it. Callers do not learn the operator's reason.
func waitedOut(run *Run, paused string) Outcome {
	if paused != "" {
		return Outcome{Status: TimedOut,
			Message: fmt.Sprintf("The run waited its whole time of %d seconds: an operator holds such runs back.", int(run.Timeout.Seconds())),
			Account: Account{Reason: fmt.Sprintf("the run waited its whole time of %v: %s", run.Timeout, paused)}}
	}
	return Outcome{Status: TimedOut,
		Message: fmt.Sprintf("The run waited its whole time of %d seconds for a free worker, or for earlier runs of its chat.",
			int(run.Timeout.Seconds())),
		Account: Account{Reason: fmt.Sprintf("the run waited its whole time of %v for a free worker, or for earlier runs of its chat",
			run.Timeout)}}
}

// putAsideOutcome is for a caller whose time is over while the run is put aside. It is not stored: the run goes on.
func putAsideOutcome(run *Run) Outcome {
	return Outcome{Status: TimedOut, Message: fmt.Sprintf("The run was not over within %d seconds. It goes on: ask for it by its id.",
		int(run.Timeout.Seconds()))}
}

func unavailableOutcome(retryAfter time.Duration, account Account) Outcome {
	return Outcome{Status: Failed, Failure: RunnerUnavailable, RetryAfter: max(retryAfter, 5*time.Second),
		Message: "The agent is not available right now; try again later.", Account: account}
}

func stoppedOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The service is shutting down; try again in a moment.",
		Account: Account{Reason: "the service shut down before the run was over"}}
}

// brokenOutcome is for a caller whose run cannot be carried out. It is not stored: the run is carried out when the store works again.
func brokenOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The store failed before the run was carried out; try again later."}
}

// unreachableOutcome is for a caller whose run, or the end of it, may not be stored. It is not stored itself: what becomes of the run is
// decided when the store is back.
func unreachableOutcome() Outcome {
	return Outcome{Status: Failed, Failure: ShuttingDown, RetryAfter: 5 * time.Second,
		Message: "The store cannot be reached, so it is not known what becomes of the run; ask for it later, or send the request again with " +
			"its Idempotency-Key."}
}

// interruptedOutcome is the end of a run whose agent went down in the middle of it.
func interruptedOutcome(account Account) Outcome {
	account.Reason = "the agent went down in the middle of the run: " + account.Reason
	return Outcome{Status: Failed, Failure: Interrupted, Message: "The agent went down in the middle of the run.", Account: account}
}

// startedInVain says that a run was interrupted so often. What went down in earlier attempts is not known.
func startedInVain(attempts int) string {
	return fmt.Sprintf("the run was started %d times, and the service or the agent went down each time", attempts)
}

// capital is a sentence with a capital letter.
func capital(sentence string) string { return strings.ToUpper(sentence[:1]) + sentence[1:] }

// failed completes outcome with the reason for which a turn gave no answer.
func failed(ctx context.Context, run *Run, outcome Outcome, err error) (Outcome, error) {
	before := outcome
	var unavailable *UnavailableError
	var gone *RunnerGoneError
	var interrupted *InterruptedError
	var cancelled *cancelledError
	reason := Account{Reason: err.Error()}
	var answer AnswerError
	if errors.As(err, &answer) {
		reason.LastAnswer = answer.Answer()
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimedOut) && errors.As(err, &unavailable) && !before.HasText:
		outcome = Outcome{Status: TimedOut, Message: fmt.Sprintf("The agent did not take the run on within %d seconds.",
			int(run.Timeout.Seconds())),
			Account: Account{Reason: fmt.Sprintf("the runner did not take the run on within the %v that the run had: %v", run.Timeout, err),
				LastAnswer: reason.LastAnswer}}
	case errors.Is(cause, errTimedOut):
		outcome = timedOut(run)
		if errors.As(err, &unavailable) { // of a repair
			outcome.Account.Reason += ": " + reason.Reason
		} else if before.Repairs > 0 {
			outcome.Account.Reason += fmt.Sprintf(": repair attempt %d was under way", before.Repairs)
		}
		outcome.Account.Reason += agent.LastWordsIn(err)
	case errors.As(cause, &cancelled):
		outcome = cancelledOutcome("The run was cancelled.", cancelled.by)
	case errors.Is(cause, ErrStopping):
		outcome, err = stoppedOutcome(), ErrStopping
	case errors.As(err, &unavailable):
		outcome = unavailableOutcome(unavailable.RetryAfter, reason)
	case errors.As(err, &gone):
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent that the run was accepted for is not configured any more.",
			Account: reason}
	case errors.As(err, &interrupted):
		outcome = interruptedOutcome(reason)
	default:
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent failed to answer.", Account: reason}
	}
	outcome.Text, outcome.HasText, outcome.Repairs, outcome.Checked = before.Text, before.HasText, before.Repairs, before.Checked
	return outcome, err
}

// errTimedOut is why the context of a turn was cancelled whose run has no time left.
var errTimedOut = errors.New("the time of the run is up")

// cancelledError is why the context of a turn was cancelled whose run somebody cancelled.
type cancelledError struct{ by string }

func (e *cancelledError) Error() string { return "the run was cancelled by " + e.by }
