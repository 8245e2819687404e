package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Spent is what was used, as far as agents told. What nobody knows is left out.
type Spent struct {
	InputTokens     *int64   `json:"inputTokens,omitempty"`  // with those of a cache
	OutputTokens    *int64   `json:"outputTokens,omitempty"` // with those of reasoning
	CachedTokens    int64    `json:"cachedTokens,omitempty"`
	ReasoningTokens int64    `json:"reasoningTokens,omitempty"`
	CostUSD         *float64 `json:"costUsd,omitempty"` // in US dollars
}

func NewSpent(use engine.Use) (spent Spent) {
	if use.HasTokens {
		spent = Spent{InputTokens: &use.Input, OutputTokens: &use.Output, CachedTokens: use.Cached, ReasoningTokens: use.Reasoning}
	}
	if use.HasCost {
		dollars := use.Dollars()
		spent.CostUSD = &dollars
	}
	return spent
}

// Use is what a run used of a model.
type Use struct {
	Model string `json:"model,omitempty"` // "" if the agent did not say
	Spent
}

func newUsage(uses []engine.Use) (shown []Use) {
	for _, use := range uses {
		shown = append(shown, Use{use.Model, NewSpent(use)})
	}
	return shown
}

// CostsBy are what costs are summed up by.
var CostsBy = []string{"hook", "runner", "model", "hour", "day"}

// Costs are what runs used, summed up.
type Costs struct {
	By    string     `json:"by"`
	Since *time.Time `json:"since"` // the beginning of an hour
	Rows  []Cost     `json:"rows"`
	Total CostTotal  `json:"total"`

	Budgets []BudgetUse `json:"budgets,omitempty"`
}

// Cost is what runs used that have something in common.
type Cost struct {
	Key string `json:"key"` // the hook, the runner, the model or the time
	CostTotal
}

// CostTotal is what runs used together.
type CostTotal struct {
	Runs int64 `json:"runs"` // a run with several models counts for the one that it spent most on
	Spent
}

// BudgetUse is how far a budget is used up.
type BudgetUse struct {
	Budget  string      `json:"budget"`          // as it is written, such as $5/24h
	Hook    string      `json:"hook,omitempty"`  // whose runs it is for, none for those of all hooks together
	By      string      `json:"by,omitempty"`    // the template whose value tells apart who spends
	Value   *string     `json:"value,omitempty"` // of by, "" for runs without one; none if no value is known to have reached 80 percent
	Else    budget.Else `json:"else"`
	Limit   Amount      `json:"limit"`
	Used    Amount      `json:"used"`
	Percent int64       `json:"percent"`
	Runs    int64       `json:"runs"`             // that it was used for
	LeftAt  *time.Time  `json:"leftAt,omitempty"` // when something of it is left again, none if something is left now
}

// Amount is of tokens or of money.
type Amount struct {
	Tokens  *int64   `json:"tokens,omitempty"`
	CostUSD *float64 `json:"costUsd,omitempty"` // in US dollars
}

// NewBudgetUse shows a budget. The value of by comes from outside; hideTexts leaves it out.
func NewBudgetUse(s *budget.State, now time.Time, hideTexts bool) BudgetUse {
	shown := BudgetUse{Budget: s.Limit.String(), Hook: s.Hook, By: s.By, Else: s.Else, Limit: newAmount(&s.Limit, s.Most()),
		Used: newAmount(&s.Limit, s.Used), Percent: s.Percent(), Runs: s.Runs}
	if s.By != "" && s.Used > 0 && !hideTexts {
		value := oneline.Of(s.Value, maxBudgetValue)
		shown.Value = &value
	}
	if s.IsUsedUp() {
		shown.LeftAt = text.JSONTime(now.Add(s.Wait).Truncate(time.Second).Add(time.Second))
	}
	return shown
}

// maxBudgetValue bounds the value of a budget in bytes.
const maxBudgetValue = 128

func newAmount(limit *budget.Limit, n int64) Amount {
	if limit.Cost == 0 {
		return Amount{Tokens: &n}
	}
	dollars := float64(n) / usage.Dollar
	return Amount{CostUSD: &dollars}
}
