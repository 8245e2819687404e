package engine

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/minutes"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// runEnds stores the ends of runs, and lets everybody know who is to.
type runEnds struct {
	*node
	turns   *turns
	streams *stream.Hub
	pruner  *pruner
	minutes *minutes.Keeper
	events  *Events

	workerFree chan struct{} // there may be work for a worker
}

// newEnd is the end of runs that share an outcome.
func (n *runEnds) newEnd(runs []*Run, outcome Outcome) End {
	outcome.Account = outcome.Account.Bounded()
	return End{Outcome: outcome, Deliveries: n.config().deliveriesOfAll(runs, outcome)}
}

// putBack lets another node, or the next start, carry out a run.
func (n *runEnds) putBack(claim *Claim, end End) {
	ctx, stop := n.store.context()
	defer stop()
	_, err := n.store.Runs().End(ctx, claim, end, Batch{})
	n.store.writes.Note(writeBack, err)
	if err != nil {
		n.store.failed("putting a run back failed", err, zap.String("run_id", claim.Run.ID))
	}
	n.publish(claim)
}

// publish tells that the runs of a claim have changed.
func (n *runEnds) publish(claim *Claim) {
	for run := range claim.eachRun {
		n.events.Runs.Publish(run.ID)
	}
}

// ending is what an engine knows about an end that is not part of it.
type ending struct {
	took     time.Duration // 0 of a run that was not started
	attempts int           // how often it was started
	err      error         // why it failed, if it was carried out

	folded int           // how many runs its turn had, if it led them
	leader *Run          // the run that led its turn, if that is another one
	waited time.Duration // until it was last started
}

// concludeAll is conclude for all runs of a turn.
func (n *runEnds) concludeAll(claim *Claim, end End, how ending) {
	if len(claim.Folded) > 0 {
		how.folded = 1 + len(claim.Folded)
	}
	how.waited = claim.Waited
	n.conclude(claim.Run, end, how)
	end.Deliveries = nil // they have been told about
	how.folded, how.leader = 0, claim.Run
	for _, run := range claim.Folded {
		how.waited = claim.waitedOf(run)
		n.conclude(run, end, how)
	}
}

// conclude notes how a run ended, after it was stored.
func (n *runEnds) conclude(run *Run, end End, how ending) {
	n.turns.tell(run.ID, end.Outcome)
	n.streams.End(run.ID)
	n.pruner.note(run)
	n.metrics().RunEnded(run, end.Outcome, how.took)
	n.traceRun(run, &end.Outcome, &how)
	n.minutes.RunEnded(run.Hook, string(end.Outcome.Status), how.took)
	n.announceEnd(run, end.Outcome, how.took)
	n.events.Runs.Publish(run.ID)
	for _, d := range end.Deliveries {
		n.events.Deliveries.Publish(d.ID)
	}
	level := zap.InfoLevel
	if status := end.Outcome.Status; status != Completed && status != Cancelled {
		level = zap.WarnLevel
	}
	if c := n.log().Check(level, "run finished"); c != nil {
		c.Write(how.fields(run, &end.Outcome)...)
	}
}

// fields tell operators about a run that has ended, and nothing of its input.
func (how *ending) fields(run *Run, outcome *Outcome) []zap.Field {
	account := &outcome.Account
	answer := ""
	if outcome.Failure == SchemaUnmet { // of other answers the reason has the first line
		answer = oneline.Of(account.LastAnswer, maxLastAnswer)
	}
	fields := append(make([]zap.Field, 0, 16), // room for all that most runs have
		zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.String("name", oneline.Of(run.Name, maxLabel)),
		zap.String("chat", oneline.Of(run.ChatID, maxLabel)),
		zap.String("action", string(run.Action)), zap.String("client", run.Client), zap.String("status", string(outcome.Status)),
		zap.Int("repairs", outcome.Repairs), zap.Duration("took", how.took), zap.Int("attempts", how.attempts),
	)
	for _, optional := range []struct{ name, text string }{
		{"runner", run.Runner}, {"traceID", run.traceID()}, {"key_header", run.KeyHeader}, {"request_id", run.RequestID},
		{"again_of", run.AgainOf}, {"folded_into", how.foldedInto()}, {"cancelled_by", account.CancelledBy},
		{"reason", account.Reason}, {"last_answer", answer},
	} {
		if optional.text != "" {
			fields = append(fields, zap.String(optional.name, optional.text))
		}
	}
	if how.folded > 0 {
		fields = append(fields, zap.Int("folded", how.folded))
	}
	if outcome.SessionRenewed {
		fields = append(fields, zap.Bool("session_renewed", true))
	}
	if run.Test {
		fields = append(fields, zap.Bool("test", true))
	}
	if account.ValidationErrors != nil {
		fields = append(fields, zap.Strings("validation_errors", account.ValidationErrors))
	}
	if panicked, ok := errors.AsType[*panics.Error](how.err); ok {
		fields = append(fields, zap.ByteString("stack", panicked.Stack))
	}
	return fields
}

// foldedInto is the id of the run that led the turn, "" if that is the run itself.
func (how *ending) foldedInto() string {
	if how.leader == nil {
		return ""
	}
	return how.leader.ID
}

// maxLabel bounds names and chats in the log. They come from callers.
const maxLabel = 512

// attemptsOf is how often a run was started that has ended, 0 if the store does not tell.
func (n *runEnds) attemptsOf(run *Run) int {
	ctx, stop := n.store.context()
	defer stop()
	record, err := n.store.Runs().Get(ctx, run.ID)
	if err != nil {
		return 0
	}
	return record.Attempts
}

// cancel ends a run with outcome if it still waits, and otherwise has its turn cancelled, on whatever node, by whom the outcome
// says. All runs of that turn end with it.
func (n *runEnds) cancel(run *Run, outcome Outcome) error {
	by := outcome.Account.CancelledBy
	for range 3 {
		questions, err := n.openQuestions(run)
		if err != nil {
			return err
		}
		outcome.Usage = usedBefore(questions)
		err = n.withdraw(run, outcome, questions...)
		if err == nil {
			n.abandonAll(run, questions)
		}
		if !errors.Is(err, ErrClaimLost) {
			return err
		}
		n.turns.cancel(run.ID, &cancelledError{by})
		ctx, stop := n.store.context()
		err = n.store.Runs().Cancel(ctx, run.ID, by)
		stop()
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		// It has ended, or was put back to the queue.
	}
	return nil
}

// openQuestions are those that a run is put aside for, with what the engine knows of them.
func (n *runEnds) openQuestions(run *Run) (open []*Question, err error) {
	ctx, stop := n.store.context()
	defer stop()
	record, err := n.store.Runs().Get(ctx, run.ID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		n.store.failed("looking for the questions of a run failed", err, zap.String("run_id", run.ID))
		return nil, err
	}
	if err == nil && !record.Status.Ended() {
		open = slices.DeleteFunc(slices.Clone(record.Questions), func(q *Question) bool { return q.Answer != nil })
	}
	return open, nil
}

// abandonAll tells the agent to give up what it has taken on for a run that was cancelled.
func (n *runEnds) abandonAll(run *Run, open []*Question) {
	for _, q := range open {
		var before aside
		if json.Unmarshal(q.State, &before) == nil {
			n.abandon(n.config(), run, before.TakenOn)
		}
	}
}

// usedBefore is what a run had used when it was put aside for a question.
func usedBefore(open []*Question) []Use {
	var before aside
	if len(open) > 0 {
		_ = json.Unmarshal(open[len(open)-1].State, &before) // an unreadable one tells nothing
	}
	return before.Usage
}

// withdraw ends a run that is queued, or put aside for questions that are closed with it. ErrClaimLost says that it is neither.
func (n *runEnds) withdraw(run *Run, outcome Outcome, open ...*Question) error {
	end := n.newEnd([]*Run{run}, outcome)
	end.Deliveries = append(end.Deliveries, n.config().closings(open)...)
	ctx, stop := n.store.context()
	defer stop()
	_, err := n.store.Runs().End(ctx, &Claim{Run: run}, end, Batch{})
	n.store.writes.Note(writeEnd, err)
	if err == nil {
		n.endProgress(run)
		n.conclude(run, end, ending{attempts: n.attemptsOf(run)})
		signal(n.workerFree) // for the next run of its chat
	} else if !errors.Is(err, ErrClaimLost) {
		n.store.failed("storing the end of a run failed", err, zap.String("run_id", run.ID))
	}
	return err
}
