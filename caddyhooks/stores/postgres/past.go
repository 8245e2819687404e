package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// longerInDatabase is how much longer codec.Escape can make a text. The database counts its own, and gives out enough.
const longerInDatabase = 3

func (r *runs) Past(ctx context.Context, chat string, turns, bytes int) (past []*engine.Record, err error) {
	if turns <= 0 {
		return nil, nil
	}
	full := false
	err = r.query(ctx, func(row pgx.Rows) error {
		var shown shownRun
		if err := row.Scan(shown.columns()...); err != nil {
			return err
		}
		isFollower := textOrEmpty(shown.foldedInto) != ""
		full = full || bytes < 0 && !isFollower
		if full {
			return nil
		}
		record, err := shown.record()
		if err != nil {
			return err
		}
		bytes -= len(record.Run.Message)
		if isFollower {
			turn := past[len(past)-1]
			turn.Followers = append(turn.Followers, record.Run)
			return nil
		}
		bytes -= len(record.Outcome.Text)
		past = append(past, local.PastQuery.Listed(record))
		return nil
	}, "SELECT "+shownColumns+" FROM @.past_1($1, $2, $3, $4)", codec.Escape(chat), turns, longerInDatabase*max(bytes, 0), local.PastMisses)
	if err != nil {
		return nil, err
	}
	return past, nil
}
