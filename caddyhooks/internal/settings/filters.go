package settings

import (
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// Filter is a condition of a hook that decides whether a request becomes a run.
type Filter struct {
	*template.Condition
	Must bool   // it must hold, as for only; otherwise it must not
	Text string // with the word before it, for operators
}

const (
	// maxFilters bounds the conditions of a hook.
	maxFilters = 100

	// MaxFilterText bounds the part of a condition that operators are shown.
	MaxFilterText = 512
)

// parseFilters reads the conditions. Those that do not look at the body come first: they are decided before it is parsed.
func (h *Hook) parseFilters() error {
	if len(h.Only)+len(h.Skip) > maxFilters {
		return FieldErrorf("only", "and skip must not have more than %d conditions together", maxFilters)
	}
	for _, list := range []struct {
		field string
		lines []string
		must  bool
	}{{"only", h.Only, true}, {"skip", h.Skip, false}} {
		for _, line := range list.lines {
			condition, err := template.ParseCondition(line)
			if err != nil {
				return FieldErrorf(list.field, "is refused: %v", err)
			}
			h.Filters = append(h.Filters, Filter{condition, list.must, oneline.Of(list.field+" "+line, MaxFilterText)})
		}
	}
	slices.SortStableFunc(h.Filters, func(a, b Filter) int {
		switch {
		case a.NeedsBody() == b.NeedsBody():
			return 0
		case b.NeedsBody():
			return -1
		default:
			return 1
		}
	})
	h.OfBody = slices.IndexFunc(h.Filters, func(f Filter) bool { return f.NeedsBody() })
	if h.OfBody < 0 {
		h.OfBody = len(h.Filters)
	}
	return nil
}

// selectFiltered adds the parts of a body that the conditions read.
func (h *Hook) selectFiltered(selection *strictjson.Selection) {
	for _, f := range h.Filters[h.OfBody:] {
		f.Select(selection)
	}
}
