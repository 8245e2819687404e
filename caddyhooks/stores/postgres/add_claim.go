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

// AddAndClaim accepts a request and claims its runs in one transaction, which it shares with requests that come at the same time. It claims
// none if others are ready, if it would have to choose among them, or if the request is none of those that mayBeClaimed reports.
func (r *runs) AddAndClaim(ctx context.Context, runs []*engine.Run, terms engine.Terms, batch engine.Batch) ([]*engine.Claim, error) {
	if batch.Max <= 0 || !mayBeClaimed(runs, terms) || newNames(runs).isBounded(batch) {
		return nil, r.add(ctx, runs, terms, nil)
	}
	wanted := &turnover{next: batch}
	if err := r.add(ctx, runs, terms, wanted); err != nil {
		r.claiming.undoUnwanted(context.WithoutCancel(ctx), tokensOf(wanted.abandon()))
		return nil, err
	}
	return wanted.claims, nil
}

// mayBeClaimed reports whether add_and_claim_2 claims runs of such a request. Others, with it in one call, would keep it from that.
func mayBeClaimed(runs []*engine.Run, terms engine.Terms) bool {
	return terms.Refuse == nil && !local.HasGates(runs) &&
		!slices.ContainsFunc(runs, func(run *engine.Run) bool { return run.AgainOf != "" || run.Fold.IsSet() && !run.Sync })
}

// addAndClaimStatement accepts requests and claims runs for them.
var addAndClaimStatement = callStatement("add_and_claim_2", 7+addParameters)

// newAddAsks gathers what requests ask for, without bounds that concern none of them.
func newAddAsks(together []*addition) *asks {
	asks, names := newAsks(nil), newNames(nil)
	for _, one := range together {
		for i := range one.asked {
			names.add(&one.asked[i])
		}
	}
	for _, one := range together {
		if one.wanted != nil {
			asks.ask(one.wanted, names.concerning(one.wanted.next))
		}
	}
	return asks
}

// leftOut are the runners and hooks whose runs none of the requests may claim. There are none if the requests differ in that.
func leftOut(together []*addition) (runners, hooks []string) {
	var calls []*turnover
	for _, one := range together {
		if one.wanted != nil {
			calls = append(calls, one.wanted)
		}
	}
	asks := newAsks(calls)
	if len(asks.most) != 1 {
		return nil, nil
	}
	for i, name := range asks.names {
		switch {
		case asks.boundMost[asks.nameBound[i]-1] > 0:
		case asks.nameIsHook[i]:
			hooks = append(hooks, name)
		default:
			runners = append(runners, name)
		}
	}
	return runners, hooks
}

// names are those by which bounds may concern some runs.
type names struct{ runners, hooks, chats map[string]struct{} }

func newNames(runs []*engine.Run) *names {
	n := &names{make(map[string]struct{}), make(map[string]struct{}), make(map[string]struct{})}
	for _, run := range runs {
		n.add(run)
	}
	return n
}

func (n *names) add(run *engine.Run) {
	n.runners[run.Runner], n.hooks[run.Hook], n.chats[run.ChatID] = struct{}{}, struct{}{}, struct{}{}
}

// concerning is a batch with those of its bounds that concern the runs.
func (n *names) concerning(batch engine.Batch) engine.Batch {
	isIn := func(set map[string]struct{}) func(string) bool {
		return func(name string) bool { _, ok := set[name]; return ok }
	}
	all := batch
	batch.Bounds, batch.Without = nil, nil
	for _, bound := range all.Bounds {
		if slices.ContainsFunc(bound.Runners, isIn(n.runners)) || slices.ContainsFunc(bound.Hooks, isIn(n.hooks)) {
			batch.Bounds = append(batch.Bounds, bound)
		}
	}
	for _, chat := range all.Without {
		if isIn(n.chats)(chat) {
			batch.Without = append(batch.Without, chat)
		}
	}
	return batch
}

// isBounded reports whether not all of the runs can be claimed.
func (n *names) isBounded(batch engine.Batch) bool {
	batch = n.concerning(batch)
	bounds, _ := binding(&batch)
	return len(bounds)+len(batch.Without) > 0
}

// askWithClaims has the database accept requests, whose arguments are those of addStatement, and claim runs for them.
func (a *adding) askWithClaims(ctx context.Context, together []*addition, asks *asks, arguments []any) (*turnoverAnswer, error) {
	a.claimCall--
	after, lapsed := a.claiming.behind.fromLately()
	runners, hooks := leftOut(together)
	answer := newTurnoverAnswer(0)
	answer.added = newAnswer(together)
	err := a.on(addCalls).query(ctx, func(row pgx.Rows) error { return a.claiming.read(row, answer) }, addAndClaimStatement,
		append([]any{a.claimCall, asks.most[0], asks.leases[0], after, lapsed, notNull(runners), notNull(hooks)}, arguments...)...)
	if errors.Is(err, errAnswerUnknown) {
		a.claiming.lostAdds.add(a.claimCall)
		a.watch.tellClaimable() // whoever claims next undoes it
	}
	return answer, err
}

// give gives requests their claims. They have their other answers.
func (a *adding) give(ctx context.Context, together []*addition, asks *asks, answer *turnoverAnswer) {
	var unwanted []string
	for _, one := range together {
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
			answer.byAsk[1] = append(answer.byAsk[1], claim)
		}
	}
	for _, one := range together {
		if one.wanted == nil || one.err != nil {
			continue
		}
		if claims := asks.take(one.wanted, answer.byAsk); !one.wanted.answer(claims, -1, nil) {
			unwanted = append(unwanted, tokensOf(claims)...)
		}
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
