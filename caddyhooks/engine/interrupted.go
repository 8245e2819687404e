package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.uber.org/zap"
)

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

// startAgain is the end of a claim on a run whose agent went down in the middle of the turn, if the run is to be started again. The
// rules are those for a service that went down. Otherwise it completes the outcome. A run with an answer is not started again: its
// turn was carried out, and a repair was not.
func (e *Engine) startAgain(ctx context.Context, a *attempt, outcome *Outcome, err error) (end End, again bool) {
	claim, run := a.claim, a.claim.Run
	var interrupted *InterruptedError
	if !errors.As(err, &interrupted) || ctx.Err() != nil || outcome.HasText {
		return End{}, false
	}
	if most := a.config.MaxAttempts; most > 0 && claim.Attempt >= most {
		if claim.Attempt > 1 {
			outcome.Message, outcome.Account.Reason = capital(startedInVain(claim.Attempt))+".", startedInVain(claim.Attempt)+": "+err.Error()
		}
		return End{}, false
	}
	stopping := e.isStopping()
	if stopping && e.onlyForCallerHere(run) {
		*outcome = stoppedOutcome()
		a.notes.complete(outcome)
		return End{}, false
	}
	end = End{Requeue: true, Interrupted: true, Pause: pauseBefore(claim.Attempt, 0, rand.Float64)}
	if claim.Awaited && claim.Attempt == 1 {
		end.Pause = 0
	}
	if claim.Awaited && end.Pause >= time.Until(a.deadline.at) {
		return End{}, false // its caller would rather know at once
	}
	if end.Pause > 0 {
		end.WaitingFor = "The agent went down in the middle of the run. The run starts again in a moment."
	}
	fields := []zap.Field{zap.String("run_id", run.ID), zap.String("runner", a.config.runnerOf(run)), zap.Int("attempt", claim.Attempt), zap.Duration("pause", end.Pause), zap.Error(err)}
	if outcome.SessionRenewed { // the next attempt finds the new session, and the run will not tell
		fields = append(fields, zap.Bool("session_renewed", true))
	}
	a.config.Log.Warn("the agent went down in the middle of a run, which is started again", fields...)
	if stopping {
		e.tell(run.ID, stoppedOutcome()) // the next start carries it out
	}
	return end, true
}
