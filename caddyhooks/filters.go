package caddyhooks

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// filter is a condition of a hook that decides whether a request becomes a run.
type filter struct {
	*template.Condition
	must bool   // it must hold, as for only; otherwise it must not
	text string // with the word before it, for operators
}

const (
	// maxFilters bounds the conditions of a hook.
	maxFilters = 100

	// maxFilterText bounds the part of a condition that operators are shown.
	maxFilterText = 512
)

// parseFilters reads the conditions. Those that do not look at the body come first: they are decided before it is parsed.
func (h *hook) parseFilters() error {
	if len(h.Only)+len(h.Skip) > maxFilters {
		return fieldErrorf("only", "and skip must not have more than %d conditions together", maxFilters)
	}
	for _, list := range []struct {
		field string
		lines []string
		must  bool
	}{{"only", h.Only, true}, {"skip", h.Skip, false}} {
		for _, line := range list.lines {
			condition, err := template.ParseCondition(line)
			if err != nil {
				return fieldErrorf(list.field, "is refused: %v", err)
			}
			h.filters = append(h.filters, filter{condition, list.must, oneline.Of(list.field+" "+line, maxFilterText)})
		}
	}
	slices.SortStableFunc(h.filters, func(a, b filter) int {
		switch {
		case a.NeedsBody() == b.NeedsBody():
			return 0
		case b.NeedsBody():
			return -1
		default:
			return 1
		}
	})
	h.ofBody = slices.IndexFunc(h.filters, func(f filter) bool { return f.NeedsBody() })
	if h.ofBody < 0 {
		h.ofBody = len(h.filters)
	}
	return nil
}

// selectFiltered adds the parts of a body that the conditions read.
func (h *hook) selectFiltered(selection *strictjson.Selection) {
	for _, f := range h.filters[h.ofBody:] {
		f.Select(selection)
	}
}

// filtering is the check of one request against conditions, which share a budget.
type filtering struct {
	input     template.Input
	steps     int
	undecided string // the condition that could not be decided, if there was one
}

// ignoredBy returns the condition because of which the request becomes no run, "" if there is none. A condition that cannot be
// decided does not hold.
func (f *filtering) ignoredBy(filters []filter) string {
	for i := range filters {
		holds, decided := filters[i].Holds(f.input, &f.steps)
		if !decided {
			f.undecided = filters[i].text
		}
		if (holds && decided) != filters[i].must {
			return filters[i].text
		}
	}
	return ""
}

// ignores returns the condition because of which a request whose body is known becomes no run, "" if there is none.
func (h *hook) ignores(req *incoming, doc any) (condition string) {
	f := h.filtering(req)
	f.input.Body = doc
	return f.ignoredBy(h.filters)
}

func (h *hook) filtering(req *incoming) filtering {
	return filtering{input: template.Input{Source: h.sources(req, "", "")}, steps: template.ConditionSteps}
}

// noteUndecided logs that a condition could not be decided, no more than once a minute for each hook.
func (h *hook) noteUndecided(log *zap.Logger, condition string) {
	now := time.Now().UnixNano()
	last := h.undecidedAt.Load()
	if last != 0 && now-last < int64(time.Minute) && now >= last || !h.undecidedAt.CompareAndSwap(last, now) {
		return
	}
	log.Warn("a condition could not be decided and counts as not holding: the body is too large for it", zap.String("hook", h.Name),
		zap.String("condition", condition))
}

// ignoredError says that a hook leaves a request out. Its caller is told that it was ignored, which is no error.
type ignoredError struct {
	condition string // for operators
}

func (e *ignoredError) Error() string { return "ignored: " + e.condition }
