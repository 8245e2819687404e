package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// ledger implements engine.Ledger.
type ledger struct{ *store }

func (l ledger) Spent(ctx context.Context, prefix string, within time.Duration) (entries []engine.LedgerEntry, now time.Time, err error) {
	err = l.query(ctx, func(row pgx.Rows) error {
		var e engine.LedgerEntry
		var account *string
		var span, keep int64
		use := &e.Use
		if err := row.Scan(&now, &account, &e.Start, &span, &keep, &e.Runs, &use.HasTokens, &use.HasCost, &use.Input, &use.Output, &use.Cached,
			&use.Reasoning, &use.Cost); err != nil {
			return err
		}
		if account != nil {
			e.Account, e.Span, e.Keep = *account, time.Duration(span)*time.Microsecond, time.Duration(keep)*time.Microsecond
			entries = append(entries, e)
		}
		return nil
	}, "SELECT * FROM @.spent_1($1, $2)", prefix, seconds(within))
	return entries, now, err
}

// spending is what an end has spent, as the function spend_1 has it.
type spending struct {
	End       int32  `json:"end"`
	Account   string `json:"account"`
	Span      int64  `json:"span"`
	Keep      int64  `json:"keep"`
	Runs      int64  `json:"runs"`
	HasTokens bool   `json:"hasTokens"`
	HasCost   bool   `json:"hasCost"`
	Input     int64  `json:"input"`
	Output    int64  `json:"output"`
	Cached    int64  `json:"cached"`
	Reasoning int64  `json:"reasoning"`
	Cost      int64  `json:"cost"`
}

// spendings are those of the ends of a call.
type spendings []spending

func (s *spendings) add(number int32, spent []engine.LedgerEntry) {
	for i := range spent {
		e := &spent[i]
		use := &e.Use
		*s = append(*s, spending{number, e.Account, e.Span.Microseconds(), e.Keep.Microseconds(), e.Runs, use.HasTokens, use.HasCost,
			use.Input, use.Output, use.Cached, use.Reasoning, use.Cost})
	}
}

// argument is nil if nothing was spent.
func (s spendings) argument() *string {
	if len(s) == 0 {
		return nil
	}
	data, _ := json.Marshal(s) // which always encodes
	text := string(data)
	return &text
}
