package service

import (
	"context"
	"maps"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// followBudgets puts the budgets of the configuration and of its hooks in force. It is called under the lock.
func (s *Service) followBudgets(active *settings.Active) {
	var all []budget.Budget
	if newest := s.newest(); newest != nil {
		all = append(all, newest.budgets...)
	}
	for _, name := range slices.Sorted(maps.Keys(active.Hooks)) {
		all = append(all, active.Hooks[name].Spending.All...)
	}
	s.Engine.SetBudgets(all)
}

// WithinBudgets returns the budget because of which the runs of a request are not accepted, nil if they are. Runs that a budget ignores are
// not among within, if there are others. A request that repeats an earlier one makes no run: its error is that of engine.Repeated.
func (s *Service) WithinBudgets(ctx context.Context, runs []*engine.Run, revision int64) (within []*engine.Run, usedUp *budget.State,
	err error) {
	for _, run := range runs {
		state, err := s.Engine.UsedUpBudget(ctx, run)
		switch {
		case err != nil:
			return nil, nil, err
		case state == nil:
			within = append(within, run)
			continue
		case usedUp == nil || usedUp.Else == budget.Ignore:
			usedUp = state
		}
	}
	if usedUp == nil {
		return runs, nil, nil
	}
	first := runs[0]
	if mayRepeat(first) {
		if err := s.Engine.Repeated(ctx, runs, revision); err != nil {
			return nil, nil, err
		}
	}
	if len(within) > 0 && usedUp.Else == budget.Ignore {
		within[0].Key, within[0].KeyHeader, within[0].Replay = first.Key, first.KeyHeader, first.Replay
		return within, nil, nil
	}
	return nil, usedUp, nil
}
