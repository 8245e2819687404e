package ingress

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
)

// withinBudgets returns the runs of a request that budgets let in. If there are none, the error is the answer to the request.
func (q *hookRequest) withinBudgets(ctx context.Context, runs []*engine.Run, revision int64) ([]*engine.Run, error) {
	within, usedUp, err := q.in.Service.WithinBudgets(ctx, runs, revision)
	switch {
	case err != nil:
		return nil, err
	case usedUp == nil:
		return within, nil
	case usedUp.Else == budget.Ignore:
		return nil, &intake.IgnoredError{Condition: "the budget of " + usedUp.Limit.String() + " is used up"}
	}
	return nil, &api.Error{Status: http.StatusTooManyRequests, RetryAfter: usedUp.Wait,
		Message: fmt.Sprintf("The budget is used up. Try again in %s s.", api.RetryAfterSeconds(usedUp.Wait)),
		Reason:  "the budget of " + usedUp.Limit.String() + " is used up"}
}
