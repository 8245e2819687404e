package intake

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cloudevents"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// filtering is the check of one request against conditions, which share a budget.
type filtering struct {
	Input     template.Input
	Steps     int
	undecided string // the condition that could not be decided, if there was one
}

// ignoredBy returns the condition because of which the request becomes no run, "" if there is none. A condition that cannot be
// decided does not hold.
func (f *filtering) ignoredBy(filters []settings.Filter) string {
	for i := range filters {
		holds, decided := filters[i].Holds(f.Input, &f.Steps)
		if !decided {
			f.undecided = filters[i].Text
		}
		if (holds && decided) != filters[i].Must {
			return filters[i].Text
		}
	}
	return ""
}

// ignores returns the condition because of which a request whose body is known becomes no run, "" if there is none. If some
// events of a batch remain, the others are taken out of it.
func (f *filtering) ignores(filters []settings.Filter, body *payload) (condition string) {
	if !body.isBatch {
		f.Input.Body = body.Doc
		return f.ignoredBy(filters)
	}
	var kept []cloudevents.Event
	for _, event := range body.events {
		f.Input.Body = event.Doc
		if by := f.ignoredBy(filters); by == "" {
			kept = append(kept, event)
		} else {
			condition = cmp.Or(condition, by)
		}
	}
	if len(kept) > 0 {
		body.events = kept
		return ""
	}
	return cmp.Or(condition, "the batch has no events")
}

func Filtering(h *settings.Hook, req *Request) filtering {
	return filtering{Input: template.Input{Source: sources(h, req, "", "")}, Steps: template.ConditionSteps}
}

// noteUndecided logs that a condition could not be decided, no more than once a minute for each hook.
func noteUndecided(h *settings.Hook, log *zap.Logger, condition string) {
	now := time.Now().UnixNano()
	last := h.UndecidedAt.Load()
	if last != 0 && now-last < int64(time.Minute) && now >= last || !h.UndecidedAt.CompareAndSwap(last, now) {
		return
	}
	log.Warn("condition counts as false: the body is too large for it", zap.String("hook", h.Name),
		zap.String("condition", condition))
}

// IgnoredError says that a hook leaves a request out. Its caller is told that it was ignored, which is no error.
type IgnoredError struct {
	Condition string // for operators
}

func (e *IgnoredError) Error() string { return "ignored: " + e.Condition }
