package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/account"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/agent"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/deadline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/runnerstate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// attempt is one start of a run, and what belongs to it.
type attempt struct {
	config   *Config
	claim    *Claim
	deadline *deadline.Deadline
	sent     func() // tells the deadline that the turn was sent
	steps    *account.Steps
	notes    *replyNotes
	chat     *chatOfTurn    // nil without memory
	writer   *stream.Writer // of what the runner says; repairs have none
	began    time.Time

	// Of a run that was put aside before.
	recorded []string // answers that the agent gave then, and that are not asked for again
	takenOn  string   // what the runner needs to find the turn again that the agent has taken on
	input    string   // what a person told the agent

	replies []string // the answers of the agent so far, with those that were recorded

	mu         sync.Mutex
	offered    bool        // the agent may know where to answer the next question, perhaps from before a restart
	asked      int         // questions in the middle of the turn …
	unanswered []*Question // … and those of them that are still open when it ends
}

// carryOutTurn carries out the turn and sees to it that the answer fits the schema. The error is why there is no answer. A
// panic, in a runner or here, is the failure of this run alone.
func (p *workerPool) carryOutTurn(ctx context.Context, a *attempt) (outcome Outcome, err error) {
	run, steps := a.claim.Run, a.steps
	defer func() {
		if p := recover(); p != nil {
			outcome, err = failed(ctx, run, outcome, panics.New("the turn", p))
		}
		a.notes.complete(&outcome)
	}()
	if cause := context.Cause(ctx); cause != nil { // it was cancelled before it began
		if errors.Is(cause, errTimedOut) {
			return waitedOut(run, ""), cause
		}
		return failed(ctx, run, Outcome{}, cause)
	}
	var schema *contract.Schema
	turn := Turn{
		RunID: run.ID, ChatID: run.ChatID, Action: run.Action, Hook: run.Hook, Name: run.Name,
		Message: FoldMessage(a.claim.runs()), Folded: a.claim.forTurn(), Tier: run.TurnTier(), MemoryPreset: run.MemoryPreset,
		ResponseSchema: run.Schema, Metadata: run.Metadata, Timeout: run.Timeout, TraceParent: run.TraceParent,
		Chat: a.chat.forTurn(), Deadline: a.deadline.When(), Sent: a.sent,
	}
	if run.Schema != nil {
		if schema, err = p.schemas.Compile(run.Schema); err != nil {
			return Outcome{Status: Failed, Failure: SchemaUnmet, Message: err.Error(), Account: Account{Reason: err.Error()}}, err
		}
		turn.System = schema.Instructions()
	}
	reply, err := p.turn(ctx, a, turn)
	if isTakenOn(ctx, err) {
		return Outcome{}, err
	}
	if err != nil {
		return failed(ctx, run, Outcome{}, err)
	}
	outcome = Outcome{Status: Completed, Text: reply.Text, HasText: true, Checked: schema != nil}
	if schema == nil {
		return outcome, nil
	}

	result, err := schema.Fulfil(ctx, reply.Text, func(ctx context.Context, n int, prompt contract.Prompt) (string, error) {
		steps.Refuse(prompt.Failures)
		repair := turn
		repair.Repair = n
		repair.System, repair.Message = prompt.System, prompt.Message
		repair.Tier = run.repairTier()
		repair.MemoryPreset = MemoryDisabled
		repair.Metadata, repair.Chat, repair.Sent, repair.Folded = nil, nil, nil, nil
		reply, err := p.turn(ctx, a, repair)
		return reply.Text, err
	})
	if isTakenOn(ctx, err) {
		return Outcome{}, err
	}
	outcome.Repairs = result.Repairs
	switch {
	case result.Failures != nil:
		steps.Refuse(result.Failures)
	case errors.Is(err, contract.ErrNotFulfilled):
		steps.Refuse([]string{err.Error()})
	}
	if errors.Is(err, contract.ErrNotFulfilled) && ctx.Err() == nil {
		outcome.Status, outcome.Failure = Failed, SchemaUnmet
		outcome.Message = fmt.Sprintf("The agent's answer did not match responseJsonSchema (%d repair attempts were made).", result.Repairs)
		outcome.Account = Account{Reason: err.Error(), LastAnswer: result.LastAnswer, ValidationErrors: result.Failures}
		outcome.Account.Redact(redactOf(a.config.Runners[a.config.runnerOf(run)]))
		return outcome, nil
	}
	if err != nil {
		return failed(ctx, run, outcome, err)
	}
	outcome.JSON = result.JSON
	return outcome, nil
}

// isTakenOn reports whether a turn was taken on by the agent, and the run can be put aside.
func isTakenOn(ctx context.Context, err error) bool {
	_, takenOn := errors.AsType[*TakenOnError](err)
	_, cancelled := errors.AsType[*cancelledError](context.Cause(ctx))
	return takenOn && !cancelled
}

// offer completes a turn with how its agent can answer later, and how it can ask people.
func (p *workerPool) offer(a *attempt, turn *Turn) {
	turn.TakenOn, turn.Input = a.takenOn, a.input
	a.takenOn, a.input = "", ""
	if a.config.Questions == nil {
		return
	}
	turn.Ask = func(ctx context.Context, of Ask) (Answer, error) { return p.askInTurn(ctx, a, of) }
	if runner, ok := a.config.Runners[a.config.runnerOf(a.claim.Run)].(Abandoner); ok && !a.claim.Run.Fold.IsSet() {
		a.offered = true
		if agent.TakesOn(runner) || turn.TakenOn != "" {
			turn.Later = a.config.Questions.Later(QuestionID(a.claim.Run.ID, a.nextQuestion()))
		}
	}
}

// turn calls the runner, unless the answer is known from before the run was put aside. If it is busy and a caller waits, it is called
// again while there is time; one that cannot be reached is not. A repair is tried again whatever the reason, since its turn has been
// carried out; if the agent goes down in it, up to MaxAttempts times. A caller is not held for a runner that asks for more time than there
// is.
func (p *workerPool) turn(ctx context.Context, a *attempt, turn Turn) (reply Reply, err error) {
	config, claim, run := a.config, a.claim, a.claim.Run
	name := config.runnerOf(run)
	if len(a.recorded) > 0 {
		reply.Text, a.recorded = a.recorded[0], a.recorded[1:]
		a.replies = append(a.replies, reply.Text)
		return reply, nil
	}
	runner, ok := config.Runners[name]
	if !ok {
		p.runners.gone(name)
		return Reply{}, &RunnerGoneError{Name: name}
	}
	p.offer(a, &turn)
	if turn.TakenOn != "" {
		a.steps.Reopen()
	} else {
		a.steps.Begin(phaseOf(&turn), turn.Tier)
	}
	defer func() {
		a.steps.End(len(reply.Text))
		if err == nil {
			a.replies = append(a.replies, reply.Text)
		}
	}()
	interruptions := 0
	for pause, tries := 250*time.Millisecond, 1; ; pause, tries = min(2*pause, 15*time.Second), tries+1 {
		start, wait := time.Now(), pause
		closeWriter := func() {}
		if turn.Repair == 0 && !config.isHeldBack(run) {
			var write func(text string)
			write, closeWriter = a.writer.Open()
			turn.Emit = func(said Progress) { write(said.Text) }
		}
		ended := p.traceTurn(ctx, claim, &turn, name, tries)
		reply, err := p.runners.call(ctx, name, runner, turn)
		used := a.notes.add(&turn, &reply)
		if _, takenOn := errors.AsType[*TakenOnError](err); takenOn {
			ended(used, nil)
		} else {
			ended(used, err)
			p.metrics().TurnEnded(run, name, turn.Repair, time.Since(start), used, err)
		}
		closeWriter()
		if turn.Repair == 0 {
			a.chat.name(reply.Session)
		}
		unavailable, refused := errors.AsType[*UnavailableError](err)
		if turn.Repair == 0 && claim.Attempt == 1 && turn.TakenOn == "" && !refused {
			p.noteTakenOn(claim, start.Sub(a.began))
		}
		if refused {
			// A turn that was broken off before it was sent, by its caller or its time, tells of the runner only if that took long.
			brokenOff := ctx.Err() != nil && !unavailable.Busy && time.Since(start) < reachedWithin
			switch {
			case brokenOff:
			case tries == 1 && turn.Repair == 0:
				p.runners.refused(config, run, name, unavailable, start)
			default:
				p.runners.outages.Doubt(name, refusalOf(unavailable))
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
			p.runners.outages.Waits(name, wait)
		} else {
			if ctx.Err() == nil {
				p.runners.tookOn(name)
			}
			_, interrupted := errors.AsType[*InterruptedError](err)
			if ctx.Err() != nil || turn.Repair == 0 || !interrupted {
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
func (p *workerPool) noteTakenOn(claim *Claim, after time.Duration) {
	waited := claim.Waited + after
	for run := range claim.eachRun {
		later := run.AcceptedAt.Sub(claim.Run.AcceptedAt) // than the first one, which alone has a Waited
		p.metrics().RunTakenOn(run, max(0, waited-later))
	}
}

// startAgain is the end of a claim on a run whose agent went down in the middle of the turn, if the run is to be started again. The
// rules are those for a service that went down. Otherwise it completes the outcome. A run with an answer is not started again: its
// turn was carried out, and a repair was not.
func (p *workerPool) startAgain(ctx context.Context, a *attempt, outcome *Outcome, err error) (end End, again bool) {
	claim, run := a.claim, a.claim.Run
	_, interrupted := errors.AsType[*InterruptedError](err)
	if !interrupted || ctx.Err() != nil || outcome.HasText {
		return End{}, false
	}
	if most := a.config.MaxAttempts; most > 0 && claim.Attempt >= most {
		if claim.Attempt > 1 {
			outcome.Message, outcome.Account.Reason = capital(startedInVain(claim.Attempt))+".", startedInVain(claim.Attempt)+": "+err.Error()
		}
		return End{}, false
	}
	stopping := p.isStopping()
	if stopping && p.onlyForCallerHere(claim) {
		*outcome = stoppedOutcome()
		a.notes.complete(outcome)
		return End{}, false
	}
	end = End{Requeue: true, Interrupted: true, Pause: runnerstate.PauseBefore(claim.Attempt, 0)}
	if claim.Awaited && claim.Attempt == 1 {
		end.Pause = 0
	}
	if claim.Awaited && end.Pause >= time.Until(a.deadline.When()) {
		return End{}, false // its caller would rather know at once
	}
	if end.Pause > 0 {
		end.WaitingFor = "The agent went down in the middle of the run. The run starts again in a moment."
	}
	fields := []zap.Field{zap.String("run_id", run.ID), zap.String("runner", a.config.runnerOf(run)), zap.Int("attempt", claim.Attempt),
		zap.Duration("pause", end.Pause), zap.Error(err)}
	if outcome.SessionRenewed { // the next attempt finds the new session, and the run will not tell
		fields = append(fields, zap.Bool("session_renewed", true))
	}
	a.config.Log.Warn("agent crashed; run restarted", fields...)
	if stopping {
		p.turns.tell(run.ID, stoppedOutcome()) // the next start carries it out
	}
	return end, true
}

// newDeadline starts the time of a run. That of a caller who waits began with the request. If nobody waits, sent lets it begin anew.
func newDeadline(claim *Claim, start time.Time, cancel context.CancelCauseFunc) (d *deadline.Deadline, sent func()) {
	timeout := claim.Run.Timeout
	awaited := claim.Awaited && len(claim.Questions) == 0 // a run that was put aside goes on without its caller
	if awaited {
		timeout -= claim.Waited
	}
	d = deadline.New(start, timeout, func() { cancel(errTimedOut) })
	if awaited {
		return d, func() {}
	}
	return d, func() { d.Restart(timeout) }
}
