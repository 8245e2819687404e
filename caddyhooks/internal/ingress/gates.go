package ingress

import (
	"fmt"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// answerClosed answers a request that a gate has kept from becoming a run.
func (q *hookRequest) answerClosed(w http.ResponseWriter, r *http.Request, closed *gate.ClosedError) error {
	g := &closed.Gate
	switch g.Kind {
	case gate.Once:
		first := &engine.Run{ID: closed.First.RunID, ChatID: closed.First.ChatID, Action: engine.Action(closed.First.Action),
			Sync: closed.First.Sync, Hook: q.name}
		return q.answerAsFirst(w, r, first, "value (once)")
	case gate.Alone:
		return &intake.IgnoredError{Condition: "an earlier run of the hook in the chat has not ended (overlap skip)"}
	}
	if closed.Wait == 0 {
		return &api.Error{Status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("The body makes more runs for one sender than the %d in %s that this hook accepts.", g.Most,
				text.ShortDuration(g.Per)),
			Reason: "the body makes more runs with one value than the hook ever accepts at once (rate by)"}
	}
	return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: closed.Wait,
		Message: fmt.Sprintf("This hook accepts %s in %s from each sender, and this request would be more. Try again in %s s.",
			text.Count(g.Most, "run", "runs"), text.ShortDuration(g.Per), api.RetryAfterSeconds(closed.Wait)),
		Reason: "the hook has accepted as many runs with one value as it may (rate by)"}
}
