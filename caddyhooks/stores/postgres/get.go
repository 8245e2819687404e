package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

func (r *runs) Get(ctx context.Context, id string) (*engine.Record, error) {
	if _, ok := local.ParseID(id); !ok {
		return nil, engine.ErrNotFound
	}
	var record *engine.Record
	err := r.query(ctx, func(row pgx.Rows) (err error) {
		var shown shownRun
		var questions []byte
		if err := row.Scan(append(shown.columns(), &questions)...); err != nil {
			return err
		}
		if record, err = shown.record(); err != nil || questions == nil {
			return err
		}
		if record.Questions, err = codec.DecodeQuestions(questions, id); err != nil {
			return fmt.Errorf("reading the questions of run %s: %w", id, err)
		}
		return nil
	}, "SELECT "+shownColumns+", questions FROM @.get_runs_1($1)", []string{id})
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, engine.ErrNotFound
	}
	return record, nil
}

func (r *runs) Unfinished(ctx context.Context, id string) (bool, error) {
	if _, ok := local.ParseID(id); !ok {
		return false, nil
	}
	unfinished := false
	err := r.query(ctx, func(row pgx.Rows) error { return row.Scan(&unfinished) }, "SELECT @.is_unfinished_1($1)", id)
	return unfinished && err == nil, err
}

func (r *runs) Beside(ctx context.Context, run *engine.Run, most int) (before, behind []string, err error) {
	err = r.query(ctx, func(row pgx.Rows) error {
		id, isBefore := "", false
		if err := row.Scan(&id, &isBefore); err != nil {
			return err
		}
		if isBefore {
			before = append(before, id)
		} else {
			behind = append(behind, id)
		}
		return nil
	}, "SELECT o_id, o_before FROM @.beside_2($1, $2)", run.ID, most)
	if err != nil {
		return nil, nil, err
	}
	return before, behind, nil
}

func (r *runs) Queued(ctx context.Context) (int, error) {
	backlog, err := r.Backlog(ctx)
	return backlog.Queued, err
}

func (r *runs) Backlog(ctx context.Context) (backlog engine.Backlog, err error) {
	var oldest *float64
	err = r.query(ctx, func(row pgx.Rows) error {
		return row.Scan(&backlog.Queued, &backlog.Running, &backlog.Waiting, &oldest)
	},
		"SELECT queued, running, waiting, oldest FROM @.backlog_1()")
	if err != nil {
		return engine.Backlog{}, err
	}
	if oldest != nil {
		backlog.Oldest = max(time.Duration(*oldest*float64(time.Second)), 0)
	}
	return backlog, nil
}
