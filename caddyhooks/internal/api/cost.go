package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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
