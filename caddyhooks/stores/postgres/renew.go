package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// mostRenewals is how many claims are renewed in one step.
const mostRenewals = 512

func (r *runs) Renew(ctx context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim,
	cancelled []engine.Cancellation, err error) {
	for {
		some := claims[:min(len(claims), mostRenewals)]
		claims = claims[len(some):]
		lostOfThese, cancelledOfThese, err := r.renew(ctx, some, lease)
		if err != nil {
			return nil, nil, err
		}
		lost, cancelled = append(lost, lostOfThese...), append(cancelled, cancelledOfThese...)
		if len(claims) == 0 {
			return lost, cancelled, nil
		}
	}
}

func (r *runs) renew(ctx context.Context, claims []*engine.Claim, lease time.Duration) (lost []*engine.Claim,
	cancelled []engine.Cancellation, err error) {
	var ids, tokens []string
	var folded []int32
	var known []*engine.Claim
	for _, claim := range claims {
		if _, ok := local.ParseID(claim.Run.ID); !ok || claim.Token == "" {
			lost = append(lost, claim)
			continue
		}
		known = append(known, claim)
		ids, tokens, folded = append(ids, claim.Run.ID), append(tokens, codec.Escape(claim.Token)), append(folded, int32(len(claim.Folded)))
	}
	err = r.on(claimCalls).query(ctx, func(row pgx.Rows) error {
		var number int
		var run, by *string
		if err := row.Scan(&number, &run, &by); err != nil {
			return err
		}
		if claim := known[number-1]; run == nil {
			lost = append(lost, claim)
		} else {
			cancelled = append(cancelled, engine.Cancellation{Claim: claim, RunID: *run, By: codec.Unescape(*by)})
		}
		return nil
	}, "SELECT o_number, o_run, o_by FROM @.renew_runs_1($1, $2, $3, $4, $5, $6)", r.node, r.release.version(), notNull(ids), notNull(tokens),
		notNull(folded), lease.Seconds())
	return lost, cancelled, err
}

func (r *runs) Cancel(ctx context.Context, id, by string) error {
	if _, ok := local.ParseID(id); !ok {
		return engine.ErrNotFound
	}
	var holder *string
	if err := r.query(ctx, func(row pgx.Rows) error { return row.Scan(&holder) }, "SELECT @.cancel_run_1($1, $2)", id,
		codec.Escape(by)); err != nil {
		return err
	}
	switch {
	case holder == nil:
		return engine.ErrNotFound
	case *holder == r.node:
		r.watch.tellCancelled()
	default:
		r.watch.tellOthers("c")
	}
	return nil
}

func (r *runs) Resume(ctx context.Context, runners ...string) error {
	var names any // NULL for all
	if len(runners) > 0 {
		names = codec.EscapeAll(runners)
	}
	for resumed := 1; resumed > 0; {
		if err := r.query(ctx, func(row pgx.Rows) error { return row.Scan(&resumed) }, "SELECT @.resume_runs_1($1::text[])", names); err != nil {
			return err
		}
		if resumed > 0 {
			r.watch.tellClaimable()
			r.watch.tellOthers("r")
		}
	}
	return nil
}

func (r *runs) Overdue(ctx context.Context, most int) (overdue []*engine.Run, wait time.Duration, err error) {
	wait = -1
	err = r.query(ctx, func(row pgx.Rows) error {
		var id, chat, hook, runner *string
		var accepted *time.Time
		var data []byte
		var secs *float64
		if err := row.Scan(&id, &accepted, &chat, &hook, &runner, &data, &secs); err != nil {
			return err
		}
		if id == nil {
			if secs != nil {
				wait = time.Duration(*secs * float64(time.Second))
			}
			return nil
		}
		run := &engine.Run{ID: *id, ChatID: codec.Unescape(*chat), Hook: codec.Unescape(*hook), Runner: codec.Unescape(*runner),
			AcceptedAt: accepted.UTC()}
		overdue = append(overdue, run)
		return codec.DecodeRun(data, run)
	}, "SELECT * FROM @.overdue_runs_1($1, $2)", r.node, most)
	return overdue, wait, err
}

// leave puts back what this node has claimed. Without it, or if it fails, that is over with its lease.
func (r *runs) leave() {
	var runs int
	err := r.on(claimCalls).query(context.Background(), func(row pgx.Rows) error { return row.Scan(&runs) }, "SELECT @.leave_runs_1($1)",
		r.node)
	if err == nil && runs > 0 {
		r.watch.tellOthers("r")
	}
}
