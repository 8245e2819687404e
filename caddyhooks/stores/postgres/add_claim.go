package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// AddAndClaim accepts a request and claims its runs in one transaction. It claims none if others are ready, if it would have to choose
// among them, if other requests come at the same time, or if the request is none of those that mayBeClaimed reports.
func (r *runs) AddAndClaim(ctx context.Context, runs []*engine.Run, terms engine.Terms, batch engine.Batch) ([]*engine.Claim, error) {
	if batch.Max <= 0 || !mayBeClaimed(runs, terms) || isBounded(runs, batch) {
		return nil, r.add(ctx, runs, terms, nil)
	}
	wanted := &turnover{next: batch}
	if err := r.add(ctx, runs, terms, wanted); err != nil {
		r.claiming.undoUnwanted(context.WithoutCancel(ctx), tokensOf(wanted.abandon()))
		return nil, err
	}
	return wanted.claims, nil
}

// mayBeClaimed reports whether add_and_claim_2 claims runs of such a request.
func mayBeClaimed(runs []*engine.Run, terms engine.Terms) bool {
	return terms.Refuse == nil && !local.HasGates(runs) &&
		!slices.ContainsFunc(runs, func(run *engine.Run) bool { return run.AgainOf != "" || run.Fold.IsSet() && !run.Sync })
}

// addAndClaimStatement accepts requests and claims runs for them.
var addAndClaimStatement = callStatement("add_and_claim_2", 7+addParameters)

// leftOut are the runners and hooks whose runs may not be claimed, as the database has them.
func leftOut(batch *engine.Batch) (runners, hooks []string) {
	for _, bound := range batch.Bounds {
		if bound.AtMost <= 0 {
			runners, hooks = append(runners, bound.Runners...), append(hooks, bound.Hooks...)
		}
	}
	return notNull(codec.EscapeAll(runners)), notNull(codec.EscapeAll(hooks))
}

// isBounded reports whether a bound of the batch concerns some of the runs.
func isBounded(runs []*engine.Run, batch engine.Batch) bool {
	bounds, _ := binding(&batch)
	return slices.ContainsFunc(runs, func(run *engine.Run) bool {
		return slices.Contains(batch.Without, run.ChatID) || slices.ContainsFunc(bounds, func(bound engine.Bound) bool {
			return slices.Contains(bound.Runners, run.Runner) || slices.Contains(bound.Hooks, run.Hook)
		})
	})
}

// askWithClaims has the database accept a request, whose arguments are those of addStatement, and claim runs for it.
func (a *adding) askWithClaims(ctx context.Context, one *addition, arguments []any) (*turnoverAnswer, error) {
	a.claimCall--
	after, lapsed := a.claiming.behind.fromLately()
	batch := &one.wanted.next
	runners, hooks := leftOut(batch)
	answer := newTurnoverAnswer(0)
	answer.added = newAnswer([]*addition{one})
	err := a.on(addCalls).query(ctx, func(row pgx.Rows) error { return a.claiming.read(row, answer) }, addAndClaimStatement,
		append([]any{a.claimCall, batch.Max, batch.Lease.Seconds(), after, lapsed, runners, hooks}, arguments...)...)
	if errors.Is(err, errAnswerUnknown) {
		a.claiming.lostAdds.add(a.claimCall)
		a.watch.tellClaimable() // whoever claims next undoes it
	}
	return answer, err
}

// give gives a request its claims. It has its other answers.
func (a *adding) give(ctx context.Context, one *addition, answer *turnoverAnswer) {
	var claims []*engine.Claim
	var unwanted []string
	for i, run := range one.runs {
		token, isClaimed := answer.added.tokens[run.ID]
		if !isClaimed {
			continue
		}
		claim, err := newStarted(run, one.encoded[i], token, a.node)
		if err != nil {
			unwanted = append(unwanted, token)
			continue
		}
		claims = append(claims, claim)
	}
	if one.err == nil && !one.wanted.answer(claims, -1, nil) {
		unwanted = append(unwanted, tokensOf(claims)...)
	}
	a.claiming.undoUnwanted(ctx, unwanted)
}

// newStarted is the claim of a run that was claimed when it was accepted, as if it had been read from the database.
func newStarted(stored *engine.Run, encoded, token, node string) (*engine.Claim, error) {
	run := &engine.Run{ID: stored.ID, ChatID: stored.ChatID, Hook: stored.Hook, Runner: stored.Runner, AcceptedAt: stored.AcceptedAt}
	if err := codec.DecodeRun([]byte(encoded), run); err != nil {
		return nil, err
	}
	return &engine.Claim{Run: run, Token: token, Attempt: 1, StartedAt: stored.AcceptedAt, Awaited: run.Sync && run.Owner == node}, nil
}

// Interface guard
var _ engine.ClaimingRuns = (*runs)(nil)
