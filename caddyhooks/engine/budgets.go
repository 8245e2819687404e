package engine

import (
	"context"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
)

// SetBudgets replaces the budgets. Runs that were held back are looked at again if these are others.
func (e *Engine) SetBudgets(budgets []budget.Budget) {
	if e.budgets.Set(budgets) {
		signal(e.pool.free)
	}
}

// Budgets tells how far the budgets are used up on all nodes: see budget.Keeper.
func (e *Engine) Budgets(ctx context.Context) ([]budget.State, error) {
	return ask(ctx, e.store, func(ctx context.Context) ([]budget.State, error) { return e.budgets.States(ctx, e.store.Ledger()) })
}

// UsedUpBudget is the budget because of which a run is not accepted now, nil if there is none.
func (e *Engine) UsedUpBudget(ctx context.Context, run *Run) (*budget.State, error) {
	if e.budgets.IsEmpty() {
		return nil, nil
	}
	return ask(ctx, e.store, func(ctx context.Context) (*budget.State, error) {
		return e.budgets.Refuses(ctx, e.store.Ledger(), run.Hook, run.Budgets, run.Sync)
	})
}

// waitingForBudget is why a run is held back, also for its caller, who need not know more.
const waitingForBudget = "The budget is used up. The run starts when something of it is left again."

// checkBudgets holds a run back, before its turn begins, if a budget is used up. A turn that has begun goes on.
func (p *workerPool) checkBudgets(ctx context.Context, a *attempt) verdict {
	run, last := a.claim.Run, a.claim.lastQuestion()
	if p.budgets.IsEmpty() || last != nil && last.Kind != AskStart {
		return verdict{}
	}
	ctx, stop := p.store.patience(ctx)
	defer stop()
	changes := p.budgets.Changes()
	usedUp, reached, err := p.budgets.Check(ctx, p.store.Ledger(), run.Hook, run.Budgets)
	a.config.announceBudgets(reached)
	switch {
	case err != nil:
		p.store.failed("the budgets of a run could not be read, trying again", err, zap.String("run_id", run.ID))
		return verdict{again: true}
	case usedUp != nil && a.claim.Awaited:
		outcome := unavailableOutcome(usedUp.Wait, Account{Reason: "the budget of " + usedUp.Limit.String() + " is used up"})
		outcome.Message = "The budget is used up; try again later."
		return verdict{outcome: &outcome, unstarted: true}
	}
	return verdict{usedUp: usedUp, changes: changes}
}

// noteSpent tells of budgets that what a run has spent has nearly used up, or used up, and of those that do not count the run.
func (p *workerPool) noteSpent(config *Config, run *Run, end *End) {
	if end.Outcome.Status == Completed {
		for _, b := range p.budgets.Uncounted(run.Hook, run.Budgets, end.Spent) {
			config.Log.Warn("the agent does not tell what a budget counts: set prices, or a budget of tokens", zap.String("run_id", run.ID),
				zap.String("hook", run.Hook), zap.String("budget", b.Limit.String()))
		}
	}
	ctx, stop := p.store.context()
	defer stop()
	reached, err := p.budgets.Spent(ctx, p.store.Ledger(), run.Hook, run.Budgets, end.Spent)
	if err != nil {
		p.store.failed("the budgets of a run could not be read", err, zap.String("run_id", run.ID))
	}
	config.announceBudgets(reached)
}

// announceBudgets tells of budgets that have reached a part of what they allow. Values of By come from outside, and are not in the log.
func (c *Config) announceBudgets(reached []budget.State) {
	for i := range reached {
		s := &reached[i]
		c.Log.Warn("budget reached", zap.String("hook", s.Hook), zap.String("budget", s.Limit.String()), zap.Int64("percent", s.Percent()),
			zap.String("used", s.Limit.Amount(s.Used)))
		if c.Announcer != nil {
			c.Announcer.BudgetReached(s)
		}
	}
}
