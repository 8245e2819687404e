package template

import (
	"fmt"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// Each is an expression that finds the values of a body for each of which there is a run. It never changes, and may be used by
// many goroutines at once.
type Each struct {
	expression string
	found      *filter
}

// ParseEach reads a JSONPath expression of RFC 9535, such as $.alerts[?@.status == 'firing'].
func ParseEach(expression string) (*Each, error) {
	expression = strings.Trim(expression, spaces)
	found, err := parseQuery(expression)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", abridged(expression), err)
	}
	return &Each{expression, found}, nil
}

// String returns the expression.
func (e *Each) String() string { return e.expression }

// Warning says what looks like a mistake in the expression, as that of a Condition does.
func (e *Each) Warning(textsOnly bool) string { return e.found.warning(textsOnly) }

// Single reports whether the expression leads to one place, so that there is one match at most.
func (e *Each) Single() bool { return e.found.query == nil }

// Select adds the parts of a body in which Find looks, and what it finds, to selection.
func (e *Each) Select(selection *strictjson.Selection) { e.found.addTo(selection) }

// Find returns the matches in a body, in the order of the document, at most so many. more says that there are others. The search is
// not decided if it took too many steps; then there are none.
func (e *Each) Find(body any, most int) (matches []any, more, decided bool) {
	if e.found.query == nil {
		match, ok := e.found.path.find(body)
		if !ok {
			return nil, false, true
		}
		return []any{match}, false, true
	}
	s := search{body: body, steps: ConditionSteps, standard: true}
	matches, more = s.collected(e.found.query, most)
	if s.steps < 0 {
		return nil, false, false
	}
	return matches, more, true
}
