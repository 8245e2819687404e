package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Budget is what runs may spend in a time.
type Budget struct {
	// How much, and in which time: US dollars, as in "$5/24h", or tokens, as in "2M tokens/24h".
	Limit string `json:"limit"`

	// A template whose value tells apart who spends, such as {labels.team}: each value has the whole budget. Only of a hook. Default: all
	// runs share the budget.
	By string `json:"by,omitempty"`

	// What becomes of a request when the budget is used up: "hold" accepts it, and its run waits, "refuse" answers 429, "ignore" ignores it.
	// Default: "hold".
	Else string `json:"else,omitempty"`
}

var budgetMembers = strictjson.Members("limit", "by", "else")

// UnmarshalJSON refuses members that it does not know.
func (b *Budget) UnmarshalJSON(raw []byte) error {
	obj, err := strictjson.ParseObject(raw, budgetMembers)
	if err != nil {
		return err
	}
	if obj.Other != nil {
		return FieldErrorf("budgets", "must be objects with limit, by and else, and nothing else")
	}
	type plain Budget
	return json.Unmarshal(raw, (*plain)(b))
}

// maxBudgets is how many budgets a hook may have, and how many there may be over all.
const maxBudgets = 8

// Budgets are budgets that are ready for runs.
type Budgets struct {
	All []budget.Budget
	by  []*template.Template // nil where all runs share a budget
}

// CompileBudgets checks budgets of a hook, or those over all, for which hook is "".
func CompileBudgets(hook string, all []Budget) (Budgets, error) {
	compiled, err := compileBudgets(hook, all)
	if err != nil {
		return Budgets{}, FieldErrorf("budgets", "%v", err)
	}
	return compiled, nil
}

func compileBudgets(hook string, all []Budget) (compiled Budgets, err error) {
	if len(all) > maxBudgets {
		return Budgets{}, fmt.Errorf("must not be more than %d", maxBudgets)
	}
	for _, b := range all {
		next := budget.Budget{Hook: hook, By: b.By, Else: budget.Else(b.Else)}
		if next.Limit, err = budget.ParseLimit(b.Limit, caddy.ParseDuration); err != nil {
			return Budgets{}, err
		}
		if next.Else == "" {
			next.Else = budget.Hold
		}
		if !slices.Contains(budget.Elses, next.Else) {
			return Budgets{}, fmt.Errorf("must have hold, refuse or ignore after else, not %s", text.Abridge(b.Else))
		}
		var by *template.Template
		if b.By != "" {
			if by, err = template.Parse(b.By); err != nil {
				return Budgets{}, fmt.Errorf("is refused: %w", err)
			}
			if hook == "" {
				return Budgets{}, errors.New("has by, which only a hook can have: move it into the block of one")
			}
			if by.FirstPlaceholder() == "" {
				return Budgets{}, fmt.Errorf("has by %s, which is the same for all runs: write a placeholder such as {labels.team}",
					text.Abridge(b.By))
			}
		}
		same := func(other budget.Budget) bool {
			return other.By == next.By && other.Limit.Window == next.Limit.Window && (other.Limit.Cost > 0) == (next.Limit.Cost > 0)
		}
		if slices.ContainsFunc(compiled.All, same) {
			return Budgets{}, fmt.Errorf("must not be there twice for the same time: %s", text.Abridge(b.Limit))
		}
		compiled.All, compiled.by = append(compiled.All, next), append(compiled.by, by)
	}
	return compiled, nil
}

// selectIn selects the parts of a body that tell apart who spends.
func (b *Budgets) selectIn(selected *strictjson.Selection) {
	for _, by := range b.by {
		if by != nil {
			by.Select(selected)
		}
	}
}

// maxSpender bounds the value that tells apart who spends, in bytes.
const maxSpender = 1024

// Accounts are those that a run spends on, of budgets that tell apart who spends. Values that are missing share one.
func (b *Budgets) Accounts(input template.Input) (accounts []string) {
	for i, by := range b.by {
		if by != nil {
			value, _ := by.Strict(input, maxSpender)
			accounts = append(accounts, b.All[i].Account(value))
		}
	}
	return accounts
}

// ReadBudget adds a budget of a hook, or over all, to those before it. It parses:
//
//	budget $<amount>/<duration> | <n> tokens/<duration> [by <template>] [else hold|refuse|ignore]
func ReadBudget(d *caddyfile.Dispenser, hook string, before []Budget) ([]Budget, error) {
	place := *d
	words, err := caddyconf.List(d)
	if err != nil {
		return nil, err
	}
	var b Budget
	b.Limit, words = words[0], words[1:]
	if len(words) > 0 && words[0] != "by" && words[0] != "else" {
		b.Limit, words = b.Limit+" "+words[0], words[1:]
	}
	if len(words) > 1 && words[0] == "by" {
		b.By, words = words[1], words[2:]
	}
	if len(words) > 1 && words[0] == "else" {
		b.Else, words = words[1], words[2:]
	}
	if len(words) > 0 {
		return nil, place.Errf("budget has '%s' where nothing is expected: it takes an amount and a time, then by and else, as in "+
			"budget $5/24h by {labels.team} else hold", text.Abridge(words[0]))
	}
	all := append(before, b)
	if _, err := compileBudgets(hook, all); err != nil {
		return nil, place.Errf("budget %v", err)
	}
	return all, nil
}

func (h *HookBlock) unmarshalBudget(d *caddyfile.Dispenser) (err error) {
	h.Budgets, err = ReadBudget(d, h.Name, h.Budgets)
	return err
}
