package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"time"
)

// Spending is what the turns of a claim on a run have used.
type Spending struct {
	price   func(model string) *Price
	before  []Use // what the run had used before it was put aside
	uses    []Use // what it has used since
	refused string
}

// NewSpending makes an empty one. price tells what a model costs if the agent does not say, nil if it is not known; it may be nil.
func NewSpending(price func(model string) *Price) *Spending { return &Spending{price: price} }

// Restore begins with what the run had used before.
func (s *Spending) Restore(before []Use) { s.before = before }

// Add reads the reports of a turn, and returns what it has used. What a model costs by its price is at most MaxCost, too.
func (s *Spending) Add(reports []Report) (uses []Use) {
	if len(reports) > maxReports {
		s.refused = "the agent reported its usage in too many parts"
		return nil
	}
	for i := range reports {
		if reports[i].IsEmpty() {
			continue
		}
		use, err := reports[i].Read()
		if err != nil {
			s.refused = err.Error()
			continue
		}
		if !use.HasCost && use.HasTokens && s.price != nil {
			if price := s.price(use.Model); price != nil {
				use.Cost, use.HasCost = min(price.Cost(use), MaxCost), true
			}
		}
		uses = Add(uses, use)
	}
	s.uses = Add(s.uses, uses...)
	return uses
}

// AddJSON is Add for reports as an agent writes them. It takes any text.
func (s *Spending) AddJSON(text []byte) (uses []Use) {
	var reports Reports
	if len(text) > 0 && json.Unmarshal(text, &reports) != nil {
		s.refused = "the agent reported its usage as a text that is no JSON"
	}
	return s.Add(reports)
}

// maxReports bounds the reports of a turn. Some agents make one for each call of a model.
const maxReports = 1024

// All is what the run has used so far, by model.
func (s *Spending) All() []Use { return Add(s.before, s.uses...) }

// Refused is why the last report that was refused was, "" if none was.
func (s *Spending) Refused() string { return s.refused }

// What was used is summed up by the hour, for hooks, runners and models.
const (
	costSpan    = time.Hour
	costKept    = 31 * 24 * time.Hour
	costAccount = "cost"
)

// CostPrefix is that of the accounts of hooks, runners and models.
var CostPrefix = NewAccount(costAccount)

// Cost is what a hook has spent on a model of a runner in an hour, as far as agents told.
type Cost struct {
	Hook, Runner, Model string
	Hour                time.Time // when it began
	Runs                int64
	Use                 Use
}

// Costs returns what hooks have spent in the hours that were not over so long ago, ordered by hook, runner, model and hour.
func Costs(ctx context.Context, ledger Ledger, within time.Duration) ([]Cost, error) {
	entries, _, err := ledger.Spent(ctx, CostPrefix, within)
	costs := make([]Cost, len(entries))
	for i, entry := range entries {
		parts := append(AccountParts(entry.Account), "", "", "")
		costs[i] = Cost{Hook: parts[1], Runner: parts[2], Model: parts[3], Hour: entry.Start, Runs: entry.Runs, Use: entry.Use}
	}
	return costs, err
}

// Entries are what was used since the run was claimed, for the ledger. They are nil if nothing was. The run counts once: for the model that
// most was spent on, when it has used something for the first time.
func (s *Spending) Entries(hook, runner string, models *Models) (entries []Entry) {
	most := 0
	for i, use := range s.uses {
		if other := s.uses[most]; cmp.Or(cmp.Compare(use.Cost, other.Cost), cmp.Compare(use.Tokens(), other.Tokens())) > 0 {
			most = i
		}
		account := NewAccount(costAccount, hook, runner, models.known(use.Model))
		use.Model = ""
		entries = append(entries, Entry{Account: account, Span: costSpan, Keep: costKept, Use: use})
	}
	if len(entries) > 0 && len(s.before) == 0 {
		entries[most].Runs = 1
	}
	return entries
}

// Models bounds the models that have sums of their own: agents choose their names. The zero value has none.
type Models struct {
	mu    sync.Mutex
	names map[string]bool
}

// maxModels is how many models have sums of their own since the process was started. Others are summed up without a name.
const maxModels = 256

func (m *Models) known(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.names[name]:
	case len(m.names) >= maxModels:
		return ""
	case m.names == nil:
		m.names = map[string]bool{name: true}
	default:
		m.names[name] = true
	}
	return name
}
