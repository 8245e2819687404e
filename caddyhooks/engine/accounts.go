package engine

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/account"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// What callers, runners and stores use of package account.
type (
	Account    = account.Account
	Permission = account.Permission
	Step       = account.Step
	Phase      = account.Phase
)

// maxLastAnswer is how many bytes of an unusable answer are kept.
const maxLastAnswer = account.MaxLastAnswer

// The phases of runs.
const (
	PhaseQueued = account.PhaseQueued
	PhaseTurn   = account.PhaseTurn
	PhaseRepair = account.PhaseRepair
)

// redactOf takes the secrets of a runner out of a text. It is nil if the runner has none.
func redactOf(runner Runner) account.Redact {
	if redactor, ok := runner.(Redactor); ok {
		return redactor.Redact
	}
	return nil
}

// phaseOf is the kind of step that a turn is.
func phaseOf(turn *Turn) Phase {
	if turn.Repair > 0 {
		return PhaseRepair
	}
	return PhaseTurn
}

// replyNotes are what a runner tells about the turns of an attempt besides its answers, and besides the session.
type replyNotes struct {
	sessionRenewed bool
	permissions    *account.Permissions
	spending       *usage.Spending
}

func newReplyNotes(runner Runner, price func(model string) *usage.Price) *replyNotes {
	return &replyNotes{permissions: account.NewPermissions(redactOf(runner)), spending: usage.NewSpending(price)}
}

// add notes what a reply tells, also one that came with an error, and returns what the turn has used. Repairs have no session.
func (n *replyNotes) add(turn *Turn, reply *Reply) (used []Use) {
	if turn.Repair == 0 && reply.SessionRenewed {
		n.sessionRenewed = true
	}
	n.permissions.Add(reply.Permissions)
	return n.spending.Add(reply.Usage)
}

// complete adds what was noted to an outcome.
func (n *replyNotes) complete(outcome *Outcome) {
	outcome.SessionRenewed = n.sessionRenewed
	n.permissions.Note(&outcome.Account)
	outcome.Usage, outcome.Account.UsageRefused = n.spending.All(), n.spending.Refused()
}

// spent is what the attempt has used, for the ledger of the store.
func (p *workerPool) spent(a *attempt) []LedgerEntry {
	if a.notes == nil {
		return nil
	}
	run := a.claim.Run
	entries := a.notes.spending.Entries(run.Hook, a.config.runnerOf(run), &p.models)
	return append(entries, p.budgets.Entries(run.Hook, run.Budgets, entries)...)
}

// completeSteps adds the wait in the queue to the steps of a record, and the turns of a run that is carried out by this engine.
// Stores keep only turns: the record tells the rest.
func (f *records) completeSteps(record *Record) {
	if record.Status == Running {
		if turn := f.turns.newest(record.Run.ID); turn != nil && turn.claim.Attempt == record.Attempts {
			record.Steps = turn.steps.SoFar()
		}
	}
	queued := Step{Phase: PhaseQueued, StartedAt: record.Run.AcceptedAt}
	until := record.StartedAt
	switch {
	case !until.IsZero():
	case record.Status.Ended():
		until = record.FinishedAt
	default:
		until = time.Now()
	}
	queued.Took = max(0, until.Sub(queued.StartedAt)) // somebody may have set the clock
	record.Steps = append([]Step{queued}, record.Steps...)
}
