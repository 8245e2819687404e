package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/moment"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

var costFilters = []filter{
	{flag: "since", parameter: "since", usage: "what was used since then, at most 31d back (default: 7d)",
		complete: flags.CompleteWords(moment.Offered...), isMoment: true},
	{flag: "by", parameter: "by", usage: "sum up by " + strings.Join(api.CostsBy, ", ") + " (default: hook)",
		complete: flags.CompleteWords(api.CostsBy...)},
	{flag: "hook", parameter: "hook", usage: "only runs of this hook, or of several with commas between them",
		complete: flags.CompleteSeveral(completeAllHooks), noteUnknown: (*session).noteUnknownHooks},
}

func costVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cost [--since TIME] [--by hook|runner|model|hour|day] [--hook HOOK,…]",
		Short: "Sums up the tokens and the cost of runs, and shows budgets",
		Long: `
Sums up what runs used since a time, by hook, runner, model, hour or day, as far as their agents told. What cost most comes first; hours and
days are those of UTC, the earliest first. What nobody knows is shown as –, and is missing in sums.

Cached tokens are among the input, those of reasoning among the output. A run with several models counts as a run of the one that it spent
most on. Sums are kept for 31 days, by whole hours. Times for --since are those of caddy hooks runs --help.

Below are the budgets: how much of each is used in its time up to now, whatever --since says, and when something is left again of one that
is used up. Of a budget with by, values are listed that have reached 80 percent, as far as the node knows.`,
		Example: `  caddy hooks cost
  caddy hooks cost --since today --by model
  caddy hooks cost --since 31d --by day --hook github-issues`,
		RunE: withSession(runCost),
	}
	addFilters(cmd, costFilters)
	return cmd
}

func runCost(s *session, cmd *cobra.Command, _ []string) error {
	query, err := filterQuery(cmd, costFilters)
	if err != nil {
		return err
	}
	var costs api.Costs
	answer, err := s.get("cost", query, &costs)
	if done, err := s.printedJSON(answer, wrongFilter(err)); done {
		return err
	}
	clock := terminal.NewClock()
	if len(costs.Rows) == 0 {
		s.screen.Note("No agent has told what a run used since %s.", clock.When(costs.Since))
		s.noteUnknownHooks(query.Get("hook"))
	} else {
		var rows [][]terminal.Text
		for i := range costs.Rows {
			rows = append(rows, costCells(terminal.Plain(cmp.Or(costs.Rows[i].Key, unknownCell)), &costs.Rows[i].CostTotal))
		}
		rows = append(rows, costCells(terminal.Bold("total"), &costs.Total))
		s.screen.Table([]string{strings.ToUpper(costs.By), "RUNS", "INPUT", "CACHED", "OUTPUT", "REASONING", "COST"}, rows)
	}
	if len(costs.Budgets) > 0 {
		if len(costs.Rows) > 0 {
			s.screen.Line()
		}
		s.screen.Table(budgetTable(costs.Budgets, clock))
	}
	return nil
}

// budgetTable shows how far budgets are used up.
func budgetTable(budgets []api.BudgetUse, clock terminal.Clock) (header []string, rows [][]terminal.Text) {
	header = []string{"BUDGET", "HOOK", "USED", "PERCENT", "LEFT AGAIN"}
	anyBy := slices.ContainsFunc(budgets, func(b api.BudgetUse) bool { return b.By != "" })
	if anyBy {
		header = slices.Insert(header, 2, "BY")
	}
	for i := range budgets {
		b := &budgets[i]
		used := dollarsCell(b.Used.CostUSD)
		if b.Used.Tokens != nil {
			used = tokensCell(b.Used.Tokens)
		}
		by, percent, look := b.By, fmt.Sprintf("%d %%", b.Percent), terminal.Plain
		switch {
		case b.LeftAt != nil:
			look = terminal.Bad
		case b.Percent >= budget.NearlyUsed:
			look = terminal.Warn
		case b.By != "": // what each value has used is not known
			used, percent = unknownCell, fmt.Sprintf("< %d %%", budget.NearlyUsed)
		}
		if b.Value != nil {
			by += " is " + cmp.Or(*b.Value, "missing")
		}
		row := terminal.Cells(b.Budget, cmp.Or(b.Hook, "all"), used, look(percent), clock.WhenAndAgo(b.LeftAt))
		if anyBy {
			row = slices.Insert(row, 2, terminal.Plain(by))
		}
		rows = append(rows, row)
	}
	return header, rows
}

// unknownCell stands for what nobody knows.
const unknownCell = "–"

func costCells(key terminal.Text, cost *api.CostTotal) []terminal.Text {
	return terminal.Cells(key, terminal.WithCommas(cost.Runs), tokensCell(cost.InputTokens), tokensCell(known(cost.CachedTokens)),
		tokensCell(cost.OutputTokens), tokensCell(known(cost.ReasoningTokens)), dollarsCell(cost.CostUSD))
}

// known is a number of tokens that agents need not tell.
func known(tokens int64) *int64 {
	if tokens == 0 {
		return nil
	}
	return &tokens
}

func tokensCell(tokens *int64) string {
	if tokens == nil {
		return unknownCell
	}
	return terminal.WithCommas(*tokens)
}

func dollarsCell(usd *float64) string {
	if usd == nil {
		return unknownCell
	}
	return terminal.Dollars(*usd)
}

// usedWords are what a run used of a model.
func usedWords(use *api.Use) string {
	var parts []string
	add := func(tokens *int64, what string) {
		if tokens != nil {
			parts = append(parts, terminal.WithCommas(*tokens)+" "+what)
		}
	}
	add(use.InputTokens, "input tokens")
	add(known(use.CachedTokens), "of them cached")
	add(use.OutputTokens, "output tokens")
	add(known(use.ReasoningTokens), "of them reasoning")
	if use.CostUSD != nil {
		parts = append(parts, terminal.Dollars(*use.CostUSD))
	}
	words := text.List(parts)
	if use.Model != "" {
		words += " (" + use.Model + ")"
	}
	return words
}
