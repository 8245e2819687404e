package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// attempt is one start of a run, and what belongs to it.
type attempt struct {
	config   *Config
	claim    *Claim
	deadline *deadline
	steps    *stepNotes
	notes    *replyNotes
	chat     *chatOfTurn    // nil without memory
	writer   *stream.Writer // of what the runner says; repairs have none
	began    time.Time
}

// carryOutTurn carries out the turn and sees to it that the answer fits the schema. The error is why there is no answer. A
// panic, in a runner or here, is the failure of this run alone.
func (e *Engine) carryOutTurn(ctx context.Context, a *attempt) (outcome Outcome, err error) {
	run, steps := a.claim.Run, a.steps
	defer func() {
		if p := recover(); p != nil {
			outcome, err = failed(ctx, run, outcome, newPanicError("the turn", p))
		}
		a.notes.complete(&outcome)
	}()
	if cause := context.Cause(ctx); cause != nil { // it was cancelled before it began
		if errors.Is(cause, errTimedOut) {
			return waitedOut(run), cause
		}
		return failed(ctx, run, Outcome{}, cause)
	}
	var schema *contract.Schema
	turn := Turn{
		RunID: run.ID, ChatID: run.ChatID, Action: run.Action, Hook: run.Hook, Name: run.Name,
		Message: FoldMessage(a.claim.runs()), Folded: a.claim.forTurn(), Tier: run.TurnTier(), MemoryPreset: run.MemoryPreset,
		ResponseSchema: run.Schema, Metadata: run.Metadata, Timeout: run.Timeout, TraceParent: run.TraceParent,
		Chat: a.chat.forTurn(), Deadline: a.deadline.at, Sent: a.deadline.sent,
	}
	if run.Schema != nil {
		if schema, err = e.schemas.Compile(run.Schema); err != nil {
			return Outcome{Status: Failed, Failure: SchemaUnmet, Message: err.Error(), Account: Account{Reason: err.Error()}}, err
		}
		turn.System = schema.Instructions()
	}
	reply, err := e.turn(ctx, a, turn)
	if err != nil {
		return failed(ctx, run, Outcome{}, err)
	}
	outcome = Outcome{Status: Completed, Text: reply.Text, HasText: true, Checked: schema != nil}
	if schema == nil {
		return outcome, nil
	}

	result, err := schema.Fulfil(ctx, reply.Text, func(ctx context.Context, n int, prompt contract.Prompt) (string, error) {
		steps.refuse(prompt.Failures)
		repair := turn
		repair.Repair = n
		repair.System, repair.Message = prompt.System, prompt.Message
		repair.Tier = run.repairTier()
		repair.MemoryPreset = MemoryDisabled
		repair.Metadata, repair.Chat, repair.Sent, repair.Folded = nil, nil, nil, nil
		reply, err := e.turn(ctx, a, repair)
		return reply.Text, err
	})
	outcome.Repairs = result.Repairs
	switch {
	case result.Failures != nil:
		steps.refuse(result.Failures)
	case errors.Is(err, contract.ErrNotFulfilled):
		steps.refuse([]string{err.Error()})
	}
	if errors.Is(err, contract.ErrNotFulfilled) && ctx.Err() == nil {
		outcome.Status, outcome.Failure = Failed, SchemaUnmet
		outcome.Message = fmt.Sprintf("The agent's answer did not match responseJsonSchema (%d repair attempts were made).", result.Repairs)
		outcome.Account = Account{Reason: err.Error(), LastAnswer: result.LastAnswer, ValidationErrors: result.Failures}
		if redactor, ok := a.config.Runners[a.config.runnerOf(run)].(Redactor); ok {
			outcome.Account.redact(redactor)
		}
		return outcome, nil
	}
	if err != nil {
		return failed(ctx, run, outcome, err)
	}
	outcome.JSON = result.JSON
	return outcome, nil
}

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
		outcome = Outcome{Status: TimedOut, Message: fmt.Sprintf("The agent did not take the run on within %d seconds.", int(run.Timeout.Seconds())),
			Account: Account{Reason: fmt.Sprintf("the runner did not take the run on within the %v that the run had: %v", run.Timeout, err), LastAnswer: reason.LastAnswer}}
	case errors.Is(cause, errTimedOut):
		outcome = timedOut(run)
		if errors.As(err, &unavailable) { // of a repair
			outcome.Account.Reason += ": " + reason.Reason
		} else if before.Repairs > 0 {
			outcome.Account.Reason += fmt.Sprintf(": repair attempt %d was under way", before.Repairs)
		}
		outcome.Account.Reason += lastWordsIn(err)
	case errors.As(cause, &cancelled):
		outcome = cancelledOutcome("The run was cancelled.", cancelled.by)
	case errors.Is(cause, ErrStopping):
		outcome, err = stoppedOutcome(), ErrStopping
	case errors.As(err, &unavailable):
		outcome = unavailableOutcome(unavailable.RetryAfter, reason)
	case errors.As(err, &gone):
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent that the run was accepted for is not configured any more.", Account: reason}
	case errors.As(err, &interrupted):
		outcome = interruptedOutcome(reason)
	default:
		outcome = Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent failed to answer.", Account: reason}
	}
	outcome.Text, outcome.HasText, outcome.Repairs, outcome.Checked = before.Text, before.HasText, before.Repairs, before.Checked
	return outcome, err
}

// turn calls the runner. If it is busy and a caller waits, it is called again while there is time; one that cannot be
// reached is not. A repair is tried again whatever the reason, since its turn has been carried out; if the agent goes down in it,
// up to MaxAttempts times. A caller is not held for a runner that asks for more time than there is.
func (e *Engine) turn(ctx context.Context, a *attempt, turn Turn) (reply Reply, err error) {
	config, claim, run := a.config, a.claim, a.claim.Run
	name := config.runnerOf(run)
	runner, ok := config.Runners[name]
	if !ok {
		e.runnerGone(name)
		return Reply{}, &RunnerGoneError{Name: name}
	}
	a.steps.begin(turn)
	defer func() { a.steps.end(len(reply.Text)) }()
	interruptions := 0
	for pause, tries := 250*time.Millisecond, 1; ; pause, tries = min(2*pause, 15*time.Second), tries+1 {
		start, wait := time.Now(), pause
		closeWriter := func() {}
		if turn.Repair == 0 {
			var write func(text string)
			write, closeWriter = a.writer.Open()
			turn.Emit = func(said Progress) { write(said.Text) }
		}
		ended := e.traceTurn(ctx, claim, &turn, name, tries)
		reply, err := e.call(ctx, name, runner, turn)
		ended(err)
		closeWriter()
		if turn.Repair == 0 {
			a.chat.name(reply.Session)
		}
		a.notes.add(&turn, &reply)
		e.metrics().TurnEnded(run, name, turn.Repair, time.Since(start), err)
		var unavailable *UnavailableError
		if turn.Repair == 0 && claim.Attempt == 1 && !errors.As(err, &unavailable) {
			e.noteTakenOn(claim, start.Sub(a.began))
		}
		if errors.As(err, &unavailable) {
			// A turn that was broken off before it was sent, by its caller or its time, tells of the runner only if that took long.
			brokenOff := ctx.Err() != nil && !unavailable.Busy && time.Since(start) < reachedWithin
			switch {
			case brokenOff:
			case tries == 1 && turn.Repair == 0:
				e.runnerRefused(config, run, name, unavailable, start)
			default:
				e.away.doubt(name, unavailable)
			}
			again := turn.Repair > 0 || claim.Awaited && unavailable.Busy
			if unavailable.Failing && tries == failingTries {
				again = false
			}
			if claim.Awaited && unavailable.RetryAfter > time.Until(turn.Deadline) {
				again = false
			}
			if ctx.Err() != nil || !again {
				return reply, err
			}
			wait = max(pause, unavailable.RetryAfter)
			e.away.waits(name, wait)
		} else {
			if ctx.Err() == nil {
				e.runnerTookOn(name)
			}
			var interrupted *InterruptedError
			if ctx.Err() != nil || turn.Repair == 0 || !errors.As(err, &interrupted) {
				return reply, err
			}
			if interruptions++; interruptions == config.MaxAttempts {
				return reply, err
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reply, err
		}
	}
}

// noteTakenOn counts the runs of a claim that their runner took on, some time after they were claimed.
func (e *Engine) noteTakenOn(claim *Claim, after time.Duration) {
	waited := claim.Waited + after
	for run := range claim.eachRun {
		later := run.AcceptedAt.Sub(claim.Run.AcceptedAt) // than the first one, which alone has a Waited
		e.metrics().RunTakenOn(run, max(0, waited-later))
	}
}

// call calls the runner once. A panic of the runner is an error. A turn that stays with the runner for a while after it was
// sent has been taken on, which is good to know while the runner counts as away.
func (e *Engine) call(ctx context.Context, name string, runner Runner, turn Turn) (reply Reply, err error) {
	e.states.begin(name)
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError("the runner", p)
		}
		e.noteCall(ctx, name, runner, &turn, err)
	}()
	ended, refused := e.away.tryAgain(name)
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
					e.runnerTookOn(name)
				}
			})
			context.AfterFunc(over, func() { timer.Stop() })
		}
	}
	return runner.Run(ctx, turn)
}
