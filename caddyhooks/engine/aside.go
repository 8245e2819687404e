package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"go.uber.org/zap"
)

// aside is what a run had come to when it was put aside: the State of its question.
type aside struct {
	Replies     []string     `json:",omitempty"` // the answers of the agent so far: that of the turn, and those of repairs
	TakenOn     string       `json:",omitempty"` // the State of the runner's *TakenOnError
	Steps       []Step       `json:",omitempty"`
	Renewed     bool         `json:",omitempty"` // Reply.SessionRenewed
	Permissions []Permission `json:",omitempty"`
	More        int          `json:",omitempty"` // permissions that are not kept
	Usage       []Use        `json:",omitempty"` // of the turns so far
	Outcome     *Outcome     `json:",omitempty"` // of AskDeliver: the end of the run, if the answer may be sent
}

// verdict is what the answer to its question makes of a run. The zero value lets the turn begin, or go on.
type verdict struct {
	outcome *Outcome      // the run ends like this
	ask     *Question     // the run is put aside for this …
	pause   time.Duration // … and looked at again after so long, if that is not 0
	again   bool          // the store failed, and the run is tried again after a pause
	usedUp  *budget.State // the run is held back until something is left of this budget …
	changes int64         // … by the budgets after so many changes

	unstarted   bool // with outcome: the run was not started
	askedBefore bool // with ask: the agent was asked before, and is asked again
}

// goesOn reports whether the turn begins, or goes on.
func (v *verdict) goesOn() bool {
	return v.outcome == nil && v.ask == nil && !v.again && v.usedUp == nil
}

// goOn has an attempt go on where the run was put aside, as far as its last question has an answer.
func (p *workerPool) goOn(ctx context.Context, a *attempt) verdict {
	p.closeLeft(a)
	if err := p.askEarly(a); err != nil {
		p.store.failed("an early answer could not be taken up, trying again", err, zap.String("run_id", a.claim.Run.ID))
		return verdict{again: true}
	}
	q := a.claim.lastQuestion()
	if q == nil {
		return p.askBeforeStart(ctx, a)
	}
	var before aside
	if err := json.Unmarshal(q.State, &before); err != nil {
		return verdict{outcome: &Outcome{Status: Failed, Failure: RunnerFailed, Message: "The run could not be taken up again.",
			Account: Account{Reason: "the state of question " + q.ID() + " cannot be read: " + err.Error()}}}
	}
	a.restore(&before)
	if q.Answer == nil {
		switch closes := !q.Until.IsZero() && !a.claim.StartedAt.Before(q.Until); {
		case closes:
			closed, err := p.closeQuestion(a.config, q, Answer{Text: q.Else, Via: AnsweredByDeadline})
			if err != nil {
				return verdict{again: true}
			}
			q = closed
		case q.Kind == AskAgent:
			a.takenOn = before.TakenOn // to look how it goes
			return verdict{}
		default:
			return verdict{ask: q}
		}
	}
	return p.judge(ctx, a, q, &before)
}

// askEarly asks a question that the agent has answered before it was stored that it had taken the turn on: the process went down in
// between. From then on it is a question like any other, and the turn is not sent again.
func (p *workerPool) askEarly(a *attempt) error {
	n := len(a.claim.Questions)
	if n == 0 || !a.claim.Questions[n-1].AskedAt.IsZero() || a.claim.Questions[n-1].Answer.Via != AnsweredByAgent {
		return nil
	}
	var before aside
	if last := a.claim.lastQuestion(); last != nil {
		if err := json.Unmarshal(last.State, &before); err != nil {
			return err
		}
		if last.Kind == AskAgent {
			before.Replies = append(before.Replies, last.Answer.Text)
		}
	}
	turn := Turn{Repair: len(before.Replies)}
	before.Steps = append(before.Steps, Step{Phase: phaseOf(&turn), StartedAt: a.claim.StartedAt})
	asked := *a.claim.Questions[n-1]
	asked.Kind, asked.State = AskAgent, before.encode()
	ctx, stop := p.store.context()
	defer stop()
	if err := p.store.Questions().Ask(ctx, a.claim, &asked); err != nil {
		return err
	}
	asked.AskedAt = a.claim.StartedAt
	a.claim.Questions[n-1] = &asked
	return nil
}

// agentFailed is the verdict on an agent that has answered with an error.
func agentFailed(answer *Answer) verdict {
	return verdict{outcome: &Outcome{Status: Failed, Failure: RunnerFailed, Message: "The agent failed to answer.",
		Account: Account{Reason: "the agent reported an error: " + answer.Error}}}
}

// closeLeft closes questions of a turn that was cut off while it waited for a person: that turn is gone.
func (p *workerPool) closeLeft(a *attempt) {
	for i, q := range a.claim.Questions {
		if q.Kind == AskPermission && q.Answer == nil {
			if closed, err := p.closeQuestion(a.config, q, Answer{Via: AnsweredByEnd}); err == nil {
				a.claim.Questions[i] = closed
			}
		}
	}
}

// judge is what the answer to a question makes of a run.
func (p *workerPool) judge(ctx context.Context, a *attempt, q *Question, before *aside) verdict {
	answer := q.Answer
	inVain := answer.Via == AnsweredByDeadline
	switch {
	case q.Kind == AskStart && answer.Text == Yes && inVain: // nobody has approved the sender
	case q.Kind == AskStart && answer.Text == Yes:
		if err := a.config.Questions.Started(ctx, a.claim.Run); err != nil {
			a.config.Log.Warn("an approved sender was not remembered", zap.String("run_id", a.claim.Run.ID), zap.Error(err))
		}
	case q.Kind == AskStart:
		return verdict{outcome: declined("started", answer), unstarted: true}
	case q.Kind == AskDeliver && answer.Text == Yes:
		return verdict{outcome: before.Outcome}
	case q.Kind == AskDeliver:
		outcome := declined("answered", answer)
		outcome.Account.LastAnswer, outcome.Repairs, outcome.Checked = before.Outcome.Text, before.Outcome.Repairs, before.Outcome.Checked
		return verdict{outcome: outcome}
	case q.Kind == AskAgent && (answer.Via == AnsweredByPush || answer.Via == AnsweredByEnd): // see closeOffer
		a.takenOn = before.TakenOn
	case q.Kind == AskAgent && inVain:
		p.abandon(a.config, a.claim.Run, before.TakenOn)
		return verdict{outcome: &Outcome{Status: TimedOut,
			Message: fmt.Sprintf("The agent took the run on, and did not answer within %v.", q.For),
			Account: Account{Reason: fmt.Sprintf("the agent took the run on, and did not answer within %v", q.For)}}}
	case q.Kind == AskAgent && answer.Error != "":
		a.notes.spending.AddJSON(answer.Usage)
		return agentFailed(answer)
	case q.Kind == AskAgent:
		a.steps.Complete(len(answer.Text), answer.At)
		a.recorded = append(a.recorded, answer.Text)
		used := a.notes.spending.AddJSON(answer.Usage)
		p.metrics().TurnEnded(a.claim.Run, a.config.runnerOf(a.claim.Run), len(a.recorded)-1, max(0, answer.At.Sub(q.AskedAt)), used, nil)
	case inVain && answer.Text == "": // AskInput
		p.abandon(a.config, a.claim.Run, before.TakenOn)
		return verdict{outcome: &Outcome{Status: Failed, Failure: RunnerFailed,
			Message: "The agent asked for input, and nobody answered in time.",
			Account: Account{Reason: fmt.Sprintf("the agent asked for input, and nobody answered within %v", q.For)}}}
	default:
		a.takenOn, a.input = before.TakenOn, answer.Text
	}
	return verdict{}
}

// declined is the end of a run that somebody did not agree to.
func declined(before string, answer *Answer) *Outcome {
	by := answer.By
	if answer.Via == AnsweredByDeadline {
		by = "nobody, since there was no answer in time"
	}
	outcome := cancelledOutcome("The run was not approved.", by)
	outcome.Account.Reason = fmt.Sprintf("somebody had to agree before the run was %s, and the answer was %q", before, answer.Text)
	return &outcome
}

// isWithAgent reports whether the run waits for an agent that has taken its turn on. To look how that goes starts nothing.
func (c *Claim) isWithAgent() bool {
	last := c.lastQuestion()
	return last != nil && last.Kind == AskAgent && (last.Answer == nil || last.Answer.Via == AnsweredByPush)
}

// lastQuestion is the one that the run was last put aside for, nil if there is none. Those in the middle of a turn end with it.
func (c *Claim) lastQuestion() *Question {
	for i := len(c.Questions) - 1; i >= 0; i-- {
		if q := c.Questions[i]; q.Kind != AskPermission && !q.AskedAt.IsZero() {
			return q
		}
	}
	return nil
}

// nextQuestion is the number of the next question of the run. An open one for the agent is asked again, with another state. So is one that
// the agent has news of though it was not stored, unless that was the answer.
func (a *attempt) nextQuestion() int {
	number := a.asked
	if n := len(a.claim.Questions); n > 0 {
		last := a.claim.Questions[n-1]
		if last.Kind == AskAgent && last.Answer == nil && a.asked == 0 {
			return last.Number
		}
		if number += last.Number; !last.AskedAt.IsZero() {
			number++
		}
	}
	return number
}

// restore has an attempt begin with what the run had come to.
func (a *attempt) restore(before *aside) {
	a.recorded = before.Replies
	a.steps.Restore(before.Steps)
	a.notes.sessionRenewed = before.Renewed
	a.notes.permissions.Restore(before.Permissions, before.More)
	a.notes.spending.Restore(before.Usage)
}

// aside is what the attempt has come to.
func (a *attempt) aside() *aside {
	var noted Account
	a.notes.permissions.Note(&noted)
	return &aside{Replies: a.replies, Steps: a.steps.SoFar(), Renewed: a.notes.sessionRenewed, Permissions: noted.Permissions,
		More: noted.MorePermissions, Usage: a.notes.spending.All()}
}

// encode writes it down.
func (s *aside) encode() []byte {
	state, _ := json.Marshal(s) // which always encodes
	return state
}

// askBeforeStart asks whether a run may start, if somebody has to agree.
func (p *workerPool) askBeforeStart(ctx context.Context, a *attempt) verdict {
	run := a.claim.Run
	if a.config.Questions == nil || run.Fold.IsSet() {
		return verdict{}
	}
	q, err := a.config.Questions.BeforeStart(ctx, run)
	if err != nil {
		a.config.Log.Warn("a question could not be asked, trying again", zap.String("run_id", run.ID), zap.Error(err))
		return verdict{again: true}
	}
	return a.ask(AskStart, q, &aside{})
}

// askBeforeDelivery asks whether the answer of a run may be sent, if somebody has to agree and there is one to send.
func (p *workerPool) askBeforeDelivery(a *attempt, outcome *Outcome) verdict {
	run := a.claim.Run
	if !outcome.HasText || !a.config.isHeldBack(run) {
		return verdict{}
	}
	state := a.aside()
	p.closeOffer(a, state)
	state.Outcome = outcome
	return a.ask(AskDeliver, a.config.Questions.BeforeDelivery(run, outcome), state)
}

// isHeldBack reports whether somebody has to agree before the answer of a run is sent: until then nobody may follow it.
func (c *Config) isHeldBack(run *Run) bool {
	return c.Questions != nil && !run.Fold.IsSet() && c.Questions.BeforeDelivery(run, &noOutcome) != nil
}

var noOutcome Outcome

// holdBack takes the text out of the outcome of a run that failed, if somebody would have had to agree before it is sent.
func (a *attempt) holdBack(outcome *Outcome) {
	if outcome.HasText && outcome.Status != Completed && a.config.isHeldBack(a.claim.Run) {
		outcome.Account.LastAnswer = cmp.Or(outcome.Account.LastAnswer, outcome.Text)
		outcome.Text, outcome.HasText = "", false
	}
}

// closeOffer closes the question at whose address the agent could have answered, since it has answered otherwise, or a person is asked: the
// agent must not answer for that one.
func (p *workerPool) closeOffer(a *attempt, state *aside) {
	if !a.offered && !a.claim.isWithAgent() {
		return
	}
	closed := &Question{RunID: a.claim.Run.ID, Number: a.nextQuestion(), Kind: AskAgent, State: state.encode()}
	err := p.store.insist(a.config, writeBack, a.claim.Run.ID, func(ctx context.Context) error {
		if err := p.store.Questions().Ask(ctx, a.claim, closed); err != nil {
			return err
		}
		_, err := p.store.Questions().Answer(ctx, closed.ID(), Answer{Via: AnsweredByEnd})
		if errors.Is(err, ErrAnswered) {
			return nil
		}
		return err
	})
	if err != nil {
		return // the claim is lost, or the engine stops: the end of the claim cannot be stored either
	}
	closed.AskedAt, closed.Answer = a.claim.StartedAt, &Answer{Via: AnsweredByEnd, At: a.claim.StartedAt}
	others := slices.DeleteFunc(slices.Clone(a.claim.Questions), func(q *Question) bool { return q.Number == closed.Number })
	a.claim.Questions = append(others, closed)
	a.offered, a.asked = false, 0
}

// ask is the verdict that a run is put aside for a question, nil for none.
func (a *attempt) ask(kind QuestionKind, q *Question, state *aside) verdict {
	if q == nil {
		return verdict{}
	}
	q.Kind, q.RunID, q.State = kind, a.claim.Run.ID, state.encode()
	if q.Number = a.nextQuestion(); q.Number >= MaxQuestions {
		return verdict{outcome: tooMany()}
	}
	return verdict{ask: q}
}

// afterTurn is the verdict when the runner has returned.
func (p *workerPool) afterTurn(ctx context.Context, a *attempt, outcome *Outcome, err error) verdict {
	takenOn, ok := errors.AsType[*TakenOnError](err)
	switch {
	case isTakenOn(ctx, err):
		v := p.askLater(a, takenOn)
		if v.outcome != nil {
			*outcome = *v.outcome
			p.abandon(a.config, a.claim.Run, takenOn.State)
		}
		return v
	case ok: // and somebody cancelled the run meanwhile
		p.abandon(a.config, a.claim.Run, takenOn.State)
	case err == nil && outcome.Status == Completed:
		v := p.askBeforeDelivery(a, outcome)
		if v.outcome != nil {
			*outcome = *v.outcome
		}
		return v
	}
	return verdict{}
}

// askLater is the verdict for a turn that the agent has taken on.
func (p *workerPool) askLater(a *attempt, takenOn *TakenOnError) verdict {
	state := a.aside()
	state.TakenOn = takenOn.State
	if takenOn.Ask != nil && a.config.Questions != nil {
		p.closeOffer(a, state)
		return a.ask(AskInput, a.config.Questions.FromAgent(a.claim.Run, *takenOn.Ask), state)
	}
	v := a.ask(AskAgent, &Question{For: takenOn.For}, state)
	v.pause, v.askedBefore = takenOn.Again, a.claim.isWithAgent()
	return v
}

// tooMany is the end of a run that has had more questions than a run may have.
func tooMany() *Outcome {
	return &Outcome{Status: Failed, Failure: RunnerFailed, Message: "The run had too many questions.",
		Account: Account{Reason: fmt.Sprintf("the run had more than %d questions", MaxQuestions)}}
}

// end is the end of a claim whose run is put aside, or tried again. goesBack is false if it is neither.
func (v *verdict) end(config *Config, run *Run) (end End, goesBack bool) {
	switch {
	case v.again:
		return End{Requeue: true, WaitingFor: "The store failed. The run is tried again in a moment.", Pause: 5 * time.Second}, true
	case v.usedUp != nil:
		return End{Requeue: true, Held: true, WaitingFor: waitingForBudget, Pause: min(v.usedUp.Wait, LongestRunPause)}, true
	case v.ask == nil:
		return End{}, false
	}
	end = End{Requeue: true, Question: v.ask, Pause: v.pause, WaitingFor: waitingForAnswer(v.ask)}
	if v.ask.AskedAt.IsZero() {
		end.Deliveries = config.questionDeliveries(run, v.ask)
	}
	return end, true
}

// log tells that a run was put aside or held back, when it is news.
func (v *verdict) log(config *Config, claim *Claim) {
	run := claim.Run
	switch {
	case v.ask != nil && v.ask.AskedAt.IsZero() && !v.askedBefore:
		config.Log.Info("run put aside", zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.String("question", string(v.ask.Kind)))
	case v.usedUp != nil && claim.Waits == 0:
		config.Log.Info("run held back", zap.String("run_id", run.ID), zap.String("hook", run.Hook),
			zap.String("budget", v.usedUp.Limit.String()), zap.Duration("wait", v.usedUp.Wait))
	}
}

// waitingForAnswer says what a run waits for, also to its caller, who need not know who is asked and where.
func waitingForAnswer(q *Question) string {
	if q.Kind == AskAgent {
		return "The agent has taken the run on, and has not answered yet."
	}
	return "Somebody has to answer a question."
}

// abandon tells the agent to give up a turn that it has taken on. Nobody waits for that.
func (n *node) abandon(config *Config, run *Run, state string) {
	abandoner, ok := config.Runners[config.runnerOf(run)].(Abandoner)
	if !ok || state == "" {
		return
	}
	go n.protect("abandoning a turn", func() {
		ctx, cancel := context.WithTimeout(context.Background(), abandonTime)
		defer cancel()
		if err := abandoner.Abandon(ctx, state); err != nil {
			config.Log.Warn("the agent was not told to give up a turn", zap.String("run_id", run.ID), zap.Error(err))
		}
	})
}

// abandonTime is how long it may take to tell an agent to give up a turn.
const abandonTime = 10 * time.Second
